"""Files of MindIE-SD's own form load from anywhere, and leave nothing behind."""

import sys
import types

import pytest
import torch
from foreign_files import FILES, write_foreign
from torch import nn

from fusionkit.cli import main
from fusionkit.config import CompilationConfig, select_patterns
from fusionkit.errors import MisuseError
from fusionkit.npu.target import use_target
from fusionkit.passes.compiled import compile_subject
from fusionkit.passes.trial import trial_groups
from fusionkit.pattern_files.pattern_file import read_pattern_file
from fusionkit.pattern_files.stand_ins import ForeignName
from fusionkit.patterns import PatternBase
from fusionkit.subjects.build import Subject

use_target("cpu")

FUSIONS = {
    "npu cast": "rms_norm",
    "aten cast": "rms_norm",
    "muls_add": "MulAddPattern-torch.bfloat16",
    "layernorm_scale_shift": "ada_layer_norm",
    "rotary_position_embedding": "rope",
    "own check": "MulAddPattern-torch.bfloat16",
}


def state():
    return set(sys.modules), list(sys.meta_path), hasattr(torch, "npu"), list(sys.path)


@pytest.mark.parametrize("what", FILES)
def test_the_file_is_imported_and_leaves_nothing_behind(tmp_path, what):
    import mindiesd_of_nobody  # noqa: F401

    before = state()
    (pattern,) = read_pattern_file(write_foreign(tmp_path, what)).patterns
    assert issubclass(pattern, PatternBase)
    assert state() == before


@pytest.fixture(autouse=True)
def unrelated_module(monkeypatch):
    """A module whose name only begins like MindIE-SD's stays where it is."""
    monkeypatch.setitem(sys.modules, "mindiesd_of_nobody", sys)


@pytest.mark.parametrize(("what", "fusion"), FUSIONS.items())
def test_the_fusion_is_told_from_what_the_replacement_calls(tmp_path, what, fusion):
    assert list(trial_groups(write_foreign(tmp_path, what))) == [fusion]


def test_a_name_that_the_kit_lacks_fails_when_it_is_called_and_is_named(tmp_path):
    with pytest.raises(
        MisuseError, match=r"mindiesd\.layers\.scale_shift\.swiglu is called, but fusionkit does not"
    ) as caught:
        trial_groups(write_foreign(tmp_path, "unknown name"))
    assert "\n" not in str(caught.value)


def test_a_file_that_registers_itself_is_loaded(tmp_path):
    path = write_foreign(tmp_path, "muls_add")
    text = path.read_text().replace("import PatternBase", "import PatternBase, register_pattern_to_pass")
    path.write_text(f"{text}\nregister_pattern_to_pass(MulAddPatternGroup)\n")
    assert len(read_pattern_file(path).patterns) == 1


def test_an_imported_mindiesd_is_there_again_afterwards(tmp_path, monkeypatch):
    own = type(sys)("mindiesd")
    monkeypatch.setitem(sys.modules, "mindiesd", own)
    read_pattern_file(write_foreign(tmp_path, "unknown name"))
    assert sys.modules["mindiesd"] is own
    assert "mindiesd.layers" not in sys.modules


def test_a_module_beside_the_file_is_the_real_one(tmp_path):
    (tmp_path / "shapes.py").write_text(
        "from ..passes.register_pattern_to_pass import PatternBase\nWIDTH = 24\n"
    )
    path = write_foreign(tmp_path, "muls_add")
    path.write_text(
        path.read_text().replace("npu_available = False", "from .shapes import WIDTH, PatternBase as Same", 1)
    )
    path.write_text(f"{path.read_text()}\nassert WIDTH == 24 and Same is PatternBase\n")
    assert len(read_pattern_file(path).patterns) == 1


