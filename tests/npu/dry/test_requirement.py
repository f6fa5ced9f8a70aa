"""Without npu-dry its tests are skipped with the doctor's reason, counted in the output; where required they fail."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from _pytest.outcomes import Failed, Skipped
from dry_processes import process_environment, unavailable

ROOT = Path(__file__).resolve().parents[3]
ONE_TEST = "tests/npu/dry/test_activation.py::TestActivated::test_the_target_belongs_to_the_process"


def test_a_missing_compiler_skips_with_the_reason(tmp_path: Path) -> None:
    without = {"PATH": str(tmp_path), "CC": "", "FUSIONKIT_REQUIRE_DRY": "", "PYTEST_ADDOPTS": ""}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", ONE_TEST],
        cwd=ROOT,
        env=process_environment(without),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout
    assert re.search(r"1 skipped in", done.stdout)
    assert "needs a C compiler and finds none (CC, cc, gcc, clang)" in done.stdout


@pytest.mark.parametrize(
    ("required", "raised"), [("1", Failed), ("0", Skipped), ("", Skipped), (None, Skipped)]
)
def test_where_it_is_required_it_fails(
    monkeypatch: pytest.MonkeyPatch, required: str | None, raised: type[BaseException]
) -> None:
    monkeypatch.delenv("FUSIONKIT_REQUIRE_DRY", raising=False)
    if required is not None:
        monkeypatch.setenv("FUSIONKIT_REQUIRE_DRY", required)
    with pytest.raises(raised, match="no wheel"):
        unavailable("no wheel")
