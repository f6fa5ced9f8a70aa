"""fusionkit lab and fusionkit doctor: open the notebooks, and say what this machine can do."""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from pathlib import Path

from fusionkit.commands.command import Command, write_line, write_result
from fusionkit.errors import MisuseError


def _configure_lab(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--notebooks-dir", type=Path, metavar="DIR", help="where the notebooks are")
    parser.add_argument("rest", nargs="*", metavar="ARG", help="passed on to jupyter lab, behind --")


def _lab(arguments: argparse.Namespace) -> int:
    if importlib.util.find_spec("jupyterlab") is None:
        raise MisuseError("jupyterlab is not installed; pip install 'fusionkit[notebooks]'")
    folder = arguments.notebooks_dir or Path(__file__).resolve().parents[2] / "notebooks"
    if not folder.is_dir():
        raise MisuseError(f"{folder}: no notebooks there; give their folder with --notebooks-dir")
    return subprocess.call([sys.executable, "-m", "jupyterlab", str(folder), *arguments.rest])


def _configure_doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", help="ask about one target; exit 2 if it is not available")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _doctor(arguments: argparse.Namespace) -> int:
    from fusionkit.npu.target import TARGETS, target_state

    names = TARGETS if arguments.target is None else (arguments.target,)
    states = {name: target_state(name) for name in names}
    if arguments.json:
        write_result({name: {"available": ok, "what": what} for name, (ok, what) in states.items()})
    else:
        for name, (ok, what) in states.items():
            write_line(f"{name:<8}  {'available' if ok else 'not available'}: {what}")
    wanted = arguments.target or "cpu"
    return 0 if states[wanted][0] else 2


LAB = Command(
    "lab",
    "open JupyterLab on the notebooks",
    "fusionkit lab -- --no-browser",
    _configure_lab,
    _lab,
)

DOCTOR = Command(
    "doctor",
    "say for each target whether it is available here, and what to do if not",
    "fusionkit doctor --target cpu",
    _configure_doctor,
    _doctor,
)
