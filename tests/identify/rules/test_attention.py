"""Attention written out or called, and what is none."""

import textwrap

import pytest
from rule_sources import found

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
