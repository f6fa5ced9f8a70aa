"""Patterns that cannot work are refused when they are registered, in one line that says what to do."""

import pytest
import torch
import torch.nn.functional as F

from fusionkit.config import CompilationConfig, select_patterns
from fusionkit.errors import MisuseError
from fusionkit.npu.target import use_target
from fusionkit.passes.compiled import pattern_groups
from fusionkit.passes.match_pass import match_pass_for
from fusionkit.passes.registering import activations_of, scalars_of
from fusionkit.patterns import PatternBase

use_target("cpu")


def make(pattern, *, scalars=None, shapes=((2, 16), (16,))):
    class Trial(PatternBase):
        name = staticmethod(lambda: "Trial")
        inputs = staticmethod(lambda: [torch.empty(*shape, device="meta") for shape in shapes])

    Trial.pattern = staticmethod(pattern)
    Trial.replacement = staticmethod(pattern)
    Trial.scalars = staticmethod(lambda: scalars or {})
    return Trial


def held():
    return torch.ones(16)


TENSOR = held()


def scaled(x, w, eps=1e-6):
    return F.rms_norm(x, (16,), w, eps)


BROKEN = {
    "a scalar that float32 rounds": (
        make(scaled, scalars={"eps": 0.0113377}),
        "scalar 'eps' is not found in its trace",
    ),
    "an unused argument": (make(lambda x, w: x + 1), "argument 'w' is not used"),
    "a tensor of its own": (
        make(lambda x, w: x * w + TENSOR),
        "make it an argument of pattern and replacement",
    ),
    "an exception": (make(lambda x, w: x @ x + w), "cannot be traced (RuntimeError"),
    "a missing key": (make(lambda x, w: {}["x"]), "cannot be traced (KeyError"),
    "endless recursion": (make(lambda x, w: endless(x)), "cannot be traced (RecursionError"),
    "no output": (make(lambda x, w: None), "Trial"),
}


def endless(x):
    return endless(x)


@pytest.mark.parametrize(("pattern", "told"), BROKEN.values(), ids=BROKEN)
def test_a_broken_pattern_is_one_line(pattern, told):
    with pytest.raises(MisuseError) as caught:
        match_pass_for({"trial": [pattern]}, "none")
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_stand_in_that_float32_holds_is_found():
    matcher = match_pass_for({"trial": [make(scaled, scalars={"eps": 0.01171875})]}, "none")
    assert matcher.entries("trial") == 1


def test_the_same_pattern_twice_is_one_entry():
    pattern = make(lambda x, w: torch.sigmoid(x) * w)
    assert match_pass_for({"trial": [pattern, pattern]}, "none").entries("trial") == 1


def test_fusions_of_one_file_are_tried_in_the_files_order(tmp_path):
    text = """
import torch
from fusionkit.patterns import PatternBase

def make(label, fn):
    class P(PatternBase):
        name = staticmethod(lambda: label)
        inputs = staticmethod(lambda: [torch.empty(2, 16, device="meta")])
        pattern = staticmethod(fn)
        replacement = staticmethod(lambda x: torch.relu(x))
    return P

BothPatternGroup = [make("longer", lambda x: torch.exp(torch.sigmoid(x))), make("shorter", lambda x: torch.sigmoid(x))]
"""
    path = tmp_path / "both_pattern.py"
    path.write_text(text)
    config = CompilationConfig(fusion_patterns=select_patterns(("gelu",)), pattern_files=(str(path),))
    assert list(pattern_groups(config)) == ["longer", "shorter", "gelu"]


@pytest.mark.parametrize("error", [MemoryError, EOFError, SystemExit])
@pytest.mark.parametrize(("method", "read"), [("scalars", scalars_of), ("activations", activations_of)])
def test_whatever_a_method_raises_is_one_line(method, read, error):
    def fail():
        raise error("on purpose")

    pattern = make(scaled)
    setattr(pattern, method, staticmethod(fail))
    with pytest.raises(
        MisuseError, match=rf"pattern Trial: {method}\(\) raised {error.__name__}: on purpose at "
    ):
        read(pattern)
