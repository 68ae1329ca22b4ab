"""The casts of CUDA autocast on the CPU: the table against torch's header."""

import re
from pathlib import Path

import pytest
import torch

from trainauto.memory.tracing import cuda_autocast

HEADER = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"


def header_list(macro: str) -> set[str]:
    """Return the operators of a list of the header, as ``name`` or ``name.overload``; overloads of names left out."""
    text = HEADER.read_text()
    start = text.index(f"#define {macro}(_)")
    body = text[start:].split("\n\n", 1)[0]
    entries = re.findall(r"_\((\w+)(?:,\s*(\w+))?\)", body.split("\n", 1)[1])
    names = {f"{name}.{overload}" if overload else name for name, overload in entries}
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
