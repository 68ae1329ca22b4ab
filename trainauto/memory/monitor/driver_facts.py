"""What NVML tells of driver and cards; it needs no torch, which may be what is broken."""

from typing import Any

import pynvml


def nvml_facts() -> dict[str, Any]:
    """Return driver, the newest CUDA it runs (e.g. 12080), and the names of the cards; or why there are none."""
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        names = [_text(pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(index))) for index in range(count)]
        return {
            "driver": _text(pynvml.nvmlSystemGetDriverVersion()),
            "cuda": int(pynvml.nvmlSystemGetCudaDriverVersion_v2()),
            "cards": names,
        }
    except pynvml.NVMLError as error:
        return {"missing": str(error)}


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
