"""SwiGLU and GEGLU: which product of an activation is a gate."""

import pytest
from rule_sources import found, module

GATES = {
    "two projections": ("return F.silu(self.a(x)) * self.b(x)", "", "npu_swiglu", set()),
    "a module": ("return self.b(x) * self.act(self.a(x))", "self.act = nn.SiLU()", "npu_swiglu", set()),
    "written out": ("g = self.a(x)\nreturn g * torch.sigmoid(g) * self.b(x)", "", "npu_swiglu", set()),
    "first half": ("a, b = self.p(x).chunk(2, -1)\nreturn F.silu(a) * b", "", "npu_swiglu", set()),
    "second half": (
        "a, b = self.p(x).chunk(2, -1)\nreturn a * F.silu(b)",
        "",
        "npu_swiglu",
        {"gate_second_half"},
    ),
    "gelu": ("a, b = self.p(x).chunk(2, -1)\nreturn a * F.gelu(b)", "", "npu_geglu", {"gate_second_half"}),
    "named": ("return self.act(self.a(x)) * self.b(x)", 'self.act = ACT2FN["gelu_new"]', "npu_geglu", set()),
    "clamped": (
        "g = self.a(x).clamp(max=7.0)\nreturn g * torch.sigmoid(g * 1.3) * (self.b(x) + 1)",
        "",
        "npu_swiglu",
        {"clamp_or_bias_in_gate"},
    ),
}
CLIPPED = (
    "g, u = self.p(x)[..., ::2], self.p(x)[..., 1::2]\ng = g.clamp(max=7.0)\nu = u.clamp(-7.0, 7.0)\n"
    "return (u + 1) * (g * torch.sigmoid(g * 1.702))"
)
NO_GATES = {
    "silu alone": "return self.a(F.silu(x))",
    "a sigmoid gate": "return torch.sigmoid(self.a(x)) * self.b(x)",
    "a number": "return F.silu(x) * 2.0",
    "a mask": "return F.silu(self.a(x)) * mask",
    "a scale": "return F.silu(self.a(x)) * self.scale",
    "itself": "return F.silu(x) * x",
}


@pytest.mark.parametrize(("forward", "init", "op", "hazards"), GATES.values(), ids=GATES)
def test_gates(forward, init, op, hazards):
    assert found(module(forward, init))["M"].get(op) == hazards


def test_a_clipped_gate_is_a_swiglu_whatever_its_alpha():
    assert "clamp_or_bias_in_gate" in found(module(CLIPPED))["M"]["npu_swiglu"]
    assert "npu_geglu" not in found(module(CLIPPED))["M"]


@pytest.mark.parametrize("forward", NO_GATES.values(), ids=NO_GATES)
def test_what_is_no_gate(forward):
    assert not {"npu_swiglu", "npu_geglu"} & set(found(module(forward)).get("M", {}))