def test_two_files_of_one_text_in_two_places_are_two(tmp_path):
    for name, width in (("a", 1), ("b", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "shapes.py").write_text(f"WIDTH = {width}\n")
        path = write_foreign(tmp_path / name, "muls_add")
        path.write_text(
            f"from .shapes import WIDTH\n{path.read_text()}\nMulAddPatternGroup[0].width = WIDTH\n"
        )
        assert read_pattern_file(path).patterns[0].width == width


class MulAdd(nn.Module):
    def forward(self, x, y):
        return x * 1.5 + y


@pytest.mark.parametrize(("shape", "status"), [((2, 8), "hit"), ((2, 4, 8), "refused")])
def test_a_classes_own_extra_check_is_asked(tmp_path, shape, status):
    inputs = {name: torch.randn(shape).bfloat16() for name in "xy"}
    config = CompilationConfig(
        fusion_patterns=select_patterns(()), pattern_files=(str(write_foreign(tmp_path, "own check")),)
    )
    (match,) = compile_subject(Subject(MulAdd(), inputs), config).matches
    assert match.status == status
    assert ("extra_check" in str(match.reason)) == (status == "refused")


def replaced(path, model, inputs):
    config = CompilationConfig(fusion_patterns=select_patterns(()), pattern_files=(str(path),))
    compiled = compile_subject(Subject(model, inputs), config)
    assert [match.status for match in compiled.matches] == ["hit"]
    return compiled


class Modulated(nn.Module):
    def forward(self, x, scale, shift):
        h = nn.functional.layer_norm(x, [16], eps=1e-6)
        return h * (scale + 1).unsqueeze(1) + shift.unsqueeze(1)


class Rotated(nn.Module):
    def forward(self, x, cos, sin):
        real, imaginary = x.reshape(*x.shape[:-1], -1, 2).unbind(-1)
        return x * cos + torch.stack([-imaginary, real], dim=-1).flatten(3) * sin


@pytest.mark.parametrize(
    ("what", "model", "shapes"),
    [
        ("layernorm_scale_shift", Modulated, {"x": (2, 4, 16), "scale": (2, 16), "shift": (2, 16)}),
        ("rotary_position_embedding", Rotated, {"x": (2, 4, 3, 8), "cos": (1, 4, 1, 8), "sin": (1, 4, 1, 8)}),
        ("muls_add", MulAdd, {"x": (3, 8), "y": (3, 8)}),
    ],
)
def test_what_the_kit_gives_for_a_foreign_function_computes_what_the_pattern_does(
    tmp_path, what, model, shapes
):
    torch.manual_seed(0)
    inputs = {name: torch.randn(shape).bfloat16() for name, shape in shapes.items()}
    compiled = replaced(write_foreign(tmp_path, what), model(), inputs)
    (actual,) = compiled.outcome.outputs
    exact = model()(*(value.double() for value in inputs.values()))
    torch.testing.assert_close(actual.double(), exact, rtol=2**-6, atol=2**-5)


def test_an_unknown_rotary_mode_is_one_line(tmp_path):
    path = write_foreign(tmp_path, "rotary_position_embedding")
    path.write_text(path.read_text().replace("rotated_interleaved", "rotated_odd"))
    with pytest.raises(
        MisuseError, match="rotated_mode 'rotated_odd'; use rotated_half or rotated_interleaved"
    ):
        trial_groups(path)


class TestForeignName:
    def test_it_may_be_held_and_looked_into(self):
        assert isinstance(ForeignName("mindiesd").layers.thing, ForeignName)

    def test_its_use_is_refused_with_its_name(self):
        name = ForeignName("mindiesd").layers
        with pytest.raises(MisuseError, match=r"^mindiesd\.layers\.x is called"):
            name.x(1)
        with pytest.raises(MisuseError, match=r"^mindiesd\.layers is used as a condition"):
            bool(name)
        with pytest.raises(MisuseError, match=r"^mindiesd\.layers is subclassed"):
            types.new_class("X", (name,))


@pytest.mark.parametrize(
    "use",
    [
        "x * EPS",
        "EPS + x",
        "torch.add(x, EPS)",
        "torch.ops.aten.add.Scalar(x, EPS)",
        "x[EPS]",
        "x * float(EPS)",
    ],
)
def test_a_foreign_number_in_a_pattern_is_named(tmp_path, use):
    path = write_foreign(tmp_path, "muls_add")
    text = path.read_text().replace("from ...layers import muls_add", "from ...layers import muls_add, EPS")
    path.write_text(text.replace("return x * 1.5 + y", f"return {use} + y"))
    config = CompilationConfig(fusion_patterns=select_patterns(()), pattern_files=(str(path),))
    inputs = {name: torch.randn(2, 8).bfloat16() for name in "xy"}
    with pytest.raises(MisuseError, match=r"mindiesd\.layers\.EPS") as caught:
        compile_subject(Subject(MulAdd(), inputs), config)
    assert "\n" not in str(caught.value)


def test_a_file_may_have_any_name(tmp_path):
    path = write_foreign(tmp_path, "muls_add").rename(tmp_path / "my.own-pattern v2.py")
    assert len(read_pattern_file(path).patterns) == 1


def test_explain_says_of_a_cast_of_another_torch_that_it_is_why_nothing_hits(tmp_path, capsys, llama_capsule):
    path = write_foreign(tmp_path, "npu cast")
    assert main(["explain", str(llama_capsule), "--pattern", str(path)]) == 1
    told = capsys.readouterr().out
    assert "0 hits" in told
    assert "npu._npu_dtype_cast" in told
