"""Prefix isolation: the count falls exactly at the op that was changed."""

import dataclasses

import pytest
from norm_chains import EPS, chain, matching
from shared_models import compiled, counts_of

from fusionkit.errors import MisuseError
from fusionkit.match.explanation.isolation import isolate, isolate_capture
from fusionkit.match.explanation.variants import Variant

CASES = {
    "hits": (chain(), None),
    "eps": (chain(eps=1e-6), "add"),
    "dim": (chain(dim=[-1]), "mean"),
    "power": (chain(power=3), "pow_1"),
    "order": (chain(swap=True), "mul"),
}


@pytest.mark.parametrize(("fn", "falls_at"), CASES.values(), ids=CASES)
def test_the_count_falls_at_the_changed_op(fn, falls_at):
    found = matching(fn)
    variant = Variant(found.groups["rms_norm"][0], found.tracer(), "cpu")
    report = isolate(found.graphs, variant, found.tracer(), "cpu", 12)
    assert (None if report.falls_at is None else report.falls_at.node) == falls_at
    counts = [level.hits for level in report.levels]
    assert counts[0] == 37  # casts to float32 in tiny FLUX, norms or not
    assert counts[1] in (12, 0)
    assert counts[-1] == (12 if falls_at is None else 0)
    assert [level.nodes for level in report.levels] == list(range(1, len(report.levels) + 1))


def test_without_a_count_one_hit_is_enough():
    found = matching(chain(eps=EPS))
    variant = Variant(found.groups["rms_norm"][0], found.tracer(), "cpu")
    report = isolate(found.graphs, variant, found.tracer(), "cpu")
    assert report.falls_at is None
    assert report.to_dict()["falls_at"] is None


def test_a_kit_pattern_by_name_gets_furthest_first():
    capture = dataclasses.replace(compiled("flux", plain=True).capture(), counts=counts_of("flux"))
    report = isolate_capture(capture, "rms_norm")
    assert report.variants[0].variant == "RmsNormPattern_bfloat16"
    assert report.variants[0].falls_at is None
    assert report.variants[0].sites == 12
    assert report.variants[-1].falls_at is not None


def test_an_absent_window_is_misuse():
    capture = compiled("flux", plain=True).capture()
    with pytest.raises(MisuseError, match="no graph was captured in window after-freezing"):
        isolate_capture(capture, "rms_norm", window="after-freezing")
