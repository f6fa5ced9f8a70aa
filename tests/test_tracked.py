"""Every source file of the package is tracked: a too broad ignore rule must not swallow one."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def test_no_source_file_is_ignored():
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    words = [
        "git",
        "ls-files",
        "--others",
        "--ignored",
        "--exclude-standard",
        "fusionkit",
        "tests",
        "notebooks",
        "tools",
    ]
    ignored = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [
        name for name in ignored if name.endswith((".py", ".ipynb", ".yaml", ".html", ".j2", ".css"))
    ] == []
