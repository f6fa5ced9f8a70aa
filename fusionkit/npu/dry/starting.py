"""The start of torch_npu on the stand-in: load its libraries, import torch_npu, query the device."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import sys
import types
import warnings
from collections.abc import Iterator

import torch

from fusionkit.errors import MisuseError
from fusionkit.npu.dry.cache import Prepared, Tell


def start(prepared: Prepared, on_step: Tell = lambda _: None) -> types.ModuleType:
    """Load the stand-in and import torch_npu on it; returns the module. `on_step` is called before each step.

    Raises MisuseError if torch_npu does not start. Incompatible libraries abort the process instead.
    """
    for path in prepared.libraries:
        on_step(f"loading {path.name}")
        ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
    os.environ.setdefault("TASK_QUEUE_ENABLE", "0")  # errors are reported by the call that causes them
    if str(prepared.package_root) not in sys.path:  # an installed torch_npu stays where it is
        sys.path.insert(0, str(prepared.package_root))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            on_step("importing torch_npu")
            module = importlib.import_module("torch_npu")
            on_step("starting the device")
            torch.npu.init()  # type: ignore[attr-defined]
            torch.empty(1, device="npu")  # first-use warnings appear here
    except (ImportError, RuntimeError, OSError) as error:
        said = str(error).strip().partition("\n")[0]
        raise MisuseError(
            f"target npu-dry: torch_npu {prepared.version} as {prepared.soc_name} does not start on the stand-in"
            f" ({said}); see the tried versions in references/targets.md"
        ) from error
    return module


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress output to the standard streams inside the block, also from C code.

    torch_npu warns there about missing folders and settings of CANN, which this target lacks by design.
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
            sys.stdout.flush()  # what Python has buffered meanwhile goes the same way
            sys.stderr.flush()
            for number, copy in kept.items():
                os.dup2(copy, number)
                os.close(copy)
