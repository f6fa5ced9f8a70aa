"""fusionkit lab: open the notebooks."""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from pathlib import Path

from fusionkit.commands.command import Command
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


LAB = Command(
    "lab",
    "open JupyterLab on the notebooks",
    "fusionkit lab -- --no-browser",
    _configure_lab,
    _lab,
)
