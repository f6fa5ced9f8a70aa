"""What several test files only read, made once in a test session: the workers of pytest-xdist share one folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

ROOT = Path(__file__).resolve().parents[1]


def fusionkit(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """One command in a process of its own, as users start it."""
    command = [sys.executable, "-m", "fusionkit.cli", *words]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=900, stdin=subprocess.DEVNULL
    )


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """The folder `name` that `make` fills, once for all workers; whoever comes second waits for the first."""
    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, whole = shared / name, shared / f"{name}.whole"
    with FileLock(shared / f"{name}.lock"):
        if not whole.exists():
            folder.mkdir(exist_ok=True)
            make(folder)
            whole.touch()
    return folder


def why_no_dry(factory: pytest.TempPathFactory) -> str:
    """What the doctor says where npu-dry is not available, else ""."""

    def ask(folder: Path) -> None:
        done = fusionkit("doctor", "--target", "npu-dry")
        (folder / "reason.txt").write_text(done.stdout.strip() if done.returncode else "", "utf-8")

    return (made_once(factory, "npu-dry", ask) / "reason.txt").read_text("utf-8")


def llama_words(factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """How Llama is run: on cpu, with npu-dry beside it where that is available."""
    alone = ("-P", "second_target=") if why_no_dry(factory) else ()
    return ("run", "parameters/llama-tiny.yaml", *alone)


def finished_llama(factory: pytest.TempPathFactory) -> Path:
    """The evidence folder of all seven notebooks on Llama."""

    def run(folder: Path) -> None:
        done = fusionkit(*llama_words(factory), "--out", str(folder / "llama"))
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("PASS: 7 of 7 phases pass")

    return made_once(factory, "finished", run) / "llama"


def llama_capture(factory: pytest.TempPathFactory) -> Path:
    """A capsule of tiny Llama; the command runs in this process, which has loaded torch."""

    def capture(folder: Path) -> None:
        from fusionkit.cli import main

        assert main(["capture", "llama", "--out", str(folder / "llama.json")]) == 0

    return made_once(factory, "captured", capture) / "llama.json"
