"""Every rule with what it finds, what it does not, and what comes near without being it."""

import textwrap
from pathlib import Path

import pytest

from fusionkit.identify.ops import HAZARDS, OP_NAMES
from fusionkit.identify.scan_file import sites_of_text

HEAD = """
import math
import torch
import torch.nn.functional as F
from torch import nn
"""


def found(code):
    """symbol -> op -> hazards."""
    told = {}
    for site in sites_of_text(Path("model.py"), HEAD + textwrap.dedent(code)):
        told.setdefault(site.symbol, {})[site.op] = set(site.hazards)
    return told


def module(forward, init=""):
    lines = textwrap.indent(textwrap.dedent(forward).strip(), "        ")
    built = textwrap.indent(textwrap.dedent(init).strip(), "        ")
    return (
        f"class M(nn.Module):\n    def __init__(self, config, dim, eps):\n        super().__init__()\n{built}\n\n"
        + (f"    def forward(self, x, mask=None):\n{lines}\n")
    )


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


ROTATE = """
def rotate_half(x):
    x1 = x[..., : x.shape[-1] // 2]
    x2 = x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)

def rotate_pairs(x):
    x1, x2 = x[..., ::2], x[..., 1::2]
    return torch.stack((-x2, x1), dim=-1).flatten(-2)
"""
ROTATIONS = {
    "half": ("return q * cos + rotate_half(q) * sin", set()),
    "batch": (
        "cos = cos.unsqueeze(dim)\nsin = sin.unsqueeze(dim)\nreturn (q * cos) + (rotate_half(q) * sin)",
        {"rope_per_batch_cos_sin"},
    ),
    "neighbours": ("return q * cos + rotate_pairs(q) * sin", {"rope_interleave"}),
    "backwards": (
        "a, b = q.chunk(2, -1)\nreturn q * cos + torch.cat((b, -a), -1) * sin",
        {"rope_reversed"},
    ),
    "float32": (
        "d = q.dtype\nq = q.float()\nreturn (q * cos + rotate_half(q) * sin).to(dtype=d)",
        {"dtype_order"},
    ),
    "pairs written out": (
        "a, b = q[..., 0::2], q[..., 1::2]\nreturn torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)",
        {"rope_interleave", "rope_half_width_cos_sin"},
    ),
    "partial": (
        "n = cos.shape[-1]\nr, p = q[..., :n], q[..., n:]\n"
        "return torch.cat((r * cos + rotate_half(r) * sin, p), dim=-1)",
        {"rope_partial", "non_contiguous"},
    ),
    "complex": (
        "z = torch.view_as_complex(q.float().reshape(*q.shape[:-1], -1, 2))\n"
        "return torch.view_as_real(z * cos).flatten(3).type_as(q)",
        {"rope_complex"},
    ),
}


@pytest.mark.parametrize(("body", "hazards"), ROTATIONS.values(), ids=ROTATIONS)
def test_rotations(body, hazards):
    code = ROTATE + "def rope(q, cos, sin, dim=1):\n" + textwrap.indent(body, "    ") + "\n"
    assert found(code) == {"rope": {"npu_rotary_mul": hazards}}


def test_what_is_no_rotation():
    code = (
        ROTATE
        + "def table(freqs):\n    return torch.cat((freqs.cos(), freqs.sin()), -1) * 2 + freqs.cos() * freqs.sin()\n"
    )
    assert found(code) == {}


