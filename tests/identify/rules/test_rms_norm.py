"""RMSNorm in its spellings, and what comes near."""

import pytest
from rule_sources import found, module

NORMS = {
    "pow, mean, rsqrt": (
        "v = x.pow(2).mean(-1, keepdim=True)\nreturn self.weight * x * torch.rsqrt(v + 1e-6)",
        set(),
    ),
    "x * x and a quotient": ("return self.weight * x / torch.sqrt((x * x).mean(-1, True) + self.eps)", set()),
    "square and a function": (
        "return self.weight * (x * torch.rsqrt(torch.mean(torch.square(x), -1, True) + 1e-6))",
        set(),
    ),
    "a sum over the size": (
        "return self.weight * x * torch.rsqrt((x ** 2).sum(-1, True) / x.shape[-1] + 1e-6)",
        set(),
    ),
    "cast before the weight": (
        "h = x.float()\nh = h * torch.rsqrt(h.pow(2).mean(-1, True) + 1e-6)\nreturn self.weight * h.to(x.dtype)",
        {"dtype_order"},
    ),
    "cast after the weight": (
        "h = x.float()\nh = h * torch.rsqrt(h.pow(2).mean(-1, True) + 1e-6)\nreturn (self.weight * h).to(x.dtype)",
        set(),
    ),
    "one plus weight": (
        "h = x * torch.rsqrt(x.pow(2).mean(-1, True) + 1e-6)\nreturn h * (1.0 + self.weight.float())",
        {"one_plus_weight", "fp32_weight_bf16_input"},
    ),
    "no weight": ("return x * torch.rsqrt(x.pow(2).mean(-1, True) + 1e-6)", {"weight_none"}),
    "eps outside": (
        "return self.weight * x / (torch.sqrt(x.pow(2).mean(-1, True)) + 1e-6)",
        {"eps_inside_or_outside"},
    ),
    "the library's function": (
        "return F.rms_norm(x, (8,))",
        {"weight_none", "eps_inside_or_outside"},
    ),
}
NO_NORMS = {
    "layer norm": "u = x.mean(-1, True)\nreturn self.weight * (x - u) / torch.sqrt((x - u).pow(2).mean(-1, True) + 1e-6)",
    "plain length": "return x / (x.norm(dim=-1, keepdim=True) + 1e-6)",
    "another tensor's root": "y = self.proj(x)\nreturn self.weight * y * torch.rsqrt(x.pow(2).mean(-1, True) + 1e-6)",
    "no product": "return torch.rsqrt(x.pow(2).mean(-1, True) + 1e-6)",
}


@pytest.mark.parametrize(("forward", "hazards"), NORMS.values(), ids=NORMS)
def test_norms(forward, hazards):
    init = "self.weight = nn.Parameter(torch.ones(dim))\nself.eps = eps"
    assert found(module(forward, init)) == {"M": {"npu_rms_norm": hazards}}


@pytest.mark.parametrize("forward", NO_NORMS.values(), ids=NO_NORMS)
def test_what_is_no_norm(forward):
    assert "npu_rms_norm" not in found(module(forward)).get("M", {})


def test_a_norm_in_a_method_of_its_own_has_the_hazards_of_the_class():
    code = """
    class Norm(nn.Module):
        def __init__(self, dim):
            self.weight = nn.Parameter(torch.zeros(dim))

        def _norm(self, x):
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)

        def forward(self, x):
            output = self._norm(x.float())
            output = output * (1.0 + self.weight.float())
            return output.type_as(x)
    """
    assert found(code) == {"Norm._norm": {"npu_rms_norm": {"one_plus_weight", "fp32_weight_bf16_input"}}}


def test_the_librarys_module_is_told_where_it_is_built():
    init = "self.a = nn.RMSNorm(dim, eps=1e-6)\nself.b = nn.RMSNorm(dim, elementwise_affine=config.affine)"
    assert found(module("return self.a(x)", init)) == {
        "M": {"npu_rms_norm": {"weight_none", "eps_inside_or_outside"}}
    }
