"""Device and number format of a run, and torch set up accordingly."""

import importlib
import sys

import torch

from trainauto.builders.components import locate_errors
from trainauto.core.errors import InputError, Problem
from trainauto.core.process import without_garbage_collection
from trainauto.distributed.communicator import SINGLE_PROCESS, Communicator
from trainauto.optim.precision import Precision
from trainauto.options.load import LoadedOptions
from trainauto.options.run_options import FileOptions

COMPILER, FAST = "torch._dynamo", "medium"


def choose_precision(loaded: LoadedOptions[FileOptions], ranks: Communicator = SINGLE_PROCESS) -> Precision:
    """Choose device and number format, and set torch up accordingly."""
    options = loaded.options
    if options.num_threads is not None:
        torch.set_num_threads(options.num_threads)
    if torch.are_deterministic_algorithms_enabled() != options.deterministic:
        torch.use_deterministic_algorithms(options.deterministic)  # loads torch's compiler
    if options.fast_matmul or torch.get_float32_matmul_precision() == FAST:
        torch.set_float32_matmul_precision(FAST if options.fast_matmul else "highest")
    has_cuda = torch.cuda.is_available()
    if options.device == "cuda" and not has_cuda:
        with locate_errors(loaded, ("device",)):
            raise InputError(
                Problem("torch finds no CUDA device", advice="Use `device: auto`, or install torch for CUDA.")
            )
    use_cuda = has_cuda and options.device != "cpu"
    if use_cuda and ranks.world_size > 1:  # pragma: no cuda
        _take_gpu(loaded, ranks.local_rank)
    device = torch.device("cuda", torch.cuda.current_device()) if use_cuda else torch.device("cpu")
    dtype = (torch.bfloat16 if options.amp_bf16 else torch.float16) if options.use_amp else torch.float32
    return Precision(device, dtype, keeps_casts=not options.distributed.fully_shard)


def load_compiler() -> None:
    """Load torch's compiler, as the first optimizer does, but out of the garbage collector's sight."""
    if COMPILER not in sys.modules:
        with without_garbage_collection():
            importlib.import_module(COMPILER)


def _take_gpu(loaded: LoadedOptions[FileOptions], local_rank: int) -> None:  # pragma: no cuda
    """Take the GPU of this rank. Two ranks on one card would share its memory and gain nothing."""
    device = torch.device("cuda", local_rank)
    if local_rank >= torch.cuda.device_count():
        with locate_errors(loaded, ("device",)):
            message = f"rank {local_rank} of this machine has no GPU: there are {torch.cuda.device_count()}"
            raise InputError(Problem(message, advice="Lower --nproc-per-node, or widen CUDA_VISIBLE_DEVICES."))
    torch.cuda.set_device(device)
