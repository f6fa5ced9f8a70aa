"""Execution of one notebook by papermill in its own kernel; the executed cells are saved even after an error."""

from __future__ import annotations

import contextlib
import logging
import re
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import nbformat
import papermill
from nbclient.exceptions import CellControlSignal, DeadKernelError
from papermill.exceptions import PapermillException, PapermillExecutionError

from fusionkit.errors import FusionKitError, MisuseError, RunBrokenError
from fusionkit.execution.kernel import KERNEL_LOG, KERNEL_NAME, kernel_manager_class, kernel_server
from fusionkit.execution.limits import Limits
from fusionkit.execution.watchdog import Watchdog
from fusionkit.forking import ForkedProcess, ForkServer
from fusionkit.processes import ending
from fusionkit.store import write_text

OnCell = Callable[[int, int], None]
"""Called with the number of the cell that starts, from 1, and the number of cells."""

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_LONGEST = 300


class ExecutedNotebook:
    """The state of a notebook during execution: executed cells, current cell, and the file that they are saved to."""

    def __init__(self, name: str, partial: Path, on_cell: OnCell) -> None:
        self.name, self.partial = name, partial
        self.node: Any = None
        self.cell = 0
        self.log = ""
        self.process: ForkedProcess | None = None
        self._on_cell = on_cell

    def notebook_started(self, notebook: Any) -> None:
        """Hook of nbclient."""
        self.node = notebook
        notebook.metadata.papermill.update(input_path=f"{self.name}.ipynb", output_path=f"{self.name}.ipynb")

    def cell_started(self, cell_index: int, **_: Any) -> None:
        """Hook of nbclient."""
        self.cell = cell_index + 1
        self._on_cell(self.cell, len(self.node.cells))

    def cell_executed(self, **_: Any) -> None:
        """Hook of nbclient: save the executed cells."""
        self.save()

    def read_log(self, path: Path) -> None:
        """Read the last line of the process's output, which explains a kernel that did not start."""
        with contextlib.suppress(OSError):
            self.log = (path.read_text("utf-8", "replace").strip().splitlines() or [""])[-1].strip()

    def save(self) -> None:
        """Save the executed cells, atomically."""
        if self.node is not None:
            writes = cast(Any, nbformat.writes)  # untyped
            write_text(self.partial, writes(self.node) + "\n")


def execute_notebook(
    source: Path,
    partial: Path,
    parameters: Mapping[str, Any],
    limits: Limits,
    on_cell: OnCell,
    server: ForkServer | None = None,
) -> Any:
    """Execute `source` with `parameters`, saving progress to `partial`; returns the executed notebook.

    `server`: a `kernel_server` of several notebooks, which then import torch once; the caller closes it.

    Raises MisuseError when a cell raised one; RunBrokenError when a cell raised anything else, the kernel
    died, or a limit was reached. `partial` then holds the cells up to there, where any was reached.
    """
    state = ExecutedNotebook(source.stem, partial, on_cell)
    watchdog = Watchdog(limits)

    def kernel_started(process: ForkedProcess) -> None:
        state.process = process
        watchdog.watch(process.pid)

    try:
        with (
            kernel_server() if server is None else contextlib.nullcontext(server) as forks,
            tempfile.TemporaryDirectory(prefix="fusionkit-") as scratch,
            _quiet_logger(),
        ):
            try:
                manager = kernel_manager_class(forks, Path(scratch), kernel_started)
                node = _papermill(source, parameters, state, manager)
            finally:
                watchdog.close()
                state.read_log(Path(scratch) / KERNEL_LOG)
        state.save()
    except (PapermillException, DeadKernelError, CellControlSignal, RuntimeError, OSError) as error:
        state.save()
        raise _explained(error, state, watchdog.breach) from error
    return node


def _papermill(source: Path, parameters: Mapping[str, Any], state: ExecutedNotebook, manager: type) -> Any:
    return papermill.execute_notebook(
        str(source).replace("{", "{{").replace("}", "}}"),  # papermill formats the path with the parameters
        None,
        parameters=dict(parameters),
        kernel_name=KERNEL_NAME,
        language="python",
        progress_bar=False,
        kernel_manager_class=manager,
        on_notebook_start=state.notebook_started,
        on_cell_start=state.cell_started,
        on_cell_executed=state.cell_executed,
    )


def _explained(error: Exception, state: ExecutedNotebook, breach: str | None) -> FusionKitError:
    kept = f"; the cells up to there are in {state.partial.name}" if state.node is not None else ""
    where = f"{state.name} cell {state.cell}" if state.cell else f"{state.name}"
    if breach is not None:
        return RunBrokenError(f"{where}: {breach}{kept}")
    if isinstance(error, PapermillExecutionError):
        kind = MisuseError if error.ename == "MisuseError" else RunBrokenError
        prefix = "" if error.ename in ("MisuseError", "RunBrokenError") else f"{error.ename}: "
        return kind(f"{where}: {prefix}{_first_line(error.evalue)}{kept}")
    code = None if state.process is None else state.process.poll()
    if code is not None:
        log = f": {state.log}" if state.log and not state.cell else ""
        memory = "; the machine may be out of memory" if -code == signal.SIGKILL else ""
        return RunBrokenError(f"{where}: the kernel died ({ending(code)}{memory}){log}{kept}")
    return RunBrokenError(f"{where}: {_first_line(str(error))}{kept}")


def _first_line(text: str) -> str:
    lines = [line.strip() for line in _ANSI.sub("", text).splitlines() if line.strip()]
    line = lines[0] if lines else "no message"
    return line if len(line) <= _LONGEST else line[:_LONGEST] + " ..."


@contextlib.contextmanager
def _quiet_logger() -> Iterator[None]:
    """Silence the logger `papermill`: its messages are raised here as one line."""
    logger = logging.getLogger("papermill")
    handler, propagate = logging.NullHandler(), logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate
