"""The casts of CUDA autocast on the CPU: the table against torch's header, and what operators then give."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from trainauto.memory.tracing import cuda_autocast

ROOT = Path(__file__).parents[4]
HEADER = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"


def header_list(macro: str) -> set[str]:
    """Return the operators of a list of the header, as ``name`` or ``name.overload``; overloads of names left out."""
    text = HEADER.read_text()
    start = text.index(f"#define {macro}(_)")
    body = text[start:].split("\n\n", 1)[0]
    found = re.findall(r"_\((\w+)(?:,\s*(\w+))?\)", body.split("\n", 1)[1])
    names = {f"{name}.{overload}" if overload else name for name, overload in found}
    return {name for name in names if not name.endswith(cuda_autocast.NAMED)}


@pytest.mark.skipif(not HEADER.exists(), reason="this torch comes without headers")
@pytest.mark.parametrize(
    ("macro", "table"),
    [
        ("AT_FORALL_LOWER_PRECISION_FP", cuda_autocast.LOWER_PRECISION),
        ("AT_FORALL_FP32", cuda_autocast.FLOAT32),
        ("AT_FORALL_FP32_SET_OPT_DTYPE", cuda_autocast.FLOAT32_RESULT),
        ("AT_FORALL_PROMOTE", cuda_autocast.WIDEST),
    ],
)
def test_the_table_is_that_of_the_header(macro: str, table: frozenset[str]) -> None:
    newer = {"rms_norm"}  # since torch 2.12
    assert header_list(macro) - table == set()
    assert table - header_list(macro) <= newer


PROGRAM = """
import json, torch, torch.nn.functional as F
from trainauto.memory.tracing import cuda_autocast
assert cuda_autocast.cast_as_cuda() == cuda_autocast.cast_as_cuda() == []
low = torch.bfloat16
image, rows, plain = torch.randn(2, 8, 8, 8, dtype=low), torch.randn(4, 8, dtype=low), torch.randn(4, 8)
weight, kernel = torch.nn.Parameter(torch.randn(8, 8)), torch.randn(8, 8, 3, 3)
with torch.autocast("cpu", low):
    found = {
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
dtypes = {name: str(out.dtype) for name, out in found.items()}
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


def test_operators_give_what_they_give_on_cuda() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error", "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    dtypes, casts_of_a_weight, afterwards, refused, more_bytes = json.loads(done.stdout)
    assert {name for name, dtype in dtypes.items() if dtype == "torch.bfloat16"} == LOW
    assert {name for name, dtype in dtypes.items() if dtype == "torch.float32"} == dtypes.keys() - LOW
    assert (casts_of_a_weight, afterwards) == (1, 0)
    # One by one: a root and a quotient of one weight, and the quotient of the weight before. Together: four roots.
    assert more_bytes == (4 - 3) * 50 * 50 * 4
    assert "refuses binary_cross_entropy" in refused
