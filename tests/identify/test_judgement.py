"""Judgement: what is recommended, deferred and refused, who runs, and that the tables are whole."""

import dataclasses
from multiprocessing.reduction import ForkingPickler

import pytest
from identify_examples import BRANCHED, MLP, NORM, SOFTCAP, judged

from fusionkit.identify.dispatch import DISPATCHES
from fusionkit.identify.judgement import generated_from
from fusionkit.identify.ops import HAZARDS, OP_NAMES, OPS
from fusionkit.identify.proofs import with_proof
from fusionkit.identify.proving.proof import Proof
from fusionkit.identify.rulings import AGAINST, FOR, GELU_CALL, HEAD_SIZES
from fusionkit.verdict import Verdict

EAGER = (
    "def eager_attention_forward(module, q, k, v, scaling):\n"
    "    scores = torch.matmul(q, k.transpose(2, 3)) * scaling\n"
    "    return torch.matmul(F.softmax(scores, dim=-1), v)\n"
)
INTERFACE = (
    "class Attention(nn.Module):\n    def forward(self, q, k, v):\n"
    "        run = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)\n"
    "        return run(self, q, k, v, self.scaling)\n"
)
EXPERTS = (
    "class Experts(nn.Module):\n    def __init__(self, num_experts, n, k):\n        super().__init__()\n"
    "        self.num_experts = num_experts\n        self.up = nn.Parameter(torch.empty(num_experts, n, k))\n"
    "        self.down = nn.Parameter(torch.empty(num_experts, k, n))\n\n"
    "    def forward(self, x, index, weights):\n        out = torch.zeros_like(x)\n"
    "        for e in range(self.num_experts):\n            rows, slot = torch.where(index == e)\n"
    "            h = F.linear(x[rows], self.up[e])\n            h = F.linear(h, self.down[e])\n"
    "            out.index_add_(0, rows, h * weights[rows, slot, None])\n        return out\n"
)


def only(code, op, **kwargs):
    (found,) = [item for item in judged(code, **kwargs) if item.op == op]
    return found


@pytest.mark.parametrize(
    ("code", "op", "recommend", "told"),
    [
        (NORM.format(name="A"), "npu_rms_norm", "yes", "several kernels"),
        (MLP, "npu_swiglu", "yes", "two kernels"),
        (SOFTCAP, "npu_fusion_attention", "no", "soft cap"),
        (BRANCHED, "npu_rms_norm", "no", "NPU branch already"),
        (EXPERTS, "npu_grouped_matmul", "yes", "grouped matmul"),
        ("@use_experts_implementation\n" + EXPERTS, "npu_grouped_matmul", "defer", "experts_implementation='eager'"),
        (EAGER, "npu_fusion_attention", "yes", "one kernel"),
        ("def f(q, k, v):\n    return F.scaled_dot_product_attention(q, k, v)\n", "npu_fusion_attention", "defer",
         "torch_npu runs scaled_dot_product_attention"),
        ("from transformers import ALL_ATTENTION_FUNCTIONS\n" + EAGER + INTERFACE, "npu_fusion_attention", "defer",
         "attn_implementation"),
        ("@use_kernel_forward_from_hub('RMSNorm')\n" + NORM.format(name="A"), "npu_rms_norm", "yes", "several kernels"),
        ("class G(nn.Module):\n    def forward(self, x):\n        return F.gelu(x)\n", "npu_gelu", "defer",
         "one kernel on the NPU already"),
        ("class G(nn.Module):\n    def forward(self, x):\n        return 0.5 * x * (1 + torch.erf(x / 1.41421356))\n",
         "npu_gelu", "yes", "written out"),
    ],
)  # fmt: skip
def test_what_is_recommended_and_why(code, op, recommend, told):
    found = only(code, op)
    assert found.recommend == recommend
    assert told in found.reason
    assert found.reason_zh


