"""Equal numbers that say nothing: the op is not called, not read, or called by both; nothing is compared."""

from __future__ import annotations

import pytest
from proved_texts import guarded, prove_texts

from fusionkit.verdict import Verdict

NORM = """
import torch
from torch import nn


class Norm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
{}"""
MATH = """        variance = x.float().pow(2).mean(-1, keepdim=True)
        normed = (x.float() * torch.rsqrt(variance + 1e-5) * self.weight.float()).to(x.dtype)
"""
ORIGINAL = NORM.format(MATH + "        return normed\n")
FUSED = "normed = torch_npu.npu_rms_norm(x, self.weight, 1e-5)[0]"
AGAIN = MATH.replace("        ", "")


def proved(folder, fused, original=ORIGINAL, body=MATH, condition="torch_npu is not None", op="npu_rms_norm"):
    text = guarded(original, body, fused, condition)
    return prove_texts(folder, original, op, text, dtypes=("float32",))[0]


@pytest.mark.parametrize(
    ("fused", "condition", "reason"),
    [
        (FUSED, "x.shape[0] > 99", "makes no call of npu_rms_norm"),
        (AGAIN, "torch_npu is not None", "makes no call of npu_rms_norm"),
        ("torch_npu.npu_swiglu(x, -1)\n" + AGAIN, "torch_npu is not None", "makes no call of npu_rms_norm"),
        (FUSED + "\n" + AGAIN, "torch_npu is not None", "does not reach the outputs"),
    ],
    ids=["never taken", "calls nothing", "calls another op", "gives it away"],
)
def test_a_branch_that_does_not_use_the_op_proves_nothing(tmp_path, fused, condition, reason):
    proof = proved(tmp_path, fused, condition=condition)
    assert proof.verdict is Verdict.INCONCLUSIVE
    assert reason in proof.reason


def test_the_op_is_seen_by_whatever_name_it_is_called(tmp_path):
    proof = proved(tmp_path, FUSED.replace("torch_npu.npu_rms_norm", "torch.ops.npu.npu_rms_norm"))
    assert proof.verdict is Verdict.PASS, proof.reason
    assert all(run.fused_calls == 1 for run in proof.runs)


def test_an_original_that_calls_the_op_itself_proves_nothing(tmp_path):
    original = ORIGINAL.replace(
        "return normed", "return torch.ops.npu.npu_rms_norm(normed, self.weight, 1e-5)[0]"
    )
    proof = proved(tmp_path, FUSED, original)
    assert proof.verdict is Verdict.INCONCLUSIVE
    assert "the original calls npu_rms_norm itself" in proof.reason


def test_a_branch_that_is_not_taken_with_gradients_has_none_compared(tmp_path):
    proof = proved(tmp_path, FUSED, condition="not torch.is_grad_enabled()")
    assert not any(run.training for run in proof.runs)
    assert "no gradients compared" in proof.reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("return normed.argmax(-1)", "no floating output"),
        ("return normed[:0]", "nothing to compare"),
        ("return normed * float('nan')", "gives NaN"),
        ("return normed * 0", "zero throughout"),
        ("return None", "no output to compare"),
        ("return 1.0", "not reach the outputs"),
        ("return torch.nn.functional.dropout(normed, 0.5)", "other numbers each time"),
        ("return normed + torch.rand(())", "other numbers each time"),
    ],
)
def test_outputs_that_hold_nothing_prove_nothing(tmp_path, change, reason):
    proof = proved(tmp_path, FUSED, ORIGINAL.replace("return normed", change))
    assert proof.verdict is Verdict.INCONCLUSIVE, proof.reason
    assert reason in proof.reason


def test_dropout_of_a_module_and_weights_of_zero_do_not_hinder(tmp_path):
    original = ORIGINAL.replace(
        "return normed", "return nn.functional.dropout(normed, 0.5, training=self.training)"
    )
    assert proved(tmp_path, FUSED, original).verdict is Verdict.PASS


def test_a_branch_that_writes_to_its_arguments_fails(tmp_path):
    proof = proved(tmp_path, FUSED + "\nx.mul_(2)")
    assert proof.verdict is Verdict.FAIL
    assert "written x" in proof.reason


WHERE = """
import torch


def choose(mask, x, residual):
    chosen = torch.where(mask, x, residual)
    return chosen * 2
"""
IN_PLACE = """
import torch


def clear(x, mask):
    x[mask] = 0.0
"""


@pytest.mark.parametrize(("condition", "verdict"), [("True", "PASS"), ("x.dim() > 9", "INCONCLUSIVE")])
def test_a_branch_of_plain_torch_is_seen_to_run(tmp_path, condition, verdict):
    body = "    chosen = torch.where(mask, x, residual)\n"
    fused = "chosen = torch.lerp(residual, x, mask.to(x.dtype))"
    proof = proved(tmp_path, fused, WHERE, body, condition, "affinity_where")
    assert proof.verdict is Verdict(verdict), proof.reason


def test_what_is_written_in_place_is_compared(tmp_path):
    body = "    x[mask] = 0.0\n"
    right, wrong = ("x.mul_(1 - mask.to(x.dtype)[..., None])", "x.mul_(mask.to(x.dtype)[..., None])")
    proofs = [
        proved(tmp_path, fused, IN_PLACE, body, "True", "affinity_index_put") for fused in (right, wrong)
    ]
    assert [proof.verdict for proof in proofs] == [Verdict.PASS, Verdict.FAIL], [p.reason for p in proofs]
