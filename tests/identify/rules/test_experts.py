"""Products with the weights of several experts, however they are kept."""

import pytest
from rule_sources import found, module


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


HELD = {
    "modules in a comprehension": (
        "self.experts = nn.ModuleList([nn.Linear(4, 4) for _ in range(8)])",
        "return torch.stack([expert(x) for expert in self.experts])",
    ),
    "modules of several lists, counted": (
        "self.num_experts = 8\nself.up = nn.ModuleList([nn.Linear(4, 4) for _ in range(8)])",
        "for i in range(self.num_experts):\n    x = x + self.up[i](x) * (mask == i)\nreturn x",
    ),
    "modules by attribute": (
        "self.count = 8",
        "for i in range(self.count):\n    x = x + getattr(self, f'expert_{i}')(x)\nreturn x",
    ),
    "one module, chosen by the caller": (
        "self.experts = nn.ModuleList([nn.Linear(4, 4) for _ in range(8)])",
        "return self.experts[mask](x)",
    ),
    "weights taken by the router's index": (
        "self.num_experts = 8\nself.w = nn.Parameter(torch.empty(config.num_experts, 4, 4))",
        "index = x.topk(2).indices\nreturn torch.einsum('beck,bk->bec', self.w[index, ...], x)",
    ),
    "weights selected": (
        "self.w = nn.Parameter(torch.empty(config.num_experts, 4, 4))",
        "return torch.bmm(torch.index_select(self.w, 0, mask), x)",
    ),
    "rows of all experts, viewed": (
        "self.w = nn.Parameter(torch.empty(config.num_experts * 4, 4))",
        "w = self.w.view(8, 4, 4)\nfor e in range(8):\n    x = x + F.linear(x, w[e])\nreturn x",
    ),
}
NOT_HELD = {
    "layers": (
        "self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(8)])",
        "for i in range(8):\n    x = self.layers[i](x)\nreturn x",
    ),
    "a router": (
        "self.w = nn.Parameter(torch.empty(config.num_experts, 4))",
        "return F.linear(x, self.w)",
    ),
    "a submodule by attribute": ("", "return getattr(self, 'proj')(x)"),
}


@pytest.mark.parametrize(("init", "forward"), HELD.values(), ids=HELD)
def test_however_experts_are_held(init, forward):
    assert "npu_grouped_matmul" in found(module(forward, init)).get("M", {})


@pytest.mark.parametrize(("init", "forward"), NOT_HELD.values(), ids=NOT_HELD)
def test_what_holds_no_experts(init, forward):
    assert "npu_grouped_matmul" not in found(module(forward, init)).get("M", {})
