"""Operators that keep on a CPU what they keep on CUDA: in a process of its own, for it is changed for good."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = """
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
    found = trace(forward, steps=1)
    freed = {event.ident for event in found.events if not event.size_bytes}
    left = sum(event.size_bytes for event in found.events if event.size_bytes and event.ident not in freed)
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


def test_what_forward_keeps_for_backward() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, check=True)
    cpu, cuda = json.loads(done.stdout)
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
