"""Loops over experts: which get code, in numbers, and what the others would need, in words."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from replaced_modules import Recording, of_text

from fusionkit.identify.replacing import Refused, Replacement

STACKED = """import torch
from torch import nn
import torch.nn.functional as F


class Experts(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.num_experts = config.num_experts
        self.up = nn.Parameter(torch.empty(config.stacked, config.hidden, config.inner))
        self.down = nn.Parameter(torch.empty(config.stacked, config.inner, config.hidden))

    def forward(self, x, chosen, weights):
        out = {start}
        for e in range({count}):
            {found}
            if token.numel() == 0:
                continue
            state = F.silu(x[token] @ self.up[e]) @ self.down[e]
            state = state * weights[token, slot, None]
            out.index_add_(0, token, state)
        return out
"""
FILLED = {
    "start": "torch.zeros_like(x)",
    "count": "self.num_experts",
    "found": "token, slot = torch.where(chosen == e)",
}
LISTED = """import torch
from torch import nn


class Expert(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.up = nn.Linear(c.hidden, c.inner, bias=False)
        self.down = nn.Linear(c.inner, c.hidden, bias=False)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


class MoE(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.num_experts = config.num_experts
        self.experts = nn.ModuleList([Expert(config) for _ in range(config.num_experts)])

    def forward(self, x, chosen, weights):
        out = torch.zeros_like(x)
        {loop}
        return out
"""


def result(text: str, tmp_path: Path) -> Replacement | Refused:
    return of_text(text, tmp_path, "npu_grouped_matmul")


@pytest.mark.parametrize("found", [FILLED["found"], "token, slot = torch.where(e == chosen)"])
@pytest.mark.parametrize(("stacked", "calls_fused"), [(4, True), (6, False)])
def test_experts_that_are_found_by_their_number(
    found: str, stacked: int, calls_fused: bool, tmp_path: Path, facade: object
):
    """Also with a number that no expert has, which the loop passes over; more experts than are counted run as written."""
    text = STACKED.format(**FILLED | {"found": found})
    made = result(text, tmp_path)
    assert isinstance(made, Replacement), made
    old, new, calls = {}, {}, []
    exec(text, old)  # noqa: S102 - what is tested is a text
    exec(made.new_text, new)  # noqa: S102
    new["torch_npu"] = Recording(facade, calls)
    config = SimpleNamespace(num_experts=4, stacked=stacked, hidden=8, inner=16)
    one, other = old["Experts"](config), new["Experts"](config)
    torch.manual_seed(0)
    for weight in one.parameters():
        torch.nn.init.normal_(weight)
    other.load_state_dict(one.state_dict())
    x, weights = torch.randn(7, 8), torch.rand(7, 2)
    chosen = torch.stack([torch.randperm(4)[:2] for _ in range(7)])
    chosen[0, 0], chosen[3, 1] = -1, 4
    with torch.no_grad():
        expected, actual = one(x, chosen, weights), other(x, chosen, weights)
    assert (expected - actual).abs().max() < 1e-4 * expected.abs().max()
    assert ("npu_grouped_matmul" in calls) is calls_fused


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"start": "torch.ones_like(x)"}, "not seen to be zeros"),
        ({"start": "x.clone()"}, "not seen to be zeros"),
        ({"start": "torch.zeros_like(x, dtype=torch.float32)"}, "dtype of the tokens"),
        ({"start": "torch.zeros(x.shape)"}, "dtype of the tokens"),
        ({"count": "1, self.num_experts"}, "from 0 on"),
        ({"found": "token, slot = torch.nonzero(chosen == e, as_tuple=True)"}, "not chosen by torch.where"),
    ],
)
def test_loops_that_compute_something_else_are_refused(given: dict[str, str], reason: str, tmp_path: Path):
    made = result(STACKED.format(**FILLED | given), tmp_path)
    assert isinstance(made, Refused)
    assert reason in made.reason


@pytest.mark.parametrize(
    "loop",
    [
        """for i, expert in enumerate(self.experts):
            token, slot = torch.where(chosen == i)
            out[token] += weights[token, slot, None] * expert(x[token])""",
        """for i in range(self.num_experts):
            token, slot = torch.where(chosen == i)
            out.index_add_(0, token, self.experts[i](x[token]) * weights[token, slot, None])""",
        """mask = torch.nn.functional.one_hot(chosen, self.num_experts).permute(2, 1, 0)
        for i in range(self.num_experts):
            slot, token = torch.where(mask[i])
            out.index_add_(0, token, self.experts[i](x[token]) * weights[token, slot, None])""",
    ],
)
def test_experts_that_are_modules_are_told_to_be_stacked(loop: str, tmp_path: Path):
    reason = result(LISTED.format(loop=loop), tmp_path).reason
    assert "modules of their own" in reason
    assert "[E, K, N]" in reason


def test_a_list_of_weights_is_told_to_be_stacked(tmp_path: Path):
    text = STACKED.format(**FILLED)
    for name in ("up", "down"):
        start = text.index(f"self.{name} = ")
        line = text[start : text.index("\n", start)]
        text = text.replace(line, f"self.{name} = nn.ParameterList([torch.empty(8, 8) for _ in range(4)])")
    reason = result(text, tmp_path).reason
    assert "a list with a weight for each expert" in reason
    assert "[E, K, N]" in reason
