import sys
from pathlib import Path

import pytest

from fusionkit.errors import MisuseError
from fusionkit.npu.target import use_target
from fusionkit.passes.trial import trial_groups
from fusionkit.pattern_files.pattern_file import read_pattern_file

use_target("cpu")

GOOD = """
import torch
import torch_npu
from fusionkit.patterns import PatternBase


class MyNormPattern:
    @staticmethod
    def create(dtype):
        class Pattern(PatternBase):
            @staticmethod
            def name():
                return "MyNorm"

            @staticmethod
            def inputs():
                return [torch.empty(2, 16, dtype=dtype, device="meta"), torch.empty(16, dtype=dtype, device="meta")]

            @staticmethod
            def pattern(x, w):
                h = x.to(torch.float32)
                return w * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)

            @staticmethod
            def replacement(x, w):
                return torch_npu.npu_rms_norm(x, w, 1e-6)[0]

        return Pattern


MyNormPatternGroup = [MyNormPattern.create(torch.bfloat16)]
"""


@pytest.fixture
def write(tmp_path):
    def make(text, name="my_norm_pattern.py"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return make


def test_a_file_is_loaded_and_its_fusion_told_from_its_replacement(write):
    groups = trial_groups(write(GOOD))
    assert list(groups) == ["rms_norm"]
    assert [pattern.name() for pattern in groups["rms_norm"]] == ["MyNorm"]


def test_nothing_is_left_in_sys_modules(write):
    before = set(sys.modules)
    read_pattern_file(write(GOOD))
    assert not [
        name for name in set(sys.modules) - before if name.startswith(("torch_npu", "fusionkit_pattern"))
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(:\n", r"my_norm_pattern.py line 1: syntax error"),
        ("x = 1\n", "no list named ...PatternGroup"),
        ("import no_such_module\n", "line 1: ModuleNotFoundError: No module named 'no_such_module'"),
        ("\n\nraise RuntimeError('stop')\n", "line 3: RuntimeError: stop"),
        ("class P: pass\nPPatternGroup = [P]\n", "pattern P lacks static method.s. name, inputs, pattern, replacement"),
        ("PPatternGroup = [1]\n", "is no class"),
        (GOOD.replace("def replacement(x, w):", "def replacement(x, y):"), "make them equal"),
        (GOOD.replace(", torch.empty(16, dtype=dtype, device=\"meta\")", ""), r"inputs\(\) gives 1 tensors for 2 arguments"),
        (GOOD.replace("npu_rms_norm(x, w, 1e-6)[0]", "npu_no_such_op(x)"), "does not run on its inputs"),
    ],
)  # fmt: skip
def test_bad_files_are_one_line(write, text, message):
    path = write(text)
    with pytest.raises(MisuseError, match=message) as caught:
        trial_groups(path)
    assert str(path) in str(caught.value) or "pattern" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(MisuseError, match=r"nowhere.py: cannot read \(No such file"):
        read_pattern_file(tmp_path / "nowhere.py")


def test_a_relative_path_keeps_the_line(tmp_path, monkeypatch):
    use_target("cpu")
    monkeypatch.chdir(tmp_path)
    Path("odd_pattern.py").write_text("\nimport no_such_module\n", "utf-8")
    with pytest.raises(MisuseError, match=r"^odd_pattern\.py line 2: ModuleNotFoundError"):
        read_pattern_file(Path("odd_pattern.py"))
