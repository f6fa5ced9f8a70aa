"""A throw-away investigation: notebooks that only write a phase, and a YAML for them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from finished_runs import finished_llama, llama_capture
from hypothesis import settings
from nbformat import v4
from shared_investigation import PARAMETERS

from fusionkit.evidence.html import page
from fusionkit.store import write_text

# Tiny tensors: more threads than one only wait for each other, here and in every process that a test starts.
os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile("unhurried", deadline=None)  # a busy machine is no failure
settings.load_profile("unhurried")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`--dist loadfile`, with the files of the same compiles kept together."""
    if config.getoption("dist") != "loadfile":
        return None
    from worker_files import WholeFiles

    return WholeFiles(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files come first, where several workers share them."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        from worker_files import place_of

        items.sort(key=lambda item: place_of(item.nodeid.partition("::")[0]))


LAST_CELL = """\
from fusionkit.evidence.gates import Gate
from fusionkit.evidence.phase_records import PhaseRecord, write_phase
from fusionkit.verdict import Verdict
write_phase(
    run_dir,
    PhaseRecord(
        phase={number}, notebook="{name}", subject=subject, target="cpu", window="before-freezing",
        dtype="bfloat16", gates=[Gate("hits", Verdict.{verdict}, "{reason}")], benefit="adopted",
        switch="enable_rms_norm = True",
    ),
)
"""


class Investigation:
    """Writes notebooks into `notebooks` and parameters into `yaml`; runs go to `out`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.notebooks = root / "notebooks"
        self.yaml = root / "tiny.yaml"
        self.out = root / "out" / "tiny"
        if not self.notebooks.exists():
            self.notebooks.mkdir()
            self.yaml.write_text("subject: flux\nexpected_sites:\n  rms_norm: 12\n")

    def copy_to(self, root: Path) -> Investigation:
        """The whole investigation, its run included, somewhere else."""
        shutil.copytree(self.root, root, dirs_exist_ok=True)
        return Investigation(root)

    def add(
        self,
        name: str,
        *cells: str,
        verdict: str = "PASS",
        reason: str = "12 of 12",
        last: bool = True,
        parameters: str = PARAMETERS,
    ) -> Path:
        """A notebook with these code cells that ends, if `last`, by writing a phase with one gate."""
        number = int(name[:2])
        end = [LAST_CELL.format(number=number, name=name, verdict=verdict, reason=reason)] if last else []
        path = self.notebooks / f"{name}.ipynb"
        tagged = v4.new_code_cell(parameters, metadata={"tags": ["parameters"]})
        node = v4.new_notebook(
            cells=[v4.new_markdown_cell(f"# {name}"), tagged, *map(v4.new_code_cell, [*cells, *end])]
        )
        for position, cell in enumerate(node.cells):
            cell["id"] = f"cell-{position}"
        nbformat.write(node, path)
        return path


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The evidence of all seven notebooks on Llama, shared by all tests that only read it; change copies."""
    return finished_llama(tmp_path_factory)


@pytest.fixture(scope="session")
def llama_capsule(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capsule of tiny Llama on target cpu, shared by tests that only match in its graph."""
    return llama_capture(tmp_path_factory)


@pytest.fixture
def investigation(tmp_path: Path) -> Investigation:
    """An empty investigation."""
    return Investigation(tmp_path)


def execute_here(
    source: Path, partial: Path, parameters: dict[str, Any], limits: Any, on_cell: Any, server: Any
) -> Any:
    """Stands in for execute_notebook: the cells run in this process, which spares a kernel."""
    node = nbformat.read(source, as_version=4)
    names: dict[str, Any] = {}
    for number, cell in enumerate(node.cells, start=1):
        on_cell(number, len(node.cells))
        if cell.cell_type == "code":
            exec(cell.source, names)  # noqa: S102 - the tests' own cells
            names |= parameters if "parameters" in cell.metadata.get("tags", ()) else {}
        write_text(partial, nbformat.writes(node) + "\n")
    return node


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs execute their notebooks in this process, make pages without nbconvert, and do not wait for the disk."""
    spare_kernels(monkeypatch)


def spare_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusionkit.store.os.fsync", lambda handle: None)
    monkeypatch.setattr("fusionkit.execution.notebook.execute_notebook", execute_here)
    monkeypatch.setattr("fusionkit.run.notebook_html", lambda node, fallback_title: page(fallback_title, ""))


@pytest.fixture(scope="session")
def make_spared(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[Callable[[Investigation], None]], Investigation]:
    """Makes an investigation, with runs that need no kernel, once for several tests; take copies of it."""

    def make(fill: Callable[[Investigation], None]) -> Investigation:
        investigation = Investigation(tmp_path_factory.mktemp("shared"))
        with pytest.MonkeyPatch.context() as monkeypatch:
            spare_kernels(monkeypatch)
            monkeypatch.setattr("fusionkit.execution.plan.package_sha256", lambda: "0" * 64)
            fill(investigation)
        return investigation

    return make
