"""What replacements look like as text: the original kept, the switch that is asked, what is refused and why."""

from __future__ import annotations

import ast
import importlib.util
import random
import subprocess
from pathlib import Path

import pytest

from fusionkit.identify.replacing import Refused, Replacement, replace_site
from fusionkit.identify.scan_file import sites_of_file
from fusionkit.identify.source.files import SourceFile

NORM = """
import torch
from torch import nn


class Norm(nn.Module):
    def __init__(self, size, config=None, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps
        self.config = config

    def forward(self, x):
        # kept as it is
        dtype = x.dtype
        x = x.float()  # up
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * x.to(dtype)
"""


def results(text: str, path: Path, op: str) -> list[Replacement | Refused]:
    file = SourceFile(path, text)
    return [replace_site(file, site, path.parent) for site in sites_of_file(file) if site.op == op]


def only(text: str, path: Path, op: str) -> Replacement:
    (result,) = results(text, path, op)
    assert isinstance(result, Replacement), result
    return result


def refusal(text: str, tmp_path: Path, op: str) -> str:
    (result,) = results(text, tmp_path / "model.py", op)
    assert isinstance(result, Refused)
    return result.reason


def sample() -> list[Path]:
    found: list[Path] = []
    for package, pattern in (("transformers", "modeling_*.py"), ("diffusers", "*.py")):
        folder = Path(importlib.util.find_spec(package).origin).parent / "models"
        found += sorted(folder.rglob(pattern))
    return random.Random(5).sample(found, 40)


class Kept(ast.NodeVisitor):
    """Statements in order; of a branch that the original does not have only what stands behind else."""

    def __init__(self, original: set[str]) -> None:
        self.original, self.seen = original, []

    def visit_If(self, node: ast.If) -> None:
        text = ast.unparse(node.test)
        added = "npu_available()" in text or "torch_npu is not None" in text
        if added and text not in self.original:
            for item in node.orelse:
                self.visit(item)
        else:
            self.seen.append(text)
            self.generic_visit(node)

    def generic_visit(self, node: ast.AST) -> None:
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.Return, ast.Expr, ast.AnnAssign)):
            self.seen.append(ast.unparse(node))
        super().generic_visit(node)


def kept(tree: ast.Module, original: set[str]) -> list[str]:
    visitor = Kept(original)
    visitor.visit(tree)
    return visitor.seen


@pytest.mark.parametrize("path", sample(), ids=lambda path: path.stem)
def test_else_branches_are_the_original(path: Path):
    file = SourceFile(path, path.read_text("utf-8"))
    tests = {ast.unparse(node.test) for node in ast.walk(file.tree) if isinstance(node, ast.If)}
    before = kept(file.tree, tests)
    for site in sites_of_file(file):
        result = replace_site(file, site)
        if isinstance(result, Replacement):
            assert kept(ast.parse(result.new_text), tests) == before, (site.symbol, site.op)
        else:
            assert "\n" not in result.reason


def test_diff_applies(tmp_path: Path):
    path = tmp_path / "model.py"
    path.write_text(NORM)
    result = only(NORM, path, "npu_rms_norm")
    subprocess.run(["patch", "-p1", "--silent"], input=result.patch.data, cwd=tmp_path, check=True)
    assert path.read_text() == result.new_text


def test_a_loose_file_imports_torch_npu_guardedly(tmp_path: Path):
    result = only(NORM, tmp_path / "model.py", "npu_rms_norm")
    assert result.condition.startswith("torch_npu is not None")
    assert "try:\n    import torch_npu\nexcept ImportError:\n    torch_npu = None\n" in result.new_text
    assert "            x = x.float()  # up\n" in result.new_text


def test_a_switch_of_the_project_is_asked(tmp_path: Path):
    (tmp_path / "other.py").write_text(
        "def f(config, x):\n    if config.use_npu_rmsnorm:\n        return x\n"
    )
    result = only(NORM, tmp_path / "model.py", "npu_rms_norm")
    assert result.condition.startswith("self.config.use_npu_rmsnorm")
    assert any("other.py:2" in note for note in result.notes)


def test_a_switch_of_another_op_is_not_asked(tmp_path: Path):
    (tmp_path / "other.py").write_text(
        "def f(config, x):\n    if config.use_fused_swiglu:\n        return x\n"
    )
    assert "use_fused_swiglu" not in only(NORM, tmp_path / "model.py", "npu_rms_norm").condition


def test_names_are_imported_from_the_library_that_the_file_is_of():
    path = (
        Path(importlib.util.find_spec("diffusers").origin).parent / "models/transformers/transformer_flux.py"
    )
    text = path.read_text("utf-8")
    made = [item for item in results(text, path, "npu_fusion_attention") if isinstance(item, Replacement)]
    assert made
    assert all("from ...utils import is_torch_npu_available\n" in item.new_text for item in made)


GATE = '''
import torch
import torch.nn.functional as F


def gate(h):
    a, b = h.chunk(2, dim=-1)
    return {product}
'''  # fmt: skip


def test_a_split_tensor_is_handed_over_where_its_first_half_is_activated(tmp_path: Path):
    result = only(GATE.format(product="F.silu(a) * b"), tmp_path / "m.py", "npu_swiglu")
    assert "torch_npu.npu_swiglu(h, dim=-1)" in result.new_text


def test_the_second_half_comes_first_for_swiglu(tmp_path: Path):
    result = only(GATE.format(product="a * F.silu(b)"), tmp_path / "m.py", "npu_swiglu")
    assert "torch_npu.npu_swiglu(torch.cat((b, a), dim=-1), dim=-1)" in result.new_text


