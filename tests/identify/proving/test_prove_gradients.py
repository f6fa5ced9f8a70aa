"""A fused branch that is right forward and wrong backward fails; the yardstick is what the original itself loses."""

from __future__ import annotations

import pytest
import torch
from proved_texts import guarded, prove_texts

from fusionkit.identify.proving.gradients import FLOOR, K, refusal
from fusionkit.verdict import Verdict

NORM = """
import torch
from torch import nn


class Norm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        variance = x.float().pow(2).mean(-1, keepdim=True)
        return (x.float() * torch.rsqrt(variance + 1e-5)).to(x.dtype) * self.weight
"""
BODY = NORM.partition("forward(self, x):\n")[2]
WEIGHTLESS = NORM.replace("nn.Parameter(torch.ones(dim))", "nn.Buffer(torch.ones(dim), persistent=False)")
RIGHT = "return torch_npu.npu_rms_norm(x, self.weight.to(x.dtype), 1e-5)[0]"
PLAIN = RIGHT.replace("return", "y =")
# the forward numbers of each are those of RIGHT
WRONG = {
    "one branch is detached": PLAIN + "\nreturn y.detach() + 0 * x * self.weight",
    "factor 2": PLAIN + "\nreturn y.detach() + 2 * (y - y.detach())",
    "factor 1.05": PLAIN + "\nreturn y.detach() + 1.05 * (y - y.detach())",
    "no term for the weight": RIGHT.replace("self.weight.to", "self.weight.detach().to"),
    "part of the weight's term": RIGHT.replace(
        "self.weight.to", "torch.cat((self.weight[:-1], self.weight[-1:].detach())).to"
    ),
    "rstd is taken for a constant": (
        "rstd = torch_npu.npu_rms_norm(x, self.weight.to(x.dtype), 1e-5)[1].detach()\n"
        "return (x.float() * rstd).to(x.dtype) * self.weight"
    ),
}


@pytest.fixture(scope="module")
def proofs(tmp_path_factory):
    texts = [guarded(NORM, BODY, fused) for fused in (RIGHT, *WRONG.values())]
    told = prove_texts(tmp_path_factory.mktemp("norm"), NORM, "npu_rms_norm", *texts)
    return dict(zip(("right", *WRONG), told, strict=True))


def test_right_gradients_pass_in_both_dtypes(proofs):
    assert proofs["right"].verdict is Verdict.PASS, proofs["right"].reason
    assert all(run.training or "rows of every scale" in run.case for run in proofs["right"].runs)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_gradients_fail_in_float32_and_in_bfloat16(proofs, name):
    assert proofs[name].verdict is Verdict.FAIL, proofs[name].reason
    assert "gradient" in proofs[name].reason
    for dtype in ("float32", "bfloat16"):
        assert any(run.verdict is Verdict.FAIL for run in proofs[name].runs if run.dtype == dtype), dtype


def test_a_buffer_for_a_weight_has_a_float64_reference(tmp_path):
    texts = [guarded(WEIGHTLESS, BODY, fused) for fused in (RIGHT, WRONG["factor 1.05"])]
    right, wrong = prove_texts(tmp_path, WEIGHTLESS, "npu_rms_norm", *texts)
    assert right.verdict is Verdict.PASS, right.reason
    assert not any("no float64 reference" in run.reason for run in right.runs)
    assert wrong.verdict is Verdict.FAIL, wrong.reason


@pytest.mark.parametrize(("share", "fine"), [(0.9, True), (1.1, False)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_limit_is_a_multiple_of_the_originals_error_of_the_whole_tensor(share, fine, dtype):
    true = torch.ones(64, dtype=torch.float64)
    off = 64 * torch.finfo(dtype).eps
    original, replaced = ((true * (1 + factor * off)).to(dtype) for factor in (1.0, K * share))
    name = "gradient of x"
    assert (refusal({name: original}, {name: replaced}, {name: true}, {}) == "") is fine
    near = (true * (1 + FLOOR * torch.finfo(dtype).eps)).to(dtype)
    assert refusal({name: true.to(dtype)}, {name: near}, {name: true}, {}) == ""
