"""Activation of npu-dry: prepare the cache, import torch_npu on the stand-in, refuse every computation.

The first start of a stand-in happens in a child process, since incompatible libraries abort the process. Run as a
module with PACKAGE_ROOT VERSION SOC LIBRARY..., this is the child.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import subprocess
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from fusionkit.errors import MisuseError
from fusionkit.npu.dry.cache import Prepared, Tell, prepare
from fusionkit.npu.dry.refusal import keep_no_constants, refuse_computation
from fusionkit.npu.order import refuse_late_activation
from fusionkit.processes import ending, module_command
from fusionkit.store import write_json

# Beside the compiled libraries, whose folder is specific to torch, torch_npu and SoC.
_RECORD = "started.json"
_STEP = "step: "
_LONGEST_S = 900.0  # half a minute on an emulated machine


def activate(tell: Tell) -> tuple[types.ModuleType, list[Any]]:
    """The imported torch_npu, and the libraries that keep its kernels from computing.

    Raises MisuseError if activation comes too late in this process, is not possible on this machine, or aborts the
    child process of the first start.
    """
    refuse_late_activation("npu-dry")
    prepared = prepare(tell)
    try_first_start(prepared, tell)
    with quiet():
        module = start(prepared)
    keep_no_constants()
    return module, refuse_computation()


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


def try_first_start(prepared: Prepared, tell: Tell = lambda _: None) -> None:
    """Start `prepared` in a child process, unless it has started before.

    Raises MisuseError with the child's signal or exit code, the last loaded library, and its last line of output.
    """
    record = prepared.libraries[0].parent / _RECORD
    if record.is_file():
        return
    tell("starting torch_npu on the stand-in for the first time")
    words = [str(prepared.package_root), prepared.version, prepared.soc_name, *map(str, prepared.libraries)]
    try:
        done = subprocess.run(
            module_command("fusionkit.npu.dry.starting", *words),
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=_LONGEST_S,
        )
    except subprocess.TimeoutExpired as error:
        raise MisuseError(
            f"target npu-dry: torch_npu {prepared.version} does not start on the stand-in within {_LONGEST_S:g} s"
        ) from error
    if done.returncode:
        raise MisuseError(_why(prepared, done))
    write_json(record, {"torch": torch.__version__, "torch_npu": prepared.version})


def _why(prepared: Prepared, done: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    refused = [line for line in lines if line.startswith("target npu-dry: ")]
    if refused and done.returncode > 0:
        return refused[-1]
    steps = [line.removeprefix(_STEP) for line in done.stdout.splitlines() if line.startswith(_STEP)]
    said = next(
        (line for line in lines if line.startswith("what():")), lines[-1] if lines else "it said nothing"
    )
    return (
        f"target npu-dry: torch_npu {prepared.version} does not start on the stand-in beside torch {torch.__version__}:"
        f" the process ended with {ending(done.returncode)} while {steps[-1] if steps else 'importing torch'}"
        f" ({said.removeprefix('what():').strip()}); see the tried versions in references/targets.md"
    )


def _start_here(words: list[str]) -> None:
    root, version, soc_name, *libraries = words
    prepared = Prepared(Path(root), tuple(map(Path, libraries)), version, soc_name)
    try:
        start(prepared, _tell_parent)
    except MisuseError as error:
        sys.stderr.write(f"{error}\n")
        sys.stderr.flush()
        os._exit(2)
    os._exit(0)  # skip torch_npu's actions at Python's exit, which are not tested here


def _tell_parent(step: str) -> None:
    sys.stdout.write(f"{_STEP}{step}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _start_here(sys.argv[1:])
