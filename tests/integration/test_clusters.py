"""The files for SLURM and Kubernetes start a run on two machines, which are network namespaces of one."""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from torch.distributed.run import get_args_parser

from tests.acceptance import only_in_acceptance
from tests.integration.commands import environment, latest_weights, run_directory, step_records, write_options
from tests.integration.machines import INTERFACE, Machine, two_machines, wait_for, why_not
from tests.integration.ranks import finish, train_ranks
from tests.integration.test_elastic import STEPS, options_for
from trainauto.cli import _parser

WriteImages = Callable[..., Path]
CLUSTERS = Path(__file__).parents[2] / "examples" / "clusters"
SRUN = """#!/bin/bash
# As SLURM does: the command once on each machine, told where it is; done when all are.
number=0
for node in {nodes}; do
    set -- "$@"
    SLURM_NODEID=$number SLURMD_NODENAME=${{node#*=}} ip netns exec "${{node%=*}}" "$@" &
    running+=($!)
    number=$((number + 1))
done
for process in "${{running[@]}}"; do wait "$process" || exit 1; done
"""


def job() -> dict[str, Any]:
    """Return the container that a worker of the Kubernetes job runs."""
    told = yaml.safe_load((CLUSTERS / "kubernetes.yaml").read_text())
    worker = told["spec"]["pytorchReplicaSpecs"]["Worker"]
    assert worker["replicas"] == told["spec"]["elasticPolicy"]["minReplicas"] == 2
    (container,) = worker["template"]["spec"]["containers"]
    assert f"--rdzv-endpoint={told['metadata']['name']}-worker-0:29400" in container["args"]
    return dict(container)


def test_bash_torchrun_and_train_understand_the_files() -> None:
    subprocess.run(["bash", "-n", str(CLUSTERS / "slurm.sbatch")], check=True)
    given = get_args_parser().parse_args(job()["args"])
    assert given.module
    assert given.training_script == "trainauto"
    assert (given.nnodes, given.nproc_per_node, given.max_restarts) == ("2", "4", 3)
    told = _parser().parse_args(given.training_script_args)
    assert told.launcher == "pytorch"
    assert told.auto_resume


def started(command: list[str], folder: Path, name: str, variables: Mapping[str, str]) -> "subprocess.Popen[str]":
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    own = {"PATH": f"{folder}:{path}", "GLOO_SOCKET_IFNAME": INTERFACE, "PYTHONPATH": str(CLUSTERS.parents[1])}
    with (folder / f"said_{name}.txt").open("w") as said:
        return subprocess.Popen(
            command,
            cwd=folder,
            env=environment() | {"OMP_NUM_THREADS": "1"} | own | variables,
            stdout=said,
            stderr=subprocess.STDOUT,
            text=True,
        )


def with_slurm(machines: tuple[Machine, Machine], options: Path) -> "list[subprocess.Popen[str]]":
    nodes = " ".join(f"{machine.namespace}={machine.address}" for machine in machines)
    names = shlex.join(machine.address for machine in machines)
    commands = {"srun": SRUN.format(nodes=nodes), "scontrol": f"#!/bin/sh\nprintf '%s\\n' {names}\n"}
    for name, text in commands.items():
        (options.parent / name).write_text(text)
        (options.parent / name).chmod(0o755)
    told = {"SLURM_JOB_NODELIST": "node[1-2]", "SLURM_NNODES": "2", "SLURM_JOB_ID": "7", "SLURM_GPUS_ON_NODE": "1"}
    words = ["bash", str(CLUSTERS / "slurm.sbatch"), options.name]
    return [started(words, options.parent, "slurm", told)]


def with_kubernetes(machines: tuple[Machine, Machine], options: Path) -> "list[subprocess.Popen[str]]":
    container = job()
    given = {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}
    processes = []
    for machine in machines:
        own = {"my-run-worker-0": machines[0].address, "$(POD_IP)": machine.address, "/data/my_run.yml": options.name}
        words = [*container["command"], *container["args"], "--force_yml", "manual_seed=0"]
        for name, value in {**own, "--nproc-per-node=4": "--nproc-per-node=1"}.items():
            words = [word.replace(name, value) for word in words]
        host = {"PET_RDZV_CONF": f"is_host={machine is machines[0]}"}  # a pod knows itself by its name; these have none
        command = ["ip", "netns", "exec", machine.namespace, *words]
        variables = given | host | {"GLOO_SOCKET_IFNAME": INTERFACE}
        processes.append(started(command, options.parent, machine.namespace, variables))
    return processes


@only_in_acceptance
@pytest.mark.skipif(bool(why_not()), reason=why_not() or "there can be two machines")
@pytest.mark.parametrize("start", [with_slurm, with_kubernetes])
def test_two_machines_train_one_run(
    tmp_path: Path,
    write_images: WriteImages,
    start: "Callable[[tuple[Machine, Machine], Path], list[subprocess.Popen[str]]]",
) -> None:
    gt = write_images("gt", 11)
    options = write_options(tmp_path / "far.yml", options_for(gt, "far", manual_seed=0))
    with two_machines() as machines:
        processes = start(machines, options)
        codes = wait_for(processes, 200)
    said = "\n".join(file.read_text() for file in sorted(tmp_path.glob("said_*.txt")))
    assert set(codes) == {0}, said
    records = step_records(run_directory(options, "far"))
    assert [record["step"] for record in records] == list(range(1, STEPS + 1))
    assert {record["ranks"]["count"] for record in records} == {2}
    near = write_options(tmp_path / "near.yml", options_for(gt, "near", manual_seed=0))
    assert [code for code, _ in finish(train_ranks(near, 2))] == [0, 0]
    assert latest_weights(run_directory(options, "far")) == latest_weights(run_directory(near, "near"))
