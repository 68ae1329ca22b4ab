"""CPU autocast that casts as CUDA autocast does, for traces of a GPU's step on a machine without one.

Both differ in which operators they cast: attention traced under the CPU's lists came out up to 64 % too small. The
lists here are those of torch 2.13 (``ATen/autocast_mode.h``); an operator that the running torch does not have is left
out, one that it casts on CUDA and that is not listed is reported.

:func:`cast_as_cuda` changes the dispatcher for the whole process and for good: only a process of its own should do
that.
``cuda_in_thread.py`` does so for one thread, and for a while.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


LOWER_PRECISION = _names("""
    _convolution.deprecated _convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input
    conv_transpose3d.input convolution prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm baddbmm
    bmm chain_matmul linalg_multi_dot _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell
    rnn_relu_cell _scaled_dot_product_flash_attention scaled_dot_product_attention
""")
"""Everything is cast to the autocast type."""

FLOAT32 = _names("""
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar pow.Tensor_Tensor
    pow.Scalar softplus layer_norm native_layer_norm rms_norm group_norm frobenius_norm.dim nuclear_norm
    nuclear_norm.dim cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss
    kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss
    triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp
    upsample_nearest1d _upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d
    _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d
    upsample_bicubic2d _upsample_bicubic2d_aa
""")
"""Everything is cast to float32."""

FLOAT32_RESULT = _names("""
    prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm
    linalg_matrix_norm.str_ord sum sum.dim_IntList
""")
"""They compute in float32 unless the call says otherwise."""

NORMS = {"norm.Scalar": "ScalarOpt_dtype", "norm.ScalarOpt_dim": "ScalarOpt_dim_dtype"}
"""The same by another overload, which takes the type."""

WIDEST = _names("addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add")
"""Everything is cast to the widest type among the arguments."""

REFUSED = _names("binary_cross_entropy")
"""Refused under autocast."""

ONLY_ON_CUDA = _names("cudnn_convolution cudnn_convolution_transpose _cudnn_rnn")
ONLY_ON_CPU = _names("mkldnn_rnn_layer")
NAMED = ("dimname", "Dimname", "DimnameList")
"""Overloads for named tensors, which torch 2.13 no longer casts."""

_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
_installed: list[torch.library.Library] = []
_cached: dict[int, tuple[Tensor, Tensor]] = {}

Kernel = Callable[..., Any]


def cast_as_cuda() -> list[str]:
    """Let CPU autocast of this process cast as CUDA autocast does.

    Returns:
        operators that this torch casts on CUDA and that no list here holds; they are not cast.
    """
    if not _installed:
        library = torch.library.Library("aten", "IMPL", "AutocastCPU")  # type: ignore[no-untyped-call]
        _installed.append(library)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that kernels are replaced is the purpose
            for name, kernel in autocast_kernels().items():
                library.impl(name, kernel or torch.library.fallthrough_kernel, allow_override=True)  # type: ignore[no-untyped-call]
        torch.clear_autocast_cache = _clearing(torch.clear_autocast_cache)
    unlisted = operators_with("AutocastCUDA") - _listed()
    return sorted(name for name in unlisted if not name.endswith(NAMED) and "names_" not in name)


def autocast_kernels() -> dict[str, Kernel | None]:
    """Return the kernels of all operators that CPU autocast handles otherwise; ``None`` for what it is to leave alone.

    What CUDA autocast leaves alone must not be cast, nor hide from the operators it consists of.
    """
    on_cuda, on_cpu = operators_with("AutocastCUDA"), operators_with("AutocastCPU")
    return {**dict.fromkeys(on_cpu - _listed() - ONLY_ON_CPU), **_kernels(on_cuda, on_cpu)}


@contextmanager
def weights_cast_once() -> Iterator[None]:
    """Forget cast weights where torch forgets its own, for as long as this is open."""
    original = torch.clear_autocast_cache
    torch.clear_autocast_cache = _clearing(original)
    try:
        yield
    finally:
        torch.clear_autocast_cache = original
        _cached.clear()


def _listed() -> set[str]:
    return {*LOWER_PRECISION, *FLOAT32, *FLOAT32_RESULT, *NORMS, *WIDEST, *REFUSED, *ONLY_ON_CUDA}


@cache
def operators_with(key: str) -> frozenset[str]:
    """Return the ``aten`` operators that had a kernel for a dispatch key when first asked, without the namespace."""
    names = torch._C._dispatch_get_all_op_names()
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return frozenset(name.removeprefix("aten::") for name in names if name.startswith("aten::") and has(name, key))


def _kernels(on_cuda: Set[str], on_cpu: Set[str]) -> dict[str, Kernel]:
    """Return the kernels of all operators that differ; both backends agree on lower precision where they have it."""
    kernels: dict[str, Kernel] = {}
    for names, make in (
        (LOWER_PRECISION - on_cpu, _lower),
        (FLOAT32, _float32),
        (FLOAT32_RESULT, _float32_result),
        (NORMS, _norm),
        (WIDEST, _widest),
        (REFUSED, _refused),
    ):
        kernels |= {name: make(name) for name in names if name in on_cuda}
    return kernels


def overload_of(name: str) -> Any:
    """Return an ``aten`` operator by its name, e.g. ``addmm`` or ``pow.Scalar``."""
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _is_cast(value: Any) -> bool:
    """Say whether autocast touches a value: floating point, but not float64."""
    return isinstance(value, Tensor) and value.is_floating_point() and value.dtype != torch.float64


def _to(value: Any, dtype: torch.dtype) -> Any:
    """Cast the tensors in an argument."""
    if isinstance(value, list | tuple):
        return type(value)(_to(entry, dtype) for entry in value)
    if not _is_cast(value) or value.dtype == dtype:
        return value
    return value.to(dtype) if dtype == torch.float32 else _weight_or_not(value, dtype)


def _weight_or_not(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Cast to lower precision; weights once in an autocast region, as torch does."""
    is_weight = value.dtype == torch.float32 and value.requires_grad and value.is_leaf and not value._is_view()
    if not (is_weight and torch.is_autocast_cache_enabled()):
        return value.to(dtype)
    if id(value) not in _cached:
        _cached[id(value)] = (value, value.to(dtype))
    return _cached[id(value)][1]