ATTENTIONS = {
    "written out": (
        "s = torch.matmul(q, k.transpose(2, 3)) * (q.shape[-1] ** -0.5)\n"
        "p = F.softmax(s, dim=-1)\nreturn torch.matmul(p, v)",
        set(),
    ),
    "masked, dropped": (
        "s = q @ k.transpose(-1, -2) / math.sqrt(q.size(-1)) + mask\n"
        "p = F.dropout(F.softmax(s, -1, dtype=torch.float32).to(q.dtype), p=0.1)\nreturn p @ v",
        {"mask_additive", "dropout"},
    ),
    "inverted mask, no scale": (
        "s = torch.einsum('bhid,bhjd->bhij', q, k).masked_fill(~mask, -1e9)\n"
        "return torch.einsum('bhij,bhjd->bhid', s.softmax(-1), v)",
        {"mask_bool_keep", "scale_not_rsqrt_d"},
    ),
    "soft cap": (
        "s = torch.matmul(q, k.transpose(2, 3)) * 0.1\ns = torch.tanh(s / 50.0) * 50.0\nreturn torch.matmul(s.softmax(-1), v)",
        {"softcap"},
    ),
    "library": (
        "return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=0.0)",
        {"mask_bool_keep"},
    ),
    "library, repeated heads": ("return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)", {"gqa"}),
    "sigmoid": (
        "s = torch.sigmoid(torch.matmul(q, k.transpose(2, 3)) * 0.125)\nreturn torch.matmul(s, v)",
        {"not_softmax"},
    ),
    "the package's dispatch": ("return dispatch_attention_fn(q, k, v)", {"dispatch_elsewhere"}),
}


@pytest.mark.parametrize(("body", "hazards"), ATTENTIONS.values(), ids=ATTENTIONS)
def test_attention(body, hazards):
    code = "def attend(q, k, v, mask=None):\n" + textwrap.indent(body, "    ") + "\n"
    assert found(code) == {"attend": {"npu_fusion_attention": hazards}}


def test_what_is_no_attention():
    code = """
    def router(x, w, v):
        return torch.matmul(F.softmax(F.linear(x, w), -1), v)

    def linear_attention(q, k, v):
        return torch.matmul(q.softmax(-1), torch.matmul(k.softmax(-2).transpose(-1, -2), v))
    """
    assert found(code) == {}


def test_an_eager_function_is_what_the_interface_falls_back_to():
    code = """
    def eager(module, query, key, value, mask, scaling):
        key = repeat_kv(key, module.groups)
        w = torch.matmul(query, key.transpose(2, 3)) * scaling + mask
        return torch.matmul(F.softmax(w, dim=-1), value)

    class Attention(nn.Module):
        def __init__(self, config):
            self.scaling = config.query_scalar

        def forward(self, x, key_value_states=None):
            interface = ALL_ATTENTION_FUNCTIONS.get_interface("x", eager)
            return interface(self, x, x, x, None, scaling=self.scaling, sliding_window=4)
    """
    assert found(code) == {
        "eager": {
            "npu_fusion_attention": {
                "gqa", "mask_additive", "sliding_window", "scale_not_rsqrt_d", "cross_attention", "dispatch_elsewhere",
            }
        }
    }  # fmt: skip


def test_experts():
    code = """
    class Experts(nn.Module):
        def __init__(self, config):
            self.up = nn.Parameter(torch.empty(config.num_experts, 2 * config.width, config.hidden))
            self.down = nn.Parameter(torch.empty(config.num_experts, config.hidden, config.width))

        def forward(self, x, index, weights):
            out = torch.zeros_like(x)
            mask = F.one_hot(index, 4).permute(2, 1, 0)
            for expert in mask.sum((-1, -2)).nonzero():
                place, token = torch.where(mask[expert[0]])
                gate, up = F.linear(x[token], self.up[expert[0]]).chunk(2, -1)
                y = F.linear(F.silu(gate) * up, self.down[expert[0]])
                out.index_add_(0, token, y * weights[token, place, None])
            return out

    class Router(nn.Module):
        def __init__(self, config):
            self.weight = nn.Parameter(torch.empty(config.num_experts, config.hidden))

        def forward(self, x):
            return F.linear(x, self.weight).softmax(-1)
    """
    assert found(code) == {
        "Experts": {
            "npu_grouped_matmul": {"weight_layout_EN_K", "dynamic_shape"},
            "npu_swiglu": {"dynamic_shape"},
        }
    }


