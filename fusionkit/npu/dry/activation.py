"""Activation: the stand-in is loaded, then the real torch_npu is imported on it."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import sys
import types
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from fusionkit.errors import MisuseError
from fusionkit.npu.dry.cache import Prepared, Tell, prepare
from fusionkit.npu.dry.refusal import keep_no_constants, refuse_computation

# What decides at its import whether there is an NPU, and so would build CPU code into an NPU graph.
DECIDE_AT_IMPORT = ("diffusers", "transformers")


@dataclass(frozen=True, slots=True)
class Activated:
    """The imported torch_npu and the libraries that keep its kernels from computing."""

    module: types.ModuleType
    prepared: Prepared
    libraries: tuple[Any, ...]


def activate(tell: Tell = lambda _: None) -> Activated:
    """Prepare the cache, load the stand-in, import torch_npu and refuse every computation.

    Raises MisuseError in one line where it comes too late in this process, or cannot be had on this machine.
    """
    refuse_late_activation("npu-dry")
    prepared = prepare(tell)
    for path in prepared.libraries:
        ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
    module = _import_torch_npu(prepared)
    keep_no_constants()
    return Activated(module, prepared, tuple(refuse_computation()))


def refuse_late_activation(target: str, *, torch_npu_may_be_there: bool = False) -> None:
    """Raise MisuseError where this process has already decided what a graph on `target` would look like.

    `torch_npu_may_be_there`: whether a torch_npu that was imported before, by whoever, is the right one.
    """
    if torch_npu_may_be_there and "torch_npu" in sys.modules:
        return
    for name in DECIDE_AT_IMPORT:
        if name in sys.modules:
            raise MisuseError(
                f"target {target}: {name} was imported before it and has decided that there is no NPU;"
                " start a new process and choose the target first"
            )
    if "torch_npu" in sys.modules:
        raise MisuseError(
            f"target {target}: torch_npu is imported in this process already; start a new one with"
            " TORCH_DEVICE_BACKEND_AUTOLOAD=0"
        )
    taken = sorted(name for name in torch._C._dispatch_get_all_op_names() if name.startswith("npu::"))
    if taken:
        raise MisuseError(
            f"target {target}: {taken[0]} is defined in this process already, and torch_npu cannot be"
            " imported beside it; start a new process and choose the target first"
        )


def _import_torch_npu(prepared: Prepared) -> types.ModuleType:
    os.environ.setdefault("TASK_QUEUE_ENABLE", "0")  # an error is told by the call that makes it
    sys.path.insert(0, str(prepared.package_root))
    try:
        with warnings.catch_warnings(), _quiet():
            warnings.simplefilter("ignore")
            module = importlib.import_module("torch_npu")
            torch.npu.init()  # type: ignore[attr-defined]
            torch.empty(1, device="npu")  # what warns at first use warns here
    except (ImportError, RuntimeError, OSError) as error:
        said = str(error).strip().partition("\n")[0]
        raise MisuseError(
            f"target npu-dry: torch_npu {prepared.version} as {prepared.soc_name} does not start on the stand-in"
            f" ({said}); see the tried versions in references/targets.md"
        ) from error
    return module


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what libraries write to the standard streams inside the block, below Python as well, out of sight.

    torch_npu warns there that CANN's folders and settings are missing, which is what this target is about.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    with open(os.devnull, "w") as nowhere:
        kept = {number: os.dup(number) for number in (1, 2)}
        try:
            for number in kept:
                os.dup2(nowhere.fileno(), number)
            yield
        finally:
            for number, copy in kept.items():
                os.dup2(copy, number)
                os.close(copy)
