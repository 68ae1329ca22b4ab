"""Two machines on one: network namespaces with an interface each, joined by a virtual cable."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from uuid import uuid4

from tests.integration.commands import TRAIN
from tests.integration.ranks import children_of, rank_environment, torchrun

INTERFACE = "cable"
PORT = 29400


@dataclass
class Machine:
    """A network of its own; files are shared with everybody.

    Attributes:
        namespace: name of the network namespace.
        address: its address on the cable.
        agents: every torchrun started here, in order.
    """

    namespace: str
    address: str
    agents: list[subprocess.Popen[str]] = field(default_factory=list)

    def torchrun(
        self, options: Path, endpoint: "Machine", *arguments: str, variables: Mapping[str, str]
    ) -> subprocess.Popen[str]:
        """Start this machine's part of a run of two machines with one rank each; they meet at ``endpoint``."""
        conf = f"is_host={str(endpoint is self).lower()},keep_alive_interval=1,keep_alive_max_attempt=3"
        command = torchrun("--nnodes", "2", "--nproc-per-node", "1", "--max-restarts", "3")
        command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{endpoint.address}:{PORT}"]
        command += ["--rdzv-id", "two", "--rdzv-conf", conf, "--local-addr", self.address]
        command += [str(TRAIN), "-opt", options.name, "--launcher", "pytorch", *arguments]
        environment = rank_environment(0, 2, 0) | {"GLOO_SOCKET_IFNAME": INTERFACE} | variables
        for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
            del environment[name]
        # Said into a file: a pipe that nobody reads while others are waited for would fill up.
        with (options.parent / f"said_{self.namespace}_{len(self.agents)}.txt").open("w") as said:
            agent = subprocess.Popen(
                ["ip", "netns", "exec", self.namespace, *command],
                cwd=options.parent,
                env=environment,
                stdout=said,
                stderr=subprocess.STDOUT,
                text=True,
            )
        self.agents.append(agent)
        return agent

    def kill_rank(self) -> None:
        """Kill the rank; its torchrun stays."""
        (rank,) = children_of(self.agents[-1].pid)
        os.kill(rank, signal.SIGKILL)

    def kill(self) -> None:
        """Kill all that runs here at once, as a machine does that loses its power."""
        for pid in _ip("netns", "pids", self.namespace).split():
            os.kill(int(pid), signal.SIGKILL)
        self.agents[-1].wait()


@contextmanager
def two_machines() -> Iterator[tuple[Machine, Machine]]:
    """Make two machines that see each other and nothing else; what runs on them ends with them."""
    unique = uuid4().hex[:8]
    machines = Machine(f"ta{unique}a", "10.213.7.1"), Machine(f"ta{unique}b", "10.213.7.2")
    first, second = (machine.namespace for machine in machines)
    try:
        for machine in machines:
            _ip("netns", "add", machine.namespace)
        cable = ["type", "veth", "peer", "name", INTERFACE, "netns", second]
        _ip("link", "add", INTERFACE, "netns", first, *cable)
        for machine in machines:
            _ip("-n", machine.namespace, "address", "add", f"{machine.address}/24", "dev", INTERFACE)
            for interface in ("lo", INTERFACE):
                _ip("-n", machine.namespace, "link", "set", interface, "up")
        yield machines
    finally:
        for machine in machines:
            for pid in _ip("netns", "pids", machine.namespace, check=False).split():
                os.kill(int(pid), signal.SIGKILL)
            for agent in machine.agents:
                agent.wait()
            _ip("netns", "delete", machine.namespace, check=False)  # the cable goes with it


@cache
def why_not() -> str:
    """Return why there can be no such machines here; nothing where there can."""
    if sys.platform != "linux" or shutil.which("ip") is None:
        return "needs Linux and the command `ip`"
    try:
        with two_machines():
            return ""
    except subprocess.CalledProcessError as error:
        return f"no network namespaces can be made here: {error.stderr.strip()}"


def wait_for(agents: Sequence[subprocess.Popen[str]], timeout_s: float) -> list[int]:
    """Wait for all to end; return their exit codes."""
    return [agent.wait(timeout_s) for agent in agents]


def _ip(*arguments: str, check: bool = True) -> str:
    return subprocess.run(["ip", *arguments], check=check, capture_output=True, text=True).stdout
