"""The generated test file passes for a right pattern, and each of its cases fails for the fault that it is there for."""

import re
import subprocess
import sys

from fusionkit.pattern_files.unit_tests import unit_test_text

FILE = """
import torch
from fusionkit.patterns import PatternBase

CALLS = []


def inputs(dtype=torch.float32):
    return [torch.empty(4, 8, dtype=dtype, device="meta")]


def scaled(x, half=4, eps=1e-6):
    return torch.tanh(x[:, :half]) * x[:, half:] + eps


def doubled(x):
    return torch.tanh(x) + x


def in_place(x):
    result = torch.tanh(x) + x
    x.mul_(1.0001)
    return result


def at_minus_one(x):
    return torch.where((x == -1).all(-1, keepdim=True), 0.0, torch.tanh(x) + x)


def counting(x):
    CALLS.append(x)
    return (torch.tanh(x) + x) * (1 + 1e-7 * len(CALLS))


def variant(called, search, replacement, scalars, dtype=torch.float32):
    class Pattern(PatternBase):
        name = staticmethod(lambda: called)
        inputs = staticmethod(lambda: globals()["inputs"](dtype))

    Pattern.scalars = staticmethod(lambda: scalars)
    Pattern.pattern, Pattern.replacement = staticmethod(search), staticmethod(replacement)
    return Pattern


TrialPatternGroup = [{variant}]
"""
STAND_INS = "{'half': 4, 'eps': 0.01171875}"


def outcome(tmp_path, name, variant):
    file = tmp_path / "trial_pattern.py"
    file.write_text(FILE.replace("{variant}", variant))
    test = tmp_path / "test_trial_pattern.py"
    test.write_text(unit_test_text(name, file, registered=False))
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return set(re.findall(r"^FAILED \S*::(\w+)", done.stdout, re.M)), done.stdout


def test_a_right_pattern_passes_with_a_slice_bound_and_an_eps(tmp_path):
    failed, text = outcome(
        tmp_path, "Scaled.float32", f"variant('Scaled.float32', scaled, scaled, {STAND_INS})"
    )
    assert not failed, text
    assert "10 passed" in text


def test_an_input_that_is_changed(tmp_path):
    failed, text = outcome(tmp_path, "InPlace", "variant('InPlace', doubled, in_place, {})")
    assert "test_no_input_is_changed" in failed, text


def test_a_value_that_only_minus_one_shows(tmp_path):
    failed, text = outcome(tmp_path, "MinusOne", "variant('MinusOne', doubled, at_minus_one, {})")
    assert failed == {"test_edge_value"}, text
    assert re.findall(r"^FAILED \S*test_edge_value.(\S+?)-MinusOne", text, re.M) == ["-1"]


def test_another_dtype(tmp_path):
    failed, text = outcome(
        tmp_path, "Wide", "variant('Wide', doubled, lambda x: doubled(x.float()), {}, torch.bfloat16)"
    )
    assert "test_shape_dtype_and_device_are_kept" in failed, text


def test_calls_that_differ(tmp_path):
    failed, text = outcome(tmp_path, "Counting", "variant('Counting', doubled, counting, {})")
    assert "test_repeated_calls_are_equal" in failed, text
