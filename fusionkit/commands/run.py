"""fusionkit run and fusionkit lab: execute the notebooks of an investigation, or open them."""

from __future__ import annotations

import argparse
import importlib.util
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from fusionkit.commands.command import Command, write_line, write_report
from fusionkit.errors import MisuseError
from fusionkit.visible import visible

if TYPE_CHECKING:
    from fusionkit.run import PhaseOutcome, RunResult


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "parameters", type=Path, metavar="PARAMETERS.yaml", help="what the notebooks are given"
    )
    parser.add_argument(
        "--notebooks",
        metavar="01,05",
        help="only these, by number or name (default: what the YAML names, else 01 to 09)",
    )
    parser.add_argument(
        "-P",
        dest="overrides",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="put a parameter over the file's; NAME.KEY=VALUE for one key of a dict",
    )
    parser.add_argument("--notebooks-dir", type=Path, metavar="DIR", help="where the notebooks are")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: evidence/<name of the YAML>")
    parser.add_argument("--resume", action="store_true", help="keep phases whose inputs are unchanged")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a phase is INCONCLUSIVE")
    parser.add_argument(
        "--timeout", type=float, default=600.0, metavar="S", help="per notebook (default 600)"
    )
    parser.add_argument(
        "--memory-limit", type=float, default=8.0, metavar="GIB", help="per notebook, resident (default 8)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _execute(arguments: argparse.Namespace) -> int:
    from fusionkit.execution.limits import GIB, Limits
    from fusionkit.run import run_parameters

    names = None if arguments.notebooks is None else [word.strip() for word in arguments.notebooks.split(",")]
    terminated = signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # end kernels and manifest as with ^C
    try:
        result = run_parameters(
            arguments.parameters,
            notebooks=names,
            overrides=arguments.overrides,
            out=arguments.out,
            resume=arguments.resume,
            strict=arguments.strict,
            limits=Limits(arguments.timeout, int(arguments.memory_limit * GIB)),
            notebooks_dir=arguments.notebooks_dir,
            command=["fusionkit", *arguments.argv],
            progress=TerminalProgress(sys.stderr),
        )
    finally:
        signal.signal(signal.SIGTERM, terminated)
    write_report(arguments, result, lambda outcome: write_line(_last_line(outcome)))
    return result.exit_code


def _last_line(result: RunResult) -> str:
    parts = []
    if result.stopped_at is not None:
        parts.append(f"FAIL at {_named(result.stopped_at)}")
        if result.not_run:
            parts.append(f"did not run: {', '.join(result.not_run)}")
    else:
        passed = sum(bool(phase.verdict) for phase in result.phases)
        word = "PASS" if result.exit_code == 0 else "FAIL" if passed else "NOT SHOWN"
        parts.append(f"{word}: {passed} of {len(result.phases)} phases pass")
    if empty := [phase.notebook for phase in result.phases if phase.compared_nothing]:
        parts.append(f"nothing was compared: {', '.join(empty)}")
    if result.inconclusive:
        parts.append(f"INCONCLUSIVE: {', '.join(_named(phase) for phase in result.inconclusive)}")
    return "; ".join([*parts, f"evidence: {result.run_dir}"])


def _named(phase: PhaseOutcome) -> str:
    return f"{phase.notebook} ({phase.reason})"


class TerminalProgress:
    """A line when a notebook starts and one when it ends; on a terminal, one line with the current cell."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._live = stream.isatty()
        self._head = ""

    def notebook_started(self, index: int, total: int, name: str) -> None:
        """`[3/7] 03_register_pattern ...`"""
        self._head = visible(f"[{index}/{total}] {name} ...")
        self._write(self._head if self._live else f"{self._head}\n")

    def cell_started(self, cell: int, cells: int) -> None:
        """`[3/7] 03_register_pattern ... cell 4 of 12`, on a terminal only."""
        if self._live:
            self._write(f"\r\x1b[K{self._head} cell {cell} of {cells}")

    def notebook_ended(self, outcome: str, seconds: float | None) -> None:
        """`[3/7] 03_register_pattern ... PASS 8.2 s`"""
        took = "kept" if seconds is None else f"{seconds:.1f} s"
        clear = "\r\x1b[K" if self._live else ""
        self._write(f"{clear}{self._head} {outcome} {took}\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


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


RUN = Command(
    "run",
    "execute the notebooks with the parameters of a YAML file and leave evidence",
    "fusionkit run parameters/flux-tiny.yaml -P expected_sites.rms_norm=12 --resume",
    _configure,
    _execute,
)

LAB = Command(
    "lab",
    "open JupyterLab on the notebooks",
    "fusionkit lab -- --no-browser",
    _configure_lab,
    _lab,
)
