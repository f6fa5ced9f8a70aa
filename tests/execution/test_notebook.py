"""Kernels: whose interpreter they are, what is kept of a notebook, and what ends one."""

from __future__ import annotations

import atexit
import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fusionkit.errors import MisuseError, RunBrokenError
from fusionkit.execution.kernel import kernel_server
from fusionkit.execution.limits import GIB, Limits
from fusionkit.execution.notebook import execute_notebook
from fusionkit.forking import ForkServer

pytestmark = pytest.mark.notebook


@cache
def shared_server() -> ForkServer:
    """One server for all kernels of this module, each of which is a fork of its own."""
    server = kernel_server()
    atexit.register(server.close)
    return server


def execute(source: Path, parameters: dict[str, Any] | None = None, limits: Limits | None = None) -> Any:
    partial = source.parent / "partial.ipynb"
    return execute_notebook(
        source, partial, parameters or {}, limits or Limits(60), lambda cell, cells: None, shared_server()
    )


def texts(node: Any) -> str:
    outputs = [output for cell in node["cells"] for output in cell.get("outputs", ())]
    return "".join("".join(output.get("text", "")) for output in outputs)


def test_the_kernel_is_this_interpreter_with_the_parameters_and_no_user_settings(
    investigation: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kernels = tmp_path / "data" / "kernels" / "python3"
    kernels.mkdir(parents=True)
    (kernels / "kernel.json").write_text(
        json.dumps({"argv": ["/bin/false", "{connection_file}"], "display_name": "x", "language": "python"})
    )
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "data"))
    source = investigation.add(
        "01_{odd}",
        "import os, sys; print(sys.executable, subject, expected_sites, os.environ['IPYTHONDIR'])",
        last=False,
    )
    sites = {"rms_norm": 12, "rope": None}
    node = execute(source, {"subject": "wan", "expected_sites": sites})
    words = texts(node)
    assert words.startswith(f"{sys.executable} wan {sites} ")
    assert "fusionkit-" in words
    kept = json.loads((source.parent / "partial.ipynb").read_text())
    assert texts(kept) == words
    assert str(tmp_path) not in json.dumps(kept["metadata"])
    assert capfd.readouterr() == ("", "")


def test_kernels_on_cpu_start_with_the_modules_and_the_subject_imported(investigation: Any) -> None:
    cell = """\
import sys
from fusionkit.npu.target import current_target
ready = ("fusionkit.phases.study", "diffusers.models.transformers.transformer_flux")
print(current_target(), *(name in sys.modules for name in ready), "fusionkit.phases.unit" in sys.modules)
"""
    source = investigation.add("01_ready", cell, last=False)
    partial = source.parent / "partial.ipynb"
    with kernel_server("cpu", ["fusionkit.phases.study"], "flux") as server:
        node = execute_notebook(source, partial, {}, Limits(60), lambda cell, cells: None, server)
    assert texts(node) == "cpu True True False\n"
    assert texts(execute(source)) == "None False False False\n"


def test_an_import_that_fails_before_kernels_are_forked_is_reported_by_the_notebook(
    investigation: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "no_luck.py").write_text("raise ValueError('no luck')")
    monkeypatch.syspath_prepend(str(tmp_path))
    source = investigation.add("01_a", "import no_luck", last=False)
    partial = source.parent / "partial.ipynb"
    with (
        kernel_server("cpu", ["no_luck"]) as server,
        pytest.raises(RunBrokenError, match="01_a cell 3: ValueError: no luck; the cells"),
    ):
        execute_notebook(source, partial, {}, Limits(60), lambda cell, cells: None, server)


@pytest.mark.parametrize(
    ("cell", "kind", "told"),
    [
        (
            "raise ValueError('first line\\nsecond')",
            RunBrokenError,
            "01_a cell 4: ValueError: first line; the cells",
        ),
        (
            "from fusionkit.errors import MisuseError\nraise MisuseError('p.py: no such class')",
            MisuseError,
            "01_a cell 4: p.py: no such class; the cells",
        ),
        ("import os; os._exit(7)", RunBrokenError, "01_a cell 4: the kernel died (exit code 7); the cells"),
    ],
)
def test_a_notebook_that_breaks_keeps_what_was_reached(
    investigation: Any, cell: str, kind: type[Exception], told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    source = investigation.add("01_a", "print('reached')", cell, "print('never')", last=False)
    with pytest.raises(kind) as caught:
        execute(source)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    kept = json.loads((source.parent / "partial.ipynb").read_text())
    assert texts(kept) == "reached\n"
    assert capfd.readouterr() == ("", "")


def test_what_was_reached_is_kept_after_every_cell(investigation: Any) -> None:
    source = investigation.add("01_a", "print('one')", "print('two')", last=False)
    partial = source.parent / "partial.ipynb"
    seen: list[tuple[int, int, str]] = []

    def on_cell(cell: int, cells: int) -> None:
        kept = texts(json.loads(partial.read_text())) if partial.exists() else ""
        seen.append((cell, cells, kept))

    execute_notebook(source, partial, {}, Limits(60), on_cell, shared_server())
    assert seen[2:] == [(3, 4, ""), (4, 4, "one\n")]


def test_a_kernel_over_its_time_is_killed(investigation: Any) -> None:
    source = investigation.add("01_a", "import time; time.sleep(60)", last=False)
    with pytest.raises(RunBrokenError, match=r"01_a.*: time limit reached: 2 s \(--timeout\)"):
        execute(source, limits=Limits(timeout_s=2))


def test_a_kernel_over_its_memory_is_killed(investigation: Any) -> None:
    source = investigation.add("01_a", "import time; held = b'x' * 300_000_000; time.sleep(60)", last=False)
    with pytest.raises(RunBrokenError, match=r"01_a cell 3: memory limit reached: 0\.\d\d of 0\.25 GiB"):
        execute(source, limits=Limits(memory_bytes=GIB // 4))


def test_limits_must_allow_something() -> None:
    for limits in ({"timeout_s": 0.0}, {"memory_bytes": -1}, {"timeout_s": float("nan")}):
        with pytest.raises(MisuseError, match="above 0"):
            Limits(**limits)