def test_experts_in_other_spellings():
    code = """
    class Batched(nn.Module):
        def __init__(self, config):
            self.w = nn.Parameter(torch.randn(config.n_experts, config.hidden, config.width) * 0.02)

        def forward(self, x):
            return torch.bmm(x, self.w)

    class TinyMoE(nn.Module):
        def __init__(self, count, hidden, width):
            self.w = nn.Parameter(torch.empty(count, hidden, width))

        def forward(self, x):
            return torch.einsum("ebd,edh->ebh", x, self.w)

    class Listed(nn.Module):
        def __init__(self, count):
            self.expert_layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(count)])

        def forward(self, x, weights):
            for place, layer in enumerate(self.expert_layers):
                x = x + layer(x) * weights[place]
            return x

    class Heads(nn.Module):
        def __init__(self, count, hidden, width):
            self.w = nn.Parameter(torch.empty(count, hidden, width))

        def forward(self, x):
            return torch.bmm(x, self.w)
    """
    told = found(code)
    assert {symbol for symbol, ops in told.items() if "npu_grouped_matmul" in ops} == {
        "Batched",
        "TinyMoE",
        "Listed",
    }


def test_a_selection_ends_what_was_masked():
    code = """
    def route(scores, mask):
        chosen = scores.masked_fill(~mask, -1e9).topk(2).values
        return F.softmax(chosen, -1)
    """
    assert found(code) == {}


def test_an_addition_before_a_norm():
    code = """
    class Norm(nn.Module):
        def __init__(self, dim):
            self.weight = nn.Parameter(torch.zeros(dim))

        def forward(self, x):
            return x * torch.rsqrt(x.pow(2).mean(-1, True) + 1e-6) * (1 + self.weight)

    class Child(Norm):
        pass

    class Layer(nn.Module):
        def __init__(self, dim):
            self.after = Child(dim)
            self.plain = nn.LayerNorm(dim)

        def forward(self, x, y):
            residual = x + y
            return residual + self.mlp(self.after(residual))

    class Other(Layer):
        def forward(self, x, y):
            return self.plain(x + y) + self.after(x)
    """
    told = found(code)
    assert told["Layer"] == {"npu_add_rms_norm": {"one_plus_weight"}}
    assert "Other" not in told


def test_gelus():
    code = """
    class A(nn.Module):
        def __init__(self):
            self.act = nn.GELU()

    class B(nn.Module):
        def __init__(self, config):
            self.act = ACT2FN[config.hidden_act]

    def quick(x):
        return x * torch.sigmoid(1.702 * x)

    def written(x):
        return 0.5 * x * (1.0 + torch.tanh(0.79 * (x + 0.044715 * torch.pow(x, 3.0))))

    def other(x):
        return 0.5 * x * (1.0 + torch.cos(x))
    """
    assert {symbol: set(ops) for symbol, ops in found(code).items()} == {
        "A": {"npu_gelu"}, "quick": {"npu_gelu"}, "written": {"npu_gelu"},
    }  # fmt: skip


def test_masks_and_choices():
    code = """
    def softened(scores, mask):
        return torch.where(mask, scores, -1e4).softmax(-1)

    def cleared(x, mask, index):
        x[~mask] = 0
        return x

    def placed(x, index):
        x[index] = 0
        x[:, 1:] = 2
        return torch.where(x)

    def filled(x, mask):
        x[mask] = x[mask] * 2
        return x

    def train(model):
        return torch.optim.AdamW(model.parameters())
    """
    assert found(code) == {
        "softened": {"npu_scaled_masked_softmax": {"mask_bool_keep"}, "affinity_where": set()},
        "cleared": {"affinity_index_put": set()},
        "train": {"NpuFusedAdamW": set()},
    }


def test_the_tables_name_every_op_and_hazard_once():
    assert len(set(OP_NAMES)) == len(OP_NAMES) == 12
    assert all(text for text in HAZARDS.values())
