"""Masks of attention in the fused branch: what drops still drops, and what keeps keeps, in numbers."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from replaced_modules import Recording, of_text

from fusionkit.identify.replacing import Refused, Replacement

HEAD = "import torch\nimport torch.nn.functional as F\nLOW = -1e9\nODD = 3.0\n"
CALLED = HEAD + "def f(q, k, v, mask, other=None):\n    return F.scaled_dot_product_attention(q, k, v, {})\n"
WRITTEN = (
    HEAD
    + "def f(q, k, v, mask, other=None):\n    s = (q @ k.transpose(-1, -2)) * 0.5\n    {}\n    return s.softmax(-1) @ v\n"
)


def result(text: str, tmp_path: Path) -> Replacement | Refused:
    return of_text(text, tmp_path, "npu_fusion_attention")


def both(text: str, tmp_path: Path, facade: ModuleType) -> tuple[object, object, Replacement]:
    """f as written and with its fused branch, which has to run."""
    made = result(text, tmp_path)
    assert isinstance(made, Replacement), made
    old, new = {}, {}
    exec(text, old)  # noqa: S102 - what is tested is a text
    exec(made.new_text, new)  # noqa: S102

    def run(*arguments: object) -> torch.Tensor:
        calls: list[str] = []
        new["torch_npu"] = Recording(facade, calls)
        found = new["f"](*arguments)
        assert calls == ["npu_fusion_attention"]
        return found

    return old["f"], run, made


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def operands(queries: int, keys: int) -> SimpleNamespace:
    q, k, v = draw(2, 3, queries, 4), draw(2, 3, keys, 4), draw(2, 3, keys, 4)
    mask = torch.rand((2, 1, queries, keys), generator=torch.Generator().manual_seed(1)) < 0.4
    mask[..., 0], mask[..., 1] = True, False  # no row is dropped throughout, whatever True means
    return SimpleNamespace(q=q, k=k, v=v, mask=mask)


def close(one: torch.Tensor, other: torch.Tensor) -> None:
    assert one.shape == other.shape
    assert (one - other).abs().max() < 1e-5


MASKS = [
    "attn_mask=mask",
    "attn_mask=~mask",
    "attn_mask=mask.logical_not()",
    "attn_mask=torch.logical_not(mask)",
    "attn_mask=mask == 0",
    "attn_mask=mask != 0",
    "attn_mask=~mask if mask is not None else None",
]
STEPS = [
    "s = s.masked_fill(mask, float('-inf'))",
    "s = s.masked_fill(~mask, -torch.inf)",
    "s = s.masked_fill(mask=mask, value=-1e9)",
    "s = s.masked_fill(mask == 0, torch.finfo(s.dtype).min)",
    "s = s.masked_fill(mask.to(torch.bool), LOW)",
    "s.masked_fill_(mask, float('-inf'))",
    "s = torch.where(mask, s, torch.full([], torch.finfo(s.dtype).min))",
    "s = torch.where(~mask, s, -torch.finfo(s.dtype).max)",
    "s = s.where(mask, -1e9)",
    "s = torch.where(mask, LOW, s)",
    "if mask is not None:\n        s = s.masked_fill(mask, float('-inf'))",
]


@pytest.mark.parametrize("text", [*map(CALLED.format, MASKS), *map(WRITTEN.format, STEPS)])
def test_a_mask_drops_what_it_dropped(text: str, tmp_path: Path, facade: ModuleType):
    old, new, made = both(text, tmp_path, facade)
    item = operands(5, 6)
    for mask in (item.mask, ~item.mask):  # both polarities, told apart
        close(new(item.q, item.k, item.v, mask), old(item.q, item.k, item.v, mask))
    assert (
        new(item.q, item.k, item.v, item.mask) - new(item.q, item.k, item.v, ~item.mask)
    ).abs().max() > 0.1
    assert made.new_text.count("masked_fill_(") == text.count("masked_fill_(")


@pytest.mark.parametrize("rank", [2, 3, 4])
@pytest.mark.parametrize("text", [CALLED.format("attn_mask=~mask"), WRITTEN.format(STEPS[0])])
def test_a_mask_of_fewer_dimensions(rank: int, text: str, tmp_path: Path, facade: ModuleType):
    old, new, _ = both(text, tmp_path, facade)
    item = operands(5, 6)
    mask = {2: item.mask[0, 0], 3: item.mask[0], 4: item.mask}[rank]
    close(new(item.q, item.k, item.v, mask), old(item.q, item.k, item.v, mask))


def test_no_mask_at_all(tmp_path: Path, facade: ModuleType):
    old, new, _ = both(WRITTEN.format(STEPS[-1]), tmp_path, facade)
    item = operands(5, 6)
    close(new(item.q, item.k, item.v, None), old(item.q, item.k, item.v, None))


IN_PLACE = WRITTEN.format("{}s.masked_fill_(mask, float('-inf'))")


def test_scores_that_are_masked_in_place_are_not_made_in_the_fused_branch(tmp_path: Path):
    made = result(IN_PLACE.format(""), tmp_path)
    fused = made.new_text.partition("    else:\n")[0]
    assert "q @ k" not in fused
    assert "masked_fill_" not in fused


def test_another_name_for_what_is_changed_in_place_keeps_the_change(tmp_path: Path, facade: ModuleType):
    text = IN_PLACE.format("t = s[0]\n    ").replace("@ v\n", "@ v, t\n")
    old, new, _ = both(text, tmp_path, facade)
    item = operands(5, 6)
    told = [f(item.q, item.k, item.v, item.mask) for f in (old, new)]
    close(told[0][0], told[1][0])
    assert torch.equal(told[0][1], told[1][1])


@pytest.mark.parametrize(
    "fill", ["0.0", "-1.0", "other", "1e9", "float('inf')", "ODD", "torch.finfo(s.dtype).max"]
)
def test_a_fill_that_is_not_seen_to_drop_is_refused(fill: str, tmp_path: Path):
    for step in (f"s = s.masked_fill(mask, {fill})", f"s = torch.where(mask, s, {fill})"):
        made = result(WRITTEN.format(step), tmp_path)
        assert isinstance(made, Refused)
        assert "not seen to drop" in made.reason


def test_a_float_mask_is_a_question_only_where_the_code_leaves_it_open(tmp_path: Path):
    told = {mask: " ".join(result(CALLED.format(mask), tmp_path).notes) for mask in MASKS}
    assert [mask for mask, notes in told.items() if "float mask" in notes] == [MASKS[0], MASKS[-1]]
    assert "float mask" not in " ".join(result(WRITTEN.format(STEPS[0]), tmp_path).notes)
    assert "float mask" in " ".join(result(WRITTEN.format("s = s + mask"), tmp_path).notes)


@pytest.mark.parametrize(("queries", "keys"), [*itertools.product([1, 5, 9], [1, 5, 9])])
@pytest.mark.parametrize("given", ["is_causal=True", "is_causal=mask"])
def test_causal_is_aligned_at_the_top_left(
    given: str, queries: int, keys: int, tmp_path: Path, facade: ModuleType
):
    """Sparse mode 2; mode 3, at the bottom right, differs from it where the lengths do."""
    old, new, made = both(CALLED.format(given), tmp_path, facade)
    item = operands(queries, 9)
    k, v = item.k[:, :, :keys], item.v[:, :, :keys]
    close(new(item.q, k, v, True), F.scaled_dot_product_attention(item.q, k, v, is_causal=True))
    close(new(item.q, k, v, False), old(item.q, k, v, False))
    assert "(2048, 2048, dtype=torch.bool, device=q.device).triu(1)" in made.new_text
    if 1 < keys != queries:
        template = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
        other = facade.npu_fusion_attention(
            item.q, k, v, 3, "BNSD", atten_mask=template, scale=0.5, sparse_mode=3
        )[0]
        assert (other - new(item.q, k, v, True)).abs().max() > 1e-3
    assert any("sparse_mode 2" in note for note in made.notes)


def test_a_mask_beside_a_choice_of_causal(tmp_path: Path, facade: ModuleType):
    old, new, _ = both(CALLED.format("attn_mask=mask, is_causal=other"), tmp_path, facade)
    item = operands(5, 6)
    close(new(item.q, item.k, item.v, item.mask, False), old(item.q, item.k, item.v, item.mask, False))
    close(new(item.q, item.k, item.v, None, True), old(item.q, item.k, item.v, None, True))


CHOSEN = "def f(q, k, v, mask, other=None, cross=False):\n    mask = other if cross else mask\n"


def test_a_mask_that_was_chosen_is_asked_by_its_own_name(tmp_path: Path, facade: ModuleType):
    text = WRITTEN.format("if mask is not None:\n        s = s + mask").replace(
        "def f(q, k, v, mask, other=None):\n", CHOSEN
    )
    old, new, _ = both(text, tmp_path, facade)
    item = operands(5, 6)
    low = torch.zeros_like(item.mask, dtype=torch.float32).masked_fill(item.mask, -1e9)
    for mask, other, cross in ((low, None, False), (None, low, False), (low, None, True), (None, low, True)):
        close(
            new(item.q, item.k, item.v, mask, other, cross), old(item.q, item.k, item.v, mask, other, cross)
        )
