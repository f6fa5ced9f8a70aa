"""Without Chromium the browser tests are skipped with a reason, and fail where they are required."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ONE_TEST = "tests/browser/test_archived_pages.py::test_hostile_rows_do_not_reach_the_network_or_the_page"


@pytest.mark.parametrize(
    ("required", "code", "said"),
    [("0", 0, r"1 skipped in"), ("1", 1, r"1 error in")],
)
def test_a_missing_browser_is_skipped_or_fails(tmp_path, required, code, said):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", ONE_TEST],
        cwd=ROOT,
        env=os.environ | {"PATH": str(tmp_path), "FUSIONKIT_REQUIRE_BROWSER": required, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == code, done.stdout
    assert re.search(said, done.stdout)
    assert "apt-get install chromium" in done.stdout
