"""Prefix isolation: the count falls exactly at the op that was changed."""

import dataclasses

import pytest
import torch
from norm_chains import EPS, chain, matching
from shared_models import compiled, counts_of

from fusionkit.capture.aot import decomposition_table
from fusionkit.capture.capturing import capture_graphs
from fusionkit.errors import MisuseError
from fusionkit.match.explanation.isolation import isolate, isolate_capture
from fusionkit.match.explanation.variants import Variant
from fusionkit.npu.target import use_target
from fusionkit.passes.tracing import make_tracer
from fusionkit.patterns import PatternBase
from fusionkit.subjects.build import Subject

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


def turned(x, weight, power=2, sign=-1):
    """Writes into tensors of its own, of which the trace holds functional forms."""
    out = torch.empty_like(x)
    out[..., ::2] = sign * x[..., 1::2]
    out[..., 1::2] = x[..., ::2].pow(power)
    half, other = (out * weight).chunk(2, -1)
    return torch.tanh(half.add_(1.0)) * other


class Turned(torch.nn.Module):
    def forward(self, x, weight):
        return turned(x, weight)


def levels_of(fn, decompositions="none"):
    class Pattern(PatternBase):
        name = staticmethod(lambda: "Turned")
        inputs = staticmethod(lambda: [torch.empty(2, 4, 8, device="meta"), torch.empty(8, device="meta")])
        pattern = staticmethod(fn)
        replacement = staticmethod(fn)

    use_target("cpu")
    subject = Subject(Turned(), (torch.randn(3, 6, 16), torch.randn(16)), name="turned", dtype="float32")
    capture = capture_graphs(subject, decompositions=decompositions)
    table = decomposition_table(decompositions)
    trace = make_tracer(table)
    return isolate(capture.graphs, Variant(Pattern, trace, "cpu"), trace, "cpu", None, table)


@pytest.mark.parametrize(
    ("change", "falls_at"), [({}, None), ({"power": 3}, "pow_1"), ({"sign": 2}, "mul")], ids=str
)
def test_a_pattern_that_writes_falls_where_its_functional_form_does(change, falls_at):
    report = levels_of(lambda x, weight: turned(x, weight, **change))
    assert (None if report.falls_at is None else report.falls_at.node) == falls_at
    assert {"slice_scatter.default", "copy.default"} <= {
        level.call.partition("(")[0].partition(".")[2] for level in report.levels
    }
    if falls_at is None:
        assert all(level.hits for level in report.levels), report.levels
    else:
        assert report.levels[-1].hits == 0


def test_a_decomposed_op_has_a_level_for_each_op_of_its_decomposition():
    class Silu(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.silu(x) * x

    class Pattern(PatternBase):
        name = staticmethod(lambda: "Silu")
        inputs = staticmethod(lambda: [torch.empty(2, 8, device="meta")])
        pattern = staticmethod(lambda x: torch.nn.functional.silu(x) * x)
        replacement = staticmethod(lambda x: torch.nn.functional.silu(x) * x)

    use_target("cpu")
    subject = Subject(Silu(), (torch.randn(3, 16),), name="silu", dtype="float32")
    capture = capture_graphs(subject, decompositions="inductor")
    table = decomposition_table("inductor")
    trace = make_tracer(table)
    report = isolate(capture.graphs, Variant(Pattern, trace, "cpu"), trace, "cpu", None, table)
    assert [level.call.partition("(")[0] for level in report.levels] == [
        "aten.neg.default", "aten.exp.default", "aten.add.Tensor", "aten.div.Tensor", "aten.mul.Tensor",
    ]  # fmt: skip
    assert [level.hits for level in report.levels] == [1] * 5


def test_a_function_that_decomposes_otherwise_than_its_trace_is_one_line():
    with pytest.raises(MisuseError, match="other ops than its function calls"):
        levels_of(lambda x, weight: turned(x, weight), "inductor")
