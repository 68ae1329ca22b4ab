"""What kernels of CUDA take beside their results, as PyTorch's allocator counted it on a simulated RTX 4090."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from trainauto.memory.tracing.kernel_steps import RESULTS, Freed, KernelStep, Result
from trainauto.memory.tracing.kernels import KERNELS
from trainauto.memory.tracing.libraries import LARGE_CARD, Libraries, Processors
from trainauto.memory.tracing.reductions import reduction_buffers
from trainauto.memory.tracing.trace import trace

CARD = Libraries(0, hardware=LARGE_CARD)


def empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


@pytest.mark.parametrize(
    ("source", "dims", "expected"),
    [
        (empty(8192, 192), (0,), [12582912, 8]),
        (empty(8192, 768, dtype=torch.bfloat16), (0,), [50331648, 24]),
        (empty(4096, 100), (0,), [819200, 8]),
        (empty(4, 64, 128, 128), (0, 2, 3), []),  # one block a channel is enough
        (empty(4, 64, 128, 128).to(memory_format=torch.channels_last), (0, 2, 3), [8388608, 4]),
        (empty(2**20), (), [512, 4]),  # to a single number
        (empty(8, 2**18), (1,), [1024, 32]),
        (empty(32, 16, 192), (0, 1), []),
        (empty(65536, 3), (0,), [384, 8]),
        (empty(0, 3), (0,), []),
        (empty(), (0,), []),
        (empty(), (-1,), []),
        (empty(192, 8192).t(), (-2,), []),
        (empty(8192, 192), (-2,), [12582912, 8]),
    ],
)
def test_blocks_that_share_a_sum_leave_their_parts_in_a_buffer(
    source: Tensor, dims: Sequence[int], expected: list[int]
) -> None:
    assert reduction_buffers(source, dims, LARGE_CARD.processors) == expected


def test_maxima_of_half_precision_stay_in_it() -> None:
    columns = empty(1000, 1000, dtype=torch.float16).t()
    assert KERNELS["aten::amax"]((columns, [1, 0]), columns, CARD) == [246, 4]
    assert KERNELS["aten::sum"]((columns, [1, 0]), columns, CARD) == [492, 4]


def test_a_sum_of_another_type_is_of_a_copy_in_it() -> None:
    mask, half = empty(500_000, 6, dtype=torch.bool), empty(8192, 192, dtype=torch.bfloat16)
    copied, buffer, _ = KERNELS["aten::sum"]((mask, [0]), empty(6, dtype=torch.int64), CARD)
    assert (copied, buffer) == (24_000_000, 2 * reduction_buffers(mask.float(), (0,), LARGE_CARD.processors)[0])
    assert KERNELS["aten::sum"]((half, [0]), empty(192), CARD) == [12582912, 8]  # read as it is


def test_a_card_of_fewer_processors_shares_less() -> None:
    small, large = (reduction_buffers(empty(8192, 768), (0,), Processors(number, 1536))[0] for number in (6, 128))
    assert small < large


LONG = empty(2, 2, 1024, 128, dtype=torch.bfloat16)
GROUPED = LONG[:, :1]
SAVED = [empty(300_000, 192)] * 2


TURNED = LONG.transpose(1, 2)
INDICES = empty(8192, dtype=torch.int64)
IMAGE, LAST = empty(4, 24, 32, 32), empty(4, 24, 32, 32).to(memory_format=torch.channels_last)
WEIGHT, DEPTHWISE = empty(24, 24, 3, 3), empty(24, 1, 3, 3)
FILTER = empty(1, 1, 3, 3).expand(24, 1, 3, 3)
SLICED = empty(4, 48, 32, 32)[:, :24]
CONVOLVED = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
ALL = [True] * 3
ONE = empty()


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("_scaled_dot_product_flash_attention", (LONG, LONG), [65536, 8388608, Freed(0)]),
        (
            "_scaled_dot_product_flash_attention_backward",
            (TURNED.contiguous().transpose(1, 2),) * 3,
            [RESULTS, 16384, 2097152],
        ),
        (
            "_scaled_dot_product_flash_attention_backward",
            (LONG, LONG, GROUPED),
            [1048576, 1048576, RESULTS, 16384, 2097152, 1048576, 1048576],
        ),
        (
            "_scaled_dot_product_efficient_attention_backward",
            (LONG.float(),) * 4,
            [2097152, RESULTS, 2097152, 16384, 16384, Freed(2), Freed(1), 2099200, Freed(3)],
        ),
        ("_scaled_dot_product_efficient_attention_backward", (LONG,) * 4, [1048576, RESULTS, 16384, 6293504, Freed(1)]),
        ("_safe_softmax", (LONG, -1), [524288, 4096, 2]),
        (
            "native_layer_norm_backward",
            (*SAVED, [192], *[None] * 4, ALL),
            [0, RESULTS, 0, 4194048, 4194048, 8454144, 8, Freed(5), Freed(4), 8454144, 8, Freed(7), Freed(6)],
        ),
        ("native_layer_norm_backward", (*SAVED, [192], *[None] * 4, [True, False, False]), [0, RESULTS, 0]),
        (
            "native_layer_norm_backward",
            (*[empty(192, 512).t()] * 2, [192], *[None] * 4, ALL),
            [393216, RESULTS, 393216],
        ),
        ("embedding_dense_backward", (empty(512, 96), empty(512), 1000), [0, 0, RESULTS]),
        (
            "embedding_dense_backward",
            (empty(8192, 96), INDICES, 1000),
            [
                0,
                0,
                *[65536] * 3,
                138751,
                Freed(5),
                Freed(4),
                RESULTS,
                65536,
                65536,
                Freed(7),
                8000,
                8000,
                14552,
                698496,
            ],
        ),
        (
            "index_put",
            (empty(225, 6), [INDICES[:4096]], empty(4096, 6), True),
            [32768, 32768, Freed(0), 0, *[32768] * 3, 4607],
        ),
        (
            "_index_put_impl_",
            (empty(3969, 2), [INDICES[:4096]], empty(4096, 2), True),
            [32768, 32768, Freed(0), 0, *[32768] * 3, 72191],
        ),
        (
            "index_put",
            (empty(225, 6), [INDICES[:2304]], empty(6, 2304).t(), True),
            [18432, 18432, Freed(0), 55296, *[18432] * 3, 0],
        ),
        ("index_put", (empty(225, 6), [INDICES], empty(8192, 6)), []),
        (
            "index_put",
            (empty(9, 6), [None, empty(6, dtype=torch.bool)], empty(9, 4), True),
            [32, 32, Freed(0), 0, *[32] * 3, 0],
        ),
        ("_scaled_dot_product_flash_attention", (LONG, LONG, LONG, 0.1), []),
        ("_scaled_dot_product_flash_attention", (LONG[:0], LONG[:0]), []),
        ("roll", (LONG, [1]), [0, RESULTS]),
        ("roll", (LONG, [1, 1]), [0, 1048576, Freed(0), RESULTS]),
        ("roll", (TURNED, [1, 1, 1]), [1048576, 1048576, Freed(0), 1048576, RESULTS]),
        ("_softmax_backward_data", (LONG.float(), LONG.float()), [2097152, 0]),
        ("_softmax_backward_data", (ONE.expand(64, 128), empty(64, 128)), [32768, 0]),
        ("sort", (LONG,), [8 * 128]),
        ("max_pool2d_with_indices", (LAST,), [0]),
        ("max_pool2d_with_indices", (SLICED,), [393216]),
        ("max_pool2d_with_indices_backward", (IMAGE, LAST), [393216, 0]),
        ("upsample_nearest2d_backward", (LAST,), [0]),
        ("upsample_nearest2d_backward", (LAST[:, :3],), [49152]),
        ("convolution", (IMAGE, WEIGHT, None, *CONVOLVED), [0, RESULTS, 0]),
        ("convolution", (LAST, WEIGHT, None, *CONVOLVED), [0, RESULTS, 20736]),
        ("convolution", (SLICED, WEIGHT, None, *CONVOLVED), [393216, RESULTS, 0]),
        ("convolution", (LAST, DEPTHWISE, None, *CONVOLVED[:-1], 24), [0, RESULTS, 0]),
        (
            "convolution_backward",
            (IMAGE, LAST, WEIGHT, [24], *CONVOLVED, ALL),
            [
                *(0, 393216, Result(0), 20736, 0, 0, Freed(4), Freed(3), Freed(2)),
                *(0, Result(1), 0, Freed(6), Freed(5), Freed(1), Freed(0), Result(2)),
            ],
        ),
        (
            "convolution_backward",
            (SLICED, IMAGE, WEIGHT, [24], *CONVOLVED, [False, True, False]),
            [0, 0, 393216, Result(1), 0, Freed(3), Freed(2), Freed(1), Freed(0)],
        ),
        (
            "convolution_backward",
            (IMAGE, SLICED, DEPTHWISE, [24], *CONVOLVED[:-1], 24, [True, True, False]),
            [0, 393216, Result(1), Freed(1), 0, Result(0), Freed(2), Freed(0)],
        ),
        ("convolution", (IMAGE, FILTER, None, *CONVOLVED[:-1], 24), [0, 864, RESULTS]),
        (
            "convolution_backward",
            (IMAGE, IMAGE, FILTER, [24], *CONVOLVED[:-1], 24, [True, False, False]),
            [0, 864, Result(0), Freed(1), Freed(0)],
        ),
    ],
)
def test_other_kernels_take_what_the_allocator_counted(
    name: str, arguments: Sequence[object], expected: list[KernelStep]
) -> None:
    assert list(KERNELS[f"aten::{name}"](arguments, (None, LONG), CARD)) == expected


def test_a_trace_for_a_card_has_them_behind_the_result() -> None:
    images = torch.zeros(4, 64, 128, 128).to(memory_format=torch.channels_last)

    def sizes(libraries: Libraries | None) -> list[int]:
        events = trace(lambda: images.sum((0, 2, 3)), steps=1, held=[], libraries=libraries).events
        return [event.size_bytes for event in events]

    assert sizes(None) == [256, 0]
    assert sizes(Libraries(0)) == [256, 8388608, 4, 0, 0, 0]


NONE_CHOSEN = torch.zeros(0, dtype=torch.long)


@pytest.mark.parametrize(
    "loss",
    [
        lambda x: x[NONE_CHOSEN].sum(),
        lambda x: torch.embedding(x[:, :0], torch.zeros(5000, dtype=torch.long)).sum(),
        lambda x: x.sum().sum(0).mean(-1).amax(0),
        lambda x: x[x.detach() > 0].sum() + x.sum(),
        lambda x: torch.nested.nested_tensor([x, x], layout=torch.jagged).sum(dim=2).values().sum() + x.sum(),
        lambda x: x.sum(dtype=torch.float64) + (x > 0).sum(),
    ],
)
def test_what_has_no_buffer_is_traced_as_before(loss: Callable[[Tensor], Tensor]) -> None:
    weight = torch.zeros(10, 4, requires_grad=True)
    found = trace(lambda: loss(weight).backward(), steps=1, held=[], libraries=Libraries(0))
    assert found.peak_bytes > 0
