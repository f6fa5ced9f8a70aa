"""fusionkit lab: JupyterLab, whose kernels inherit the environment of the command."""

from __future__ import annotations

import os

import pytest

from fusionkit.cli import main
from fusionkit.processes import BACKEND_AUTOLOAD


def test_the_kernels_of_lab_do_not_load_torch_npu_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jupyterlab")
    started: list[tuple[list[str], str | None]] = []
    monkeypatch.setenv(BACKEND_AUTOLOAD, "1")

    def call(command: list[str]) -> int:
        started.append((command, os.environ.get(BACKEND_AUTOLOAD)))
        return 0

    monkeypatch.setattr("fusionkit.commands.run.subprocess.call", call)
    assert main(["lab", "--", "--no-browser"]) == 0
    ((command, value),) = started
    assert command[1:3] == ["-m", "jupyterlab"]
    assert value == "0"
