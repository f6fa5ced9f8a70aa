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


BESIDE = GOOD.replace("import torch\n", "import torch\nfrom {module} import EPS\n", 1).replace(
    "1e-6)[0]", "EPS)[0]"
)


class TestModulesBesideTheFile:
    """They are found by their plain names, whatever the working folder is."""

    @pytest.fixture(autouse=True)
    def elsewhere(self, tmp_path_factory, monkeypatch):
        monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
        modules, path = dict(sys.modules), list(sys.path)
        yield
        assert sys.path == path
        for name in sys.modules.keys() - modules.keys():
            del sys.modules[name]

    @staticmethod
    def eps(path):
        (pattern,) = read_pattern_file(path).patterns
        return pattern.replacement.__globals__["EPS"]

    @pytest.mark.parametrize("file", ["norm_constants.py", "norm_constants/__init__.py"])
    @pytest.mark.parametrize("module", ["norm_constants", ".norm_constants"])
    def test_a_module_or_a_package(self, write, tmp_path, file, module):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text("EPS = 1e-5\n")
        assert self.eps(write(BESIDE.replace("{module}", module))) == 1e-5

    @pytest.mark.parametrize("module", ["norms.constants", ".norms.constants"])
    def test_a_module_of_a_package(self, write, tmp_path, module):
        (tmp_path / "norms").mkdir()
        (tmp_path / "norms" / "__init__.py").write_text("from .constants import EPS\n")
        (tmp_path / "norms" / "constants.py").write_text("EPS = 1e-5\n")
        assert self.eps(write(BESIDE.replace("{module}", module))) == 1e-5

    def test_two_files_with_a_module_of_one_name_get_their_own(self, tmp_path):
        for eps in ("1e-05", "1e-06"):
            (tmp_path / eps).mkdir()
            (tmp_path / eps / "norm_constants.py").write_text(f"EPS = {eps}\n")
            (tmp_path / eps / "my_norm_pattern.py").write_text(BESIDE.replace("{module}", "norm_constants"))
        paths = [tmp_path / eps / "my_norm_pattern.py" for eps in ("1e-05", "1e-06", "1e-05")]
        assert [self.eps(path) for path in paths] == [1e-05, 1e-06, 1e-05]
        assert sys.modules["norm_constants"].EPS == 1e-05

    def test_a_module_that_registers_ops_is_executed_once(self, write, tmp_path):
        (tmp_path / "norm_constants.py").write_text(
            "import builtins\nEPS = builtins.norm_runs = 1 + getattr(builtins, 'norm_runs', 0)\n"
        )
        path = write(BESIDE.replace("{module}", "norm_constants"))
        assert [self.eps(path), self.eps(path)] == [1, 1]

    def test_an_imported_standard_module_is_not_replaced(self, write, tmp_path):
        import json

        (tmp_path / "json.py").write_text("raise RuntimeError('not this one')\n")
        read_pattern_file(write(GOOD.replace("import torch\n", "import json\nimport torch\n", 1)))
        assert sys.modules["json"] is json
