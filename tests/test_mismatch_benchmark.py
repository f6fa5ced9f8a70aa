"""The benchmark of misses: the labels of its operators, held against examples that were worked out by hand."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from mismatches import case, class_cases, classes, generate, labels, score, sites  # noqa: E402
from mismatches.capsules import OWN  # noqa: E402
from mismatches.classes import change, mutated  # noqa: E402
from mismatches.operators import OPERATORS  # noqa: E402
from mismatches.own_patterns import OwnPatternGroup  # noqa: E402

from fusionkit.capture.capturing import capture_graphs  # noqa: E402
from fusionkit.npu.target import use_target  # noqa: E402
from fusionkit.patterns import (  # noqa: E402
    AdaLayerNormPatternGroup,
    GeluPatternGroup,
    RmsNormPatternGroup,
    RopePatternGroup,
    SwigluPatternGroup,
)
from fusionkit.subjects.load import load_subject  # noqa: E402

NORM, ROPE, SWIGLU = RmsNormPatternGroup[1], RopePatternGroup[1], SwigluPatternGroup[0]
# What torch dispatches for NORM, ROPE and SWIGLU, by number.
OPS = {
    NORM: "_to_copy pow mean add rsqrt mul _to_copy mul",
    ROPE: "slice slice mul neg cat mul add",
    SWIGLU: "t view mm _unsafe_view silu t view mm _unsafe_view mul",
}
# Operator -> pattern, op, seed, cause type, what the changed nodes are, sites that a two-layer Llama then misses.
BY_HAND = {
    "change_scalar": (NORM, 1, 0, "scalar_literal", "pow(2 -> 3)", 5),
    "change_dim": (NORM, 2, 0, "dim_literal", "mean([-1] -> [2])", 5),
    "change_size": (SWIGLU, 1, 0, "dynamic_shape", "view", 2),
    "freeze_size": (SWIGLU, 1, 0, "retrace_error", "", 2),
    "swap_operands": (NORM, 5, 0, "argument_order", "mul", 5),
    "other_overload": (NORM, 3, 0, "overload", "add", 5),
    "insert_cast": (NORM, 2, 0, "dtype_path", "_to_copy _to_copy", 5),
    "widen": (NORM, 2, 0, "dtype_path", "_to_copy", 5),
    "change_cast": (NORM, 0, 1, "dtype_path", "_to_copy", 5),
    "drop_cast": (NORM, 6, 0, "dtype_path", "mul mul", 5),
    "insert_node": (NORM, 4, 2, "missing_node", "clone", 5),
    "insert_before": (NORM, 4, 0, "missing_node", "neg", 5),
    "drop_node": (ROPE, 3, 0, "missing_node", "cat slice", 4),
    "replace_node": (NORM, 4, 0, "missing_node", "sqrt", 5),
    "prims_cast": (NORM, 0, 0, "decomposition", "convert_element_type", 5),
    "prims_op": (NORM, 4, 0, "decomposition", "rsqrt", 5),
    "decompose": (SWIGLU, 4, 0, "decomposition", None, 2),
    "more_kwargs": (NORM, 2, 0, "kwargs_structure", "mean", 5),
    "compute_twice": (NORM, 0, 0, "shared_node", "_to_copy _to_copy", 5),
    "absent_root": (NORM, 7, 0, "root_not_indexed", "erfinv", 5),
}


@pytest.fixture(scope="module")
def capture():
    use_target("cpu")
    return capture_graphs(load_subject("llama"))


@pytest.fixture(scope="module")
def originals(capture):
    return {original.pattern: original for original in generate.originals_of(capture)}


@pytest.fixture(scope="module")
def graph(capture):
    return {node.name: node for node in capture.graphs[0].nodes}


def packets(nodes) -> str:
    return " ".join(sorted(str(node.target).split(".")[1] for node in nodes))


def name_of(fx_node) -> str:
    return str(fx_node.target).split(".")[1]


class TestOperators:
    def test_every_operator_has_an_example(self):
        assert set(BY_HAND) == set(OPERATORS)

    @pytest.mark.parametrize("operator", sorted(BY_HAND))
    def test_label_is_what_was_worked_out_by_hand(self, operator, capture, originals, graph):
        pattern, at, seed, kind, changed, missed = BY_HAND[operator]
        step = change(operator, at=at, seed=seed)
        expected = generate.expect(capture, originals[pattern], (step,))
        trace = {node.name: node for node in sites.traced(mutated(pattern, step)).graph.nodes}
        assert len(expected) == missed
        for item in expected:
            (label,) = item.labels
            assert label.type == kind
            if changed is not None:
                told = " ".join(word.partition("(")[0] for word in changed.split(" -> ")[0].split())
                assert packets(trace[name] for name in label.pattern_nodes) == told
            if kind not in ("retrace_error", "root_not_indexed"):
                assert OPS[pattern].split()[at] in {name_of(graph[name]) for name in label.graph_nodes}
            assert label.graph_nodes <= set(graph)

    def test_a_change_that_torch_matches_all_the_same_is_no_case(self, capture, originals):
        # Without its first cast the norm begins behind it, and every site still matches.
        assert generate.expect(capture, originals[NORM], (change("drop_cast", at=0),)) == ()

    def test_a_change_that_makes_the_rest_of_the_trace_another_is_no_case(self, capture, originals):
        # Without the first cast FLUX's norm has no cast back either: two changes, one label would be wrong.
        plain, changed = (
            mutated(RmsNormPatternGroup[0]),
            mutated(RmsNormPatternGroup[0], change("drop_cast", at=0)),
        )
        sites.traced(plain)
        sites.traced(changed)
        assert not labels.same_elsewhere(plain.events, changed.events, {0})

    def test_two_changes_have_two_labels(self, capture, originals):
        steps = change("change_scalar", at=1), change("swap_operands", at=5)
        expected = generate.expect(capture, originals[NORM], steps)
        assert [[label.type for label in item.labels] for item in expected] == [
            ["scalar_literal", "argument_order"]
        ] * 5


class TestSites:
    def test_ops_of_a_pattern_stand_for_the_nodes_of_the_graph_in_order(self, originals, graph):
        for pattern, ops in OPS.items():
            for site in originals[pattern].sites:
                named = [name_of(graph[site.of_op[position]]) for position in sorted(site.of_op)]
                assert " ".join(named) == ops

    def test_a_twin_pattern_of_another_dtype_has_the_same_anchors(self, originals):
        anchors = [{s.found.anchor for s in originals[RopePatternGroup[i]].sites} for i in (1, 3)]
        assert anchors[0] == anchors[1]
        assert len(anchors[0]) == 4


class TestGraphEdits:
    @pytest.mark.parametrize("operator", sorted(generate.EDITS))
    def test_only_the_site_that_was_changed_is_dropped(self, operator, capture, originals):
        chosen = {"graph_copy": NORM}.get(operator, SWIGLU)
        chance = generate.chance_for(capture, 0, operator)
        made = generate._one_graph_case(capture, originals[chosen], operator, chance)
        assert made is not None
        assert made.types == (generate.EDITS[operator][0],)
        (item,) = made.expected
        nodes = {node.name: node for node in made.capture.graphs[0].nodes}
        assert item.labels[0].graph_nodes <= set(nodes)
        assert len(capture.graphs[0].nodes) <= len(nodes)  # the capture itself stays as it was

    def test_the_shared_capture_is_not_touched(self, capture, originals):
        before = capture.graphs[0].module.graph.python_code("self").src
        list(generate.graph_cases(capture, [originals[NORM]], 0, 1))
        assert capture.graphs[0].module.graph.python_code("self").src == before


class TestClassCases:
    @pytest.mark.parametrize(
        ("maker", "pattern", "kind", "missed"),
        [
            (class_cases.burned_scalar, NORM, "scalar_literal", 5),
            (class_cases.closure, NORM, "parameter_source", 5),
            (class_cases.unused, SWIGLU, "unused_argument", 2),
            (class_cases.raising, SWIGLU, "retrace_error", 2),
            (class_cases.misfit, NORM, "extra_check", 5),
            (class_cases.duplicate, NORM, "duplicate", 5),
            (class_cases.consumed, NORM, "consumed_earlier", 5),
            (class_cases.flag_off, SWIGLU, "flag_off", 2),
            (class_cases.not_registered, SWIGLU, "not_registered", 2),
        ],
    )
    def test_type_and_sites(self, maker, pattern, kind, missed, capture, originals):
        made = maker(capture, originals[pattern], generate.chance_for(capture, 0, "test"))
        assert made is not None
        assert made.types == (kind,)
        assert len(made.expected) == missed

    def test_eps_of_the_burned_scalar_is_the_add(self, capture, originals, graph):
        made = class_cases.burned_scalar(capture, originals[NORM], generate.chance_for(capture, 0, "test"))
        (name,) = made.expected[0].labels[0].graph_nodes
        assert name_of(graph[name]) == "add"

    def test_a_taker_is_tried_before_the_pattern(self, capture, originals):
        made = class_cases.consumed(capture, originals[NORM], generate.chance_for(capture, 0, "test"))
        victim, taker = made.registered
        assert taker == f"taker_{victim}"

    def test_wrong_window_needs_the_other_window(self, capture, originals):
        assert (
            class_cases.wrong_window(capture, originals[NORM], generate.chance_for(capture, 0, "test"))
            is None
        )

    def test_files_load_and_give_the_pattern_that_was_counted(self, capture, originals, tmp_path):
        from fusionkit.pattern_files.pattern_file import read_pattern_file

        steps = (change("swap_operands", at=5),)
        path = tmp_path / "case_pattern.py"
        path.write_text(
            case.file_text("fusionkit.patterns import RmsNormPatternGroup", case.steps_text(1, steps))
        )
        (loaded,) = read_pattern_file(path).patterns
        assert loaded.name() == mutated(NORM, *steps).name()
        assert sites.torch_matches([loaded], capture.graphs) == []


class TestOneOp:
    def test_gelu_written_out_becomes_one_node(self):
        whole = mutated(classes.as_one_op(GeluPatternGroup[1], "gelu"))
        assert [node.name for node in sites.traced(whole).graph.nodes if node.op == "call_function"] == [
            "gelu"
        ]

    def test_single_op_has_the_ops_own_literals(self):
        taker = classes.takes(AdaLayerNormPatternGroup[0], 2)
        assert len(taker.inputs()) == 1
        assert taker.pattern(torch.ones(2)).tolist() == [2.0, 2.0]


def made_site(anchor: str = "root", module: str = "m") -> sites.Site:
    return sites.Site(
        sites.Found(0, anchor, ("inner", anchor), (anchor,)), module, (module,), {0: "inner"}, ("x",)
    )


def made_case(*expected: labels.Expected) -> case.Case:
    return case.Case("c", "s", "v", "o", None, expected, (made_site(), made_site("other", "n")), {})


def told(*causes: tuple[str, str, str], anchor: str = "root", module: str = "m") -> score.Explained:
    return score.Explained(anchor, module, tuple(score.Told(*cause) for cause in causes))


class TestScore:
    LABEL = labels.Label("overload", frozenset({"add_1"}), frozenset({"inner"}))
    CASE = made_case(labels.Expected(made_site(), (LABEL,)))

    def test_right(self):
        got = score.score(self.CASE, score.Outcome((told(("overload", "add_1", "inner")),)))
        assert (got.type, got.node, got.extra, got.false) == (True, True, 0, 0)

    def test_one_side_may_be_left_open(self):
        assert score.score(self.CASE, score.Outcome((told(("overload", "", "inner")),))).node is True

    @pytest.mark.parametrize(
        "cause", [("overload", "mul", "inner"), ("overload", "add_1", "root"), ("overload", "", "")]
    )
    def test_a_wrong_node_on_either_side_is_wrong(self, cause):
        got = score.score(self.CASE, score.Outcome((told(cause),)))
        assert (got.type, got.node) == (True, False)

    def test_the_first_cause_counts_and_the_others_are_extra(self):
        got = score.score(
            self.CASE, score.Outcome((told(("missing_node", "a", "b"), ("overload", "add_1", "inner")),))
        )
        assert (got.type, got.node, got.extra) == (False, False, 1)

    def test_nothing_said_is_wrong(self):
        got = score.score(self.CASE, score.Outcome(()))
        assert (got.type, got.node) == (False, False)

    def test_a_site_is_found_by_its_module_where_its_anchor_is_another(self):
        outcome = score.Outcome((told(("overload", "add_1", "inner"), anchor="elsewhere"),))
        assert score.score(self.CASE, outcome).type is True

    def test_a_diagnosis_of_a_site_that_hits_is_counted(self):
        wrong = told(("overload", "add_1", "inner"), anchor="other", module="n")
        assert score.score(self.CASE, score.Outcome((wrong,))).false == 1

    def test_two_changes_must_both_be_named(self):
        second = labels.Label("dim_literal", frozenset({"mean"}), frozenset({"mean_4"}))
        both = made_case(labels.Expected(made_site(), (self.LABEL, second)))
        one = told(("overload", "add_1", "inner"))
        assert score.score(both, score.Outcome((one,))).type is False
        all_told = told(("dim_literal", "mean", "mean_4"), ("overload", "add_1", "inner"))
        assert score.score(both, score.Outcome((all_told,))).type is True

    def test_a_refusal_that_names_the_cause_is_right(self):
        unused = made_case(labels.Expected(made_site(), (labels.Label("unused_argument"),)))
        right = score.Outcome((), "pattern x: argument 'unused' is not used by pattern(); remove it")
        assert score.score(unused, right).type is True
        assert score.score(unused, score.Outcome((), "crash KeyError: 'x'")).type is False

    def test_a_label_can_be_told_as_plain_types(self):
        assert dataclasses.asdict(self.LABEL)["type"] == "overload"
        assert self.LABEL.to_dict() == {"type": "overload", "pattern": ["add_1"], "graph": ["inner"]}


def test_every_pattern_for_the_user_like_models_hits_there():
    capture = dataclasses.replace(capture_graphs(load_subject(OWN)), subject=OWN)
    originals = generate.originals_of(capture)
    assert [original.pattern for original in originals] == OwnPatternGroup
    assert {original.group for original in originals} == {"mismatches.own_patterns import OwnPatternGroup"}
