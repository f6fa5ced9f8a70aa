"""Inputs on which the kit once went wrong, where they lie beside the project; each kind has a test of its own elsewhere."""

import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).resolve().parents[3] / "shared" / "cases" / "match"
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="the inputs are not beside the project")

# (folder, arguments of the command, words of its output)
ROWS = {
    "a dtype without code": ("unsupported-dtype", "explain case:build_e8m0 --pattern scale_mm_pattern.py", "unsupported_dtype: "),
    "a complex operand": ("unsupported-dtype", "explain case:build_complex --pattern scale_mm_pattern.py", "dtype complex64"),
    "the other functional form": ("mutable-op", "explain case:build --pattern norm_quant_af_pattern.py", "higher_order_form: "),
    "a later place": ("insertion-order", "explain case:build_late --pattern add_norm_quant_pattern.py", ": 1 hits, "),
    "a cycle": ("insertion-order", "explain case:build --pattern add_norm_quant_pattern.py", "is computed from getitem_1"),
    "a norm of a view": (".", "hits norm_of_a_view:build --patterns rms_norm", "rms_norm  PASS  1 hits of 1 sites"),
}  # fmt: skip


@pytest.mark.parametrize(("folder", "command", "words"), ROWS.values(), ids=ROWS)
def test_the_right_answer_is_given(folder, command, words):
    run = [sys.executable, "-m", "fusionkit.cli", *command.split()]
    done = subprocess.run(run, cwd=CASES / folder, capture_output=True, text=True)
    assert words in done.stdout, done.stdout + done.stderr
