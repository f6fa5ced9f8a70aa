"""Casts and copies: a cast moves behind what was computed before it, and an offer that leaves more says so."""

from __future__ import annotations

import pytest
from shared_models import compiled

from fusionkit.match.matching import match_groups
from fusionkit.match.repairing.copies import copies_left, kit_groups
from fusionkit.match.repairing.proof import groups_of_file
from fusionkit.match.repairing.repair import repair

HAND = """
import torch

from fusionkit.patterns import PatternBase


class HandPattern(PatternBase):
    name = staticmethod(lambda: "Hand")

    @staticmethod
    def inputs():
        x = torch.empty(2, 4, 8, 16, dtype=torch.bfloat16, device="meta")
        return [x, torch.empty(16, dtype=torch.bfloat16, device="meta")]

    @staticmethod
    def pattern(x, weight):
        h = x.to(torch.float32)
        scale = torch.rsqrt(torch.ops.aten.add.Scalar({mean}, {eps}))
        return {end}

    @staticmethod
    def replacement(x, weight):
        return torch.ops.npu.npu_rms_norm(x, weight, {eps})[0]


HandPatternGroup = [HandPattern]
"""


@pytest.fixture(scope="module")
def flux():
    return compiled("flux", plain=True).capture()


def hand_file(folder, **parts):
    path = folder / "hand_pattern.py"
    path.write_text(HAND.format(**parts))
    return path


def test_a_cast_before_the_gain_moves_behind_it(flux, tmp_path):
    """flux multiplies by the gain before it casts back; the pattern casts first."""
    path = hand_file(
        tmp_path, mean="h.pow(2).mean(-1, keepdim=True)", eps="1e-4", end="weight * (h * scale).to(x.dtype)"
    )
    report = repair(flux, path)
    assert (report.before, report.after, report.offered) == (0, 12, True), report.reason
    assert (report.copies.sites, report.copies.more) == (12, 0)
    (edits,) = report.edits.values()
    assert any(line.startswith("dtype_path: no cast -> aten._to_copy") for line in edits)
    body = report.text.partition("# Repaired for")[2].partition("def replacement")[0]
    assert body.count("= torch.ops.aten._to_copy.default(") == 2
    assert body.rstrip().removesuffix("@staticmethod").rstrip().endswith("return to_copy_2")


def match_without_the_last_cast(flux, folder):
    path = hand_file(
        folder,
        mean="torch.ops.aten.mean.dim(h.pow(2), [x.dim() - 1], True)",
        eps="9.999999974752427e-07",
        end="h * scale * weight",
    )
    return match_groups(flux, groups_of_file(path), "before-freezing")


def test_a_file_that_leaves_a_cast_says_how_many_more(flux, tmp_path):
    """Without the cast at its end, each of the twelve sites keeps it, as a copy between equal dtypes."""
    matching = match_without_the_last_cast(flux, tmp_path)
    left = copies_left(matching, kit_groups("rms_norm"))
    assert (left.sites, left.more) == (12, 12)
    assert str(left) == "it leaves 12 more casts and copies than the kit's rms_norm at the same 12 sites"


def test_nothing_is_compared_where_the_kit_does_not_hit(flux, tmp_path):
    matching = match_without_the_last_cast(flux, tmp_path)
    assert copies_left(matching, kit_groups("gelu")) is None
    assert kit_groups("nonesuch") == {}
