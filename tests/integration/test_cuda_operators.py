"""Operators that cast and keep on a CPU what they do on CUDA: in processes of their own, changed for good."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance import only_in_acceptance
from tests.integration.ready_processes import begin

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "scripts" / "bench"
sys.path.append(str(BENCH))
from trace_accuracy import row_of  # noqa: E402

# --- what is kept for backward ---

KEPT = """
import json, torch, torch.nn.functional as F
from trainauto.memory.tracing.cuda_operators import compute_as_cuda
from trainauto.memory.tracing.fake_tensors import fake_world
from trainauto.memory.tracing.trace import trace


def kept(function, *shape):
    "Bytes that forward leaves for backward, as shares of the input."
    weight = torch.ones(shape, requires_grad=True)
    result = []
    def forward():
        result[:] = [function(weight)]
    events = trace(forward, steps=1).events
    freed = {event.ident for event in events if not event.size_bytes}
    left = sum(event.size_bytes for event in events if event.size_bytes and event.ident not in freed)
    return left / (4 * weight.numel())


def all_kept():
    with fake_world():
        four = torch.ones(4, requires_grad=True)
        return {
            "dropout": kept(lambda x: F.dropout(x, 0.1), 64, 64),
            "no dropout": kept(lambda x: F.dropout(x, 0.1, training=False).sin(), 64, 64),
            "attention": kept(lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.1), 2, 4, 128, 16),
            "causal": kept(lambda x: F.scaled_dot_product_attention(x, x, x, None, 0.1, True), 2, 4, 128, 16),
            "norm": kept(lambda x: F.batch_norm(x[:, ::2], None, None, four, four, training=True), 2, 8, 64, 64),
            "norm without weights": kept(lambda x: F.batch_norm(x[:, ::2], None, None, training=True), 2, 8, 64, 64),
            "norm of a whole": kept(lambda x: F.batch_norm(x, None, None, training=True), 2, 8, 64, 64),
            "norm by channel": kept(
                lambda x: F.batch_norm(x.contiguous(memory_format=torch.channels_last), None, None, training=True),
                2, 8, 64, 64,
            ),
        }


before = all_kept()
compute_as_cuda()
compute_as_cuda()
print(json.dumps([before, all_kept()]))
"""


def test_what_forward_keeps_for_backward(tmp_path: Path) -> None:
    (tmp_path / "kept.py").write_text(KEPT)
    process = begin([str(tmp_path / "kept.py")], cwd=ROOT, env=os.environ, is_merged=False)
    said, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    cpu, cuda = json.loads(said)
    rounded = {name: round(share, 1) for name, share in cuda.items()}
    assert cpu["dropout"] == 2  # the result, and a mask of its input's type
    assert cuda["dropout"] == 1.25  # a byte an element
    assert cuda["no dropout"] == cpu["no dropout"] == 1
    assert cpu["attention"] > 16  # the matrix, with and without dropout, and its mask
    assert rounded["attention"] == rounded["causal"] == 1.1  # the result and one number a row
    assert (round(cpu["norm"], 2), round(cuda["norm"], 2)) == (0.5, 1.0)  # the copy of a strided input is kept
    assert cuda["norm without weights"] == cpu["norm without weights"]  # not for cuDNN
    assert cuda["norm of a whole"] == cpu["norm of a whole"]
    assert cuda["norm by channel"] == cpu["norm by channel"]


# --- what is cast ---

CAST = """
import json, torch, torch.nn.functional as F
from trainauto.memory.tracing import cuda_autocast
assert cuda_autocast.cast_as_cuda() == cuda_autocast.cast_as_cuda() == []
low = torch.bfloat16
image, rows, plain = torch.randn(2, 8, 8, 8, dtype=low), torch.randn(4, 8, dtype=low), torch.randn(4, 8)
weight, kernel = torch.nn.Parameter(torch.randn(8, 8)), torch.randn(8, 8, 3, 3)
with torch.autocast("cpu", low):
    results = {
        "layer_norm": F.layer_norm(rows, (8,)),
        "softmax": rows.softmax(-1),
        "softmax as asked": F.softmax(rows, -1, dtype=low),
        "exp": rows.exp(),
        "power": rows**2,
        "sum": rows.sum(1),
        "norm": rows.norm(),
        "norm of rows": rows.norm(dim=1),
        "upsampled": F.interpolate(image, scale_factor=2),
        "l1": F.l1_loss(rows, rows),
        "group_norm": F.group_norm(image, 2),
        "widest": torch.addcmul(plain, rows, rows),
        "narrow": torch.addcmul(rows, rows, rows),
        "linear": F.linear(plain, weight),
        "einsum": torch.einsum("ij,kj->ik", plain, plain),
        "mv": torch.mv(weight, plain[0]),
        "prelu": F.prelu(plain, torch.rand(8)),
        "same padding": F.conv2d(image.float(), kernel, padding="same"),
        "attention": F.scaled_dot_product_attention(*[image.float()] * 3),
        "cat": torch.cat([rows, rows]),
        "mirrored": F.pad(image, (1, 1, 1, 1), mode="reflect"),
        "gelu": F.gelu(rows),
        "pooled": F.max_pool2d(image, 2),
    }
    torch.mv(weight, plain[1])
    casts_of_a_weight = len(cuda_autocast._cached)
    try:
        F.binary_cross_entropy(torch.rand(3), torch.rand(3))
        refused = ""
    except RuntimeError as error:
        refused = str(error)