@pytest.mark.parametrize(("product", "left"), [("F.gelu(a) * b", True), ("a * F.gelu(b)", False)])
def test_geglu_is_told_which_half(product: str, left: bool, tmp_path: Path):
    result = only(GATE.format(product=product), tmp_path / "m.py", "npu_geglu")
    assert f"npu_geglu(h, dim=-1, approximate=0, activate_left={left})[0]" in result.new_text.replace(
        "\n", ""
    )


def test_a_clamp_in_the_gate_is_refused(tmp_path: Path):
    assert "clamp" in refusal(GATE.format(product="F.silu(a.clamp(max=7)) * b"), tmp_path, "npu_swiglu")


def test_an_activation_that_is_read_again_is_refused(tmp_path: Path):
    text = GATE.format(product="c * b, c").replace("    return", "    c = F.silu(a)\n    return")
    assert "elsewhere" in refusal(text, tmp_path, "npu_swiglu")


def test_a_string_over_several_lines_is_refused(tmp_path: Path):
    text = NORM.replace(
        "        x = x.float()  # up\n", '        print("""two\nlines""")\n        x = x.float()\n'
    )
    assert "several lines" in refusal(text, tmp_path, "npu_rms_norm")


def test_the_mean_of_another_dimension_is_refused(tmp_path: Path):
    assert "last dimension" in refusal(NORM.replace("mean(-1", "mean(1"), tmp_path, "npu_rms_norm")


ATTENTION = """
import torch


def attend(q, k, v, mask, bias):
    scores = torch.matmul(q, k.transpose(-1, -2)) * 0.125
    {step}
    weights = scores.softmax(dim=-1)
    return torch.matmul(weights, v)
"""


@pytest.mark.parametrize(
    ("step", "mask"),
    [
        ("scores = scores.masked_fill(mask, -1e9)", "drop_mask = mask\n"),
        ("scores = scores.masked_fill(~mask, -1e9)", "drop_mask = mask.logical_not()\n"),
        ("scores = torch.where(mask, scores, -1e9)", "drop_mask = mask.logical_not()\n"),
        ("scores = scores + mask", "drop_mask = mask < 0\n"),
    ],
)
def test_masks_come_to_drop_where_true(step: str, mask: str, tmp_path: Path):
    result = only(ATTENTION.format(step=step), tmp_path / "m.py", "npu_fusion_attention")
    assert mask in result.new_text
    assert "scale=0.125" in result.new_text


@pytest.mark.parametrize("returned", [False, True])
def test_only_weights_that_are_returned_are_told_to_be_none(returned: bool, tmp_path: Path):
    text = ATTENTION.format(step="pass")
    if returned:
        text = text.replace(
            "return torch.matmul(weights, v)", "out = torch.matmul(weights, v)\n    return out, weights"
        )
    result = only(text, tmp_path / "m.py", "npu_fusion_attention")
    assert ("weights = None" in result.new_text) is returned
    assert any("returns None for the attention weights" in note for note in result.notes) is returned


def test_a_bias_of_the_scores_is_refused(tmp_path: Path):
    assert "bias" in refusal(
        ATTENTION.format(step="scores = scores + bias"), tmp_path, "npu_fusion_attention"
    )


def test_a_soft_cap_is_refused(tmp_path: Path):
    step = "scores = torch.tanh(scores / 50.0) * 50.0"
    assert "tanh" in refusal(ATTENTION.format(step=step), tmp_path, "npu_fusion_attention")


def test_causal_attention_gets_a_mask_of_its_own(tmp_path: Path):
    text = "import torch.nn.functional as F\nimport torch\ndef f(q, k, v):\n"
    text += "    return F.scaled_dot_product_attention(q, k, v, is_causal=True)\n"
    result = only(text, tmp_path / "m.py", "npu_fusion_attention")
    assert ".triu(1)" in result.new_text
    assert "atten_mask=drop_mask" in result.new_text
    assert any("sparse_mode 2" in note for note in result.notes)
    assert not any("float mask" in note for note in result.notes)  # there is none


TURNED = """
import torch


def rotate(x, cos, sin, near, other):
    cos, sin = cos[None, None, :, :], sin[None, None, :, :]
    if {test}:
        a, b = x.reshape(*x.shape[:-1], -1, 2).unbind(-1)
        turned = torch.stack([-b, a], dim=-1).flatten(3)
    else:
        a, b = x.reshape(*x.shape[:-1], 2, -1).unbind(-2)
        turned = torch.cat([-b, a], dim=-1)
    {between}
    return x.float() * cos + turned.float() * sin
"""


@pytest.mark.parametrize("test", ["near == -1", "near and not other"])
def test_the_test_that_chooses_neighbours_chooses_the_mode(test: str, tmp_path: Path):
    new = only(TURNED.format(test=test, between="pass"), tmp_path / "model.py", "npu_rotary_mul").new_text
    assert f'rotary_mode="interleave" if {test} else "half"' in new


@pytest.mark.parametrize(
    ("test", "between", "reason"),
    [
        ("near == -1", "near = 2", "changes before"),
        ("other.pop()", "pass", "cannot be asked again"),
    ],
)
def test_a_test_that_means_something_else_later_is_refused(
    test: str, between: str, reason: str, tmp_path: Path
):
    assert reason in refusal(TURNED.format(test=test, between=between), tmp_path, "npu_rotary_mul")