def _clearing(original: Callable[[], None]) -> Callable[[], None]:
    """Return what empties our cache of weights along with torch's own: at the end of an autocast region."""

    def clear() -> None:
        _cached.clear()
        original()

    return clear


def _casting(name: str, dtype_of: Callable[[Sequence[Any]], torch.dtype]) -> Kernel:
    operator = overload_of(name)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_CPU):
            dtype = dtype_of((*args, *kwargs.values()))
            return operator(*_to(args, dtype), **{key: _to(value, dtype) for key, value in kwargs.items()})

    return kernel


def _lower(name: str) -> Kernel:
    return _casting(name, lambda _: torch.get_autocast_dtype("cpu"))


def _float32(name: str) -> Kernel:
    return _casting(name, lambda _: torch.float32)


def _widest(name: str) -> Kernel:
    def dtype_of(values: Sequence[Any]) -> torch.dtype:
        flat = [argument for value in values for argument in (value if isinstance(value, list | tuple) else (value,))]
        widest = any(_is_cast(argument) and argument.dtype == torch.float32 for argument in flat)
        return torch.float32 if widest else torch.get_autocast_dtype("cpu")

    return _casting(name, dtype_of)


def _float32_result(name: str) -> Kernel:
    operator = overload_of(name)
    position = [argument.name for argument in operator._schema.arguments].index("dtype")

    def kernel(*args: Any, **kwargs: Any) -> Any:
        dtype = args[position] if position < len(args) else kwargs.get("dtype")
        with torch._C._ExcludeDispatchKeyGuard(_CPU):
            if dtype is None and _is_cast(args[0]):
                return operator(*args[:position], **{**kwargs, "dtype": torch.float32})
            return operator(*args, **kwargs)

    return kernel


def _norm(name: str) -> Kernel:
    operator, typed = overload_of(name), getattr(torch.ops.aten.norm, NORMS[name])

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_CPU):
            if not _is_cast(args[0]):
                return operator(*args, **kwargs)
            arguments = dict(zip(("self", "p", "dim", "keepdim"), args, strict=False)) | kwargs
            if name == "norm.Scalar":
                return typed(arguments["self"], arguments.get("p", 2), dtype=torch.float32)
            dims = (arguments["dim"], arguments.get("keepdim", False))
            return typed(arguments["self"], arguments["p"], *dims, dtype=torch.float32)

    return kernel


def _refused(name: str) -> Kernel:
    def kernel(*_: Any, **__: Any) -> Any:
        raise RuntimeError(f"CUDA refuses {name} under autocast; its form with logits is allowed")

    return kernel
