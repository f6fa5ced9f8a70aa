"""Target `npu`: the real torch_npu on a real device; all code that needs a device is here."""

from __future__ import annotations

import contextlib
import importlib
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from fusionkit.errors import MisuseError
from fusionkit.npu.dry.cache_folder import STANDINS, cache_root
from fusionkit.npu.order import refuse_late_activation
from fusionkit.npu.versions import installed_torch_npu, refuse_unfit_pair


def import_torch_npu() -> types.ModuleType:
    """Import the installed torch_npu and check that there is a device.

    Raises MisuseError if the stand-in is loaded, libraries that look for an NPU are imported already, torch_npu is
    missing or does not start, or no device is found.
    """
    if standin_is_loaded():
        raise MisuseError(
            "target npu: the stand-in of npu-dry is loaded in this process; start a new process"
        )
    refuse_late_activation("npu", torch_npu_may_be_there=True)
    refuse_unfit_pair("npu", torch.__version__, installed_torch_npu())
    try:
        module = importlib.import_module("torch_npu")
        available = bool(_device_module().is_available())
    except (ImportError, RuntimeError, OSError, AttributeError) as error:
        said = str(error).strip().partition("\n")[0]
        raise MisuseError(
            f"target npu: torch_npu does not start ({said}); install CANN and the torch-npu of this torch, or use"
            " target npu-dry"
        ) from error
    if not available:
        raise MisuseError("target npu: torch_npu finds no device; see npu-smi info, or use target npu-dry")
    return module


def standin_is_loaded() -> bool:
    """Whether a library of the stand-in is mapped into this process."""
    maps = Path("/proc/self/maps")
    return maps.is_file() and str(cache_root() / STANDINS) in maps.read_text("utf-8", "replace")


@contextlib.contextmanager
def seeded_device(seed: int) -> Iterator[None]:
    """Seed the NPU's random state inside the block, and restore the old state after it."""
    with torch.random.fork_rng(devices=[_device_module().current_device()], device_type="npu"):
        _device_module().manual_seed_all(seed)
        yield


def synchronize() -> None:
    """Wait until the NPU has finished; required before a clock or a profile is read."""
    _device_module().synchronize()


def record_profile(step: Callable[[], object], folder: Path, *, warmup: int) -> None:
    """Call `step` `warmup` times, then once under torch_npu's profiler, which writes below `folder`.

    Profiler level 1: level 0 has no shapes and no durations per kernel.
    """
    profiler = importlib.import_module("torch_npu.profiler")
    for _ in range(warmup):
        step()
    synchronize()
    with profiler.profile(
        activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.NPU],
        on_trace_ready=profiler.tensorboard_trace_handler(str(folder)),
        record_shapes=True,
        experimental_config=profiler._ExperimentalConfig(profiler_level=profiler.ProfilerLevel.Level1),
    ):
        step()
        synchronize()


def _device_module() -> Any:
    return getattr(torch, "npu")  # noqa: B009 - torch_npu puts it there
