"""One judgement everywhere: what can be written, what a profile shows, and what head sizes a configuration gives."""

import json

import pytest
from identify.profiled.test_assess import NORM as NORM_KERNELS
from identify.profiled.test_assess import kernels, profile
from identify_examples import HEAD, MLP, NORM

from fusionkit.cli import main

CHANNELS = """class ChannelNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim, 1, 1))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-6))
"""
ATTENTION = """class Attention(nn.Module):
    def __init__(self, config: {name}Config):
        super().__init__()
        self.scaling = 0.1

    def forward(self, q, k, v):
        return torch.matmul(F.softmax(torch.matmul(q, k.transpose(2, 3)) * self.scaling, dim=-1), v)
"""


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("FUSIONKIT_CACHE", str(tmp_path / "cache"))


def scanned(folder, capsys, *words):
    """(candidates of --json by symbol, report) of one command."""
    out = folder / "report.md"
    assert main(["scan", str(folder), "--json", "--lang", "en", "--out", str(out), *map(str, words)]) == 0
    found = json.loads(capsys.readouterr().out)["candidates"]
    return {item["symbol"]: item for item in found}, out.read_text("utf-8")


def part(text, title):
    return text.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


@pytest.mark.parametrize("norm", [CHANNELS, CHANNELS.replace("mean(1,", "mean(dim=-3,")])
def test_what_no_replacement_can_be_written_for_is_deferred_everywhere(tmp_path, capsys, norm):
    (tmp_path / "a.py").write_text(HEAD + norm)
    found, text = scanned(tmp_path, capsys)
    item = found["ChannelNorm"]
    assert item["recommend"] == "defer"
    assert item["reason"].startswith("no replacement can be written for it: ")
    assert "| deferred | 0 / 1 / 0 |" in part(text, "Summary")
    body, order = part(text, "Candidates"), part(text, "Suggested order")
    assert f"**deferred**: {item['reason']}" in body
    assert "```diff" not in body
    first, waiting = order.split("Then, once what they wait for")
    assert "ChannelNorm" not in first
    assert item["reason"] in waiting


def test_whatever_is_recommended_has_its_code_in_the_report(tmp_path, capsys):
    (tmp_path / "a.py").write_text(HEAD + NORM.format(name="A") + MLP + CHANNELS)
    found, text = scanned(tmp_path, capsys)
    assert {name for name, item in found.items() if item["recommend"] == "yes"} == {"ARMSNorm", "MLP"}
    assert part(text, "Candidates").count("```diff") == 2


def test_code_that_is_inherited_is_to_be_replaced_where_it_is_written(tmp_path, capsys):
    folder = tmp_path / "package"
    folder.mkdir()
    (tmp_path / "base.py").write_text(HEAD + NORM.format(name="A"))
    (tmp_path / "child.py").write_text("from .base import ARMSNorm\nclass Child(ARMSNorm):\n    pass\n")
    assert main(["scan", str(tmp_path / "child.py"), "--json"]) == 0
    (item,) = json.loads(capsys.readouterr().out)["candidates"]
    assert (item["recommend"], item["inherited_from"]) == ("defer", "base.py:ARMSNorm")
    assert "replace it in base.py:ARMSNorm" in item["reason"]


@pytest.mark.parametrize(
    ("types", "norm", "gate"),
    [
        (("RmsNorm", "RmsNorm", "SwiGlu"), "RmsNorm, 2 calls", "SwiGlu, 1 calls"),
        (("AddRmsNorm",), "AddRmsNorm, 1 calls", None),
        (("RmsNorm", "TopKV2", *NORM_KERNELS), None, None),  # fused here and not there
        (NORM_KERNELS, None, None),
    ],
)
def test_what_a_profile_shows_as_fused_is_deferred_and_says_why(tmp_path, capsys, types, norm, gate):
    (tmp_path / "a.py").write_text(HEAD + NORM.format(name="A") + MLP)
    found, text = scanned(tmp_path, capsys, "--profile", profile(tmp_path, kernels(types)))
    for symbol, told in (("ARMSNorm", norm), ("MLP", gate)):
        item = found[symbol]
        assert item["recommend"] == ("defer" if told else "yes")
        assert (f"already fused in the profile ({told})" in item["reason"]) == bool(told)
        assert item["reason"] in text


@pytest.mark.parametrize(
    ("config", "sizes", "hazard", "risk"),
    [
        ("qk_nope_head_dim: int = 128\n    qk_rope_head_dim: int = 64\n    v_head_dim: int | None = 128", [192, 128], True,
         "head size 192 of query and key, 128 of value by the configuration's defaults"),
        ("head_dim: int = 64\n    v_head_dim: int = 80", [64, 80], True, "these do NOT fit"),
        ("head_dim: int = 1024", [1024, 1024], True, "these do NOT fit"),
        ("hidden_size: int = 512\n    num_attention_heads: int = 8", [64, 64], False, "head size 64 of query and key"),
        ("hidden_size: int = 510\n    num_attention_heads: int = 8", [], False, "no configuration tells the head size"),
        ("hidden_act: str = 'silu'", [], False, "no configuration tells the head size"),
    ],
)  # fmt: skip
def test_head_sizes_come_from_the_configuration_or_are_asked_for(
    tmp_path, capsys, config, sizes, hazard, risk
):
    (tmp_path / "modeling_x.py").write_text(HEAD + ATTENTION.format(name="X"))
    (tmp_path / "configuration_x.py").write_text(f"class XConfig:\n    {config}\n")
    for _ in range(2):  # fresh and kept
        found, text = scanned(tmp_path, capsys)
        item = found["Attention"]
        assert item["head_sizes"] == sizes
        assert ("head_sizes" in item["hazards"]) == hazard
        assert item["recommend"] == ("defer" if "NOT" in risk else "yes")
        assert risk in part(text, "Candidates").split("**Risks**")[1].split("**Expected benefit**")[0]
