"""The float32 comparison counts only patterns that hit in float32, if need be by twins of their variants."""

import pytest
import torch
from torch import nn
from trial_files import write_trial

from fusionkit.config import CompilationConfig, select_patterns
from fusionkit.match.whole_model import compare_in_float32
from fusionkit.npu.target import use_target
from fusionkit.passes.compiled import compile_subject
from fusionkit.subjects.build import Subject
from fusionkit.verdict import Verdict

use_target("cpu")


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.out = nn.RMSNorm(16, 1e-6), nn.Linear(16, 16)

    def forward(self, x):
        return self.out(self.norm(x))


def subject(dtype):
    torch.manual_seed(0)
    return Subject(Normed().to(dtype), {"x": torch.randn(2, 24, 4, 16).to(dtype)}, dtype=str(dtype)[6:])


def compared(path):
    config = CompilationConfig(fusion_patterns=select_patterns(()), pattern_files=(str(path),))
    return compare_in_float32(compile_subject(subject(torch.bfloat16), config), subject(torch.float32))


def low_precision_file(folder, replacement="right"):
    path = write_trial(folder, replacement)
    text = path.read_text("utf-8")
    path.write_text(text.replace("(torch.bfloat16, torch.float32)", "(torch.bfloat16,)"), "utf-8")
    return path


def test_a_pattern_that_hits_in_float32_counts_and_says_how_often(tmp_path):
    model = compared(write_trial(tmp_path))
    assert model.verdict is Verdict.PASS, model.reason
    assert model.reason.endswith("; hits: rms_norm 1")


@pytest.mark.parametrize(("replacement", "verdict"), [("right", Verdict.PASS), ("gain lost", Verdict.FAIL)])
def test_variants_of_lower_precision_are_traced_on_float32_inputs(tmp_path, replacement, verdict):
    path = low_precision_file(tmp_path, replacement)
    if replacement == "gain lost":
        path.write_text(
            path.read_text("utf-8").replace("ones_like(weight)", "ones_like(weight) * 1.01"), "utf-8"
        )
    model = compared(path)
    assert model.verdict is verdict, model.reason
    assert dict(model.hits) == {"rms_norm": 1}


def test_without_a_hit_in_float32_nothing_was_compared(tmp_path):
    path = low_precision_file(tmp_path)
    text = path.read_text("utf-8").replace("(h * weight).to(x.dtype)", "(h * weight).to(torch.bfloat16)")
    path.write_text(text, "utf-8")
    model = compared(path)
    assert model.verdict is Verdict.INCONCLUSIVE
    assert model.reason == "rms_norm: 1 hits in bfloat16 and none in float32, so that it was not compared"
