"""The first start of a stand-in, in a child process, since incompatible libraries abort the process.

Run as a module with PACKAGE_ROOT VERSION SOC LIBRARY..., this is the child.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch

from fusionkit.errors import MisuseError
from fusionkit.npu.dry.cache import Prepared, Tell
from fusionkit.npu.dry.starting import start
from fusionkit.processes import ending, module_command
from fusionkit.store import write_json

_RECORD = (
    "started.json"  # beside the compiled libraries, whose folder is specific to torch, torch_npu and SoC
)
_STEP = "step: "
_LONGEST_S = 900.0  # half a minute on an emulated machine


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
            module_command("fusionkit.npu.dry.first_start", *words),
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