import trainauto.memory.tracing.fake_tensors as fake
from trainauto.memory.tracing.trace import trace
def peak():
    layers = torch.nn.Sequential(*[torch.nn.Linear(50, 50, bias=False) for _ in range(4)])
    adam = torch.optim.Adam(layers.parameters())
    def step():
        layers(torch.ones(1, 50)).sum().backward()
        adam.step()
        adam.zero_grad()
    return trace(step).phase_peaks_bytes["optimizer"]
one_by_one = peak()
fake.group_as_cuda()
grouped = peak()
dtypes = {name: str(out.dtype) for name, out in results.items()}
print(json.dumps([dtypes, casts_of_a_weight, len(cuda_autocast._cached), refused, grouped - one_by_one]))
"""
LOW = {
    "softmax as asked",
    "linear",
    "einsum",
    "mv",
    "prelu",
    "same padding",
    "attention",
    "cat",
    "mirrored",
    "gelu",
    "pooled",
    "narrow",
}


@pytest.mark.usefixtures("children_covered")
def test_operators_give_what_they_give_on_cuda() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error", "-c", CAST]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    dtypes, casts_of_a_weight, afterwards, refused, more_bytes = json.loads(done.stdout)
    assert {name for name, dtype in dtypes.items() if dtype == "torch.bfloat16"} == LOW
    assert {name for name, dtype in dtypes.items() if dtype == "torch.float32"} == dtypes.keys() - LOW
    assert (casts_of_a_weight, afterwards) == (1, 0)
    # One by one: a root and a quotient of one weight, and the quotient of the weight before. Together: four roots.
    assert more_bytes == (4 - 3) * 50 * 50 * 4
    assert "refuses binary_cross_entropy" in refused


# --- whole steps ---

CASTING = ("SwinIR-light", "GPT", "GAN", "own module")
"""Networks with more than convolutions to cast; the script measures all of them."""


@only_in_acceptance
def test_bf16_under_the_autocast_of_cuda_equals_real_steps(tmp_path: Path) -> None:
    """The process is a worker of the script that measures."""
    file = tmp_path / "cases.json"
    words = [str(BENCH / "trace_accuracy.py"), "--small", "--formats", "bf16", "--work", str(file)]
    process = begin([*words, "--networks", *CASTING], cwd=tmp_path, env=os.environ)
    said, _ = process.communicate(timeout=250)
    assert process.returncode == 0, said
    cases = json.loads(file.read_text())
    assert {case["network"] for case in cases} == set(CASTING)
    assert all(abs(plan["error"]) < 0.001 for case in cases for plan in case["plans"])
    assert all(abs(e) < 0.01 for case in cases for plan in case["plans"] for e in plan["phase_errors"].values())
    assert all(row_of(case).startswith(f"| {case['network']} | bf16 | 1 |") for case in cases)