def test_a_hub_decorator_and_an_experts_switch_are_told_apart():
    assert (
        only("@use_kernel_forward_from_hub('N')\n" + NORM.format(name="A"), "npu_rms_norm").dispatch
        == "kernel_hub"
    )
    switched = only("@use_experts_implementation\n" + EXPERTS, "npu_grouped_matmul")
    assert switched.dispatch == "experts_switch"
    assert only(EXPERTS, "npu_grouped_matmul").dispatch == ""


def test_ops_without_backward_say_so_and_the_site_keeps_what_the_code_has():
    experts = only(EXPERTS, "npu_grouped_matmul")
    assert experts.hazards[-1] == "training_backward"
    assert "training_backward" not in experts.site.hazards
    assert "training_backward" not in only(MLP, "npu_swiglu").hazards


def test_what_waits_comes_later_and_what_is_refused_last():
    assert only(EXPERTS, "npu_grouped_matmul").priority == 1
    assert only("@use_experts_implementation\n" + EXPERTS, "npu_grouped_matmul").priority == 2
    assert only(SOFTCAP, "npu_fusion_attention").priority == 3


def test_a_candidate_travels_between_processes_and_has_the_entries_of_the_scan():
    found = only(MLP, "npu_swiglu")
    assert ForkingPickler.loads(ForkingPickler.dumps(found)) == found
    told = found.to_dict()
    assert {"op", "file", "line", "end_line", "symbol", "recommend", "reason", "hazards", "proof"} <= set(
        told
    )
    assert told["proof"] is None
    assert told["id"] == "npu_swiglu:model.py:MLP"


def test_the_modular_source_is_read_from_the_header_of_a_generated_file_only():
    header = "# This file was automatically generated from src/models/a/modular_a.py.\n"
    assert generated_from(header + "x = 1\n") == "src/models/a/modular_a.py"
    assert generated_from("x = 1\n" * 500 + header) == ""
    assert only(
        NORM.format(name="A"), "npu_rms_norm", head=header + "from torch import nn\nimport torch\n"
    ).generated_from


@pytest.mark.parametrize(
    ("verdict", "recommend"), [(Verdict.PASS, "yes"), (Verdict.INCONCLUSIVE, "yes"), (Verdict.FAIL, "no")]
)
def test_a_replacement_that_fails_its_proof_is_not_recommended(verdict, recommend):
    found = only(MLP, "npu_swiglu")
    proved = with_proof(found, Proof("npu_swiglu", "/elsewhere/model.py", "MLP", verdict, "halves swapped"))
    assert proved.recommend == recommend
    assert proved.proof["verdict"] == str(verdict)
    assert proved.proof["file"] == "model.py"
    assert ("halves swapped" in proved.reason) == (recommend == "no")
    assert with_proof(found, None) == found


def test_the_tables_name_ops_and_hazards_that_there_are_and_judge_every_op():
    rows = (*AGAINST, *FOR, GELU_CALL, HEAD_SIZES)
    assert {row.hazard for row in rows if row.hazard} <= set(HAZARDS)
    assert {op for row in rows for op in row.ops} <= set(OP_NAMES)
    assert {op for row in DISPATCHES for op in row.ops} <= set(OP_NAMES)
    assert {op for row in rows if not row.hazard for op in row.ops} == {op.name for op in OPS}
    assert all(row.source and row.reason and row.reason_zh for row in (*rows, *DISPATCHES))
    assert all("\n" not in row.reason for row in rows)


def test_hazards_come_before_who_runs_among_equals():
    sinks = dataclasses.replace(
        only(EAGER, "npu_fusion_attention").site, hazards=("sinks", "dispatch_elsewhere")
    )
    from pathlib import Path

    from fusionkit.identify.judgement import judge
    from fusionkit.identify.source.files import SourceFile

    source = SourceFile(Path("m.py"), "from transformers import ALL_ATTENTION_FUNCTIONS\n" + EAGER)
    assert "sink" in judge(sinks, source).reason
