"""Laying one small graph over another: which nodes pair, and which deviations are the cheapest."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.fx.experimental.proxy_tensor import make_fx

from fusionkit.match.explanation.align import Aligner, twins
from fusionkit.match.explanation.calls import Calls

A = torch.ops.aten


def traced(fn, count=2):
    shapes = [torch.empty(2, 4, 8) for _ in range(count)]
    return make_fx(fn, tracing_mode="fake")(*shapes).graph


def aligned(pattern, graph, count=2):
    ours, theirs = traced(pattern, count), traced(graph, count)
    end = next(node for node in reversed(theirs.nodes) if node.op == "output").all_input_nodes[0]
    return Aligner(ours, Calls()).align(end)


def steps(alignment):
    return [(step.kind, step.p.name, step.g.name) for step in alignment.steps]


def chain(x, y):
    return A.mul.Tensor(A.rsqrt.default(A.add.Tensor(x, y)), A.neg.default(x))


def test_equal_graphs_pair_node_for_node():
    found = aligned(chain, chain)
    assert found.cost == 0.0
    assert {p.name: g.name for p, g in found.pairs.items()} == {n: n for n in ("add", "rsqrt", "neg", "mul")}
    assert [g.name for g in found.bindings.values()] == ["x_1", "y_1"]


CASES = {
    "a node more in the graph": (
        lambda x, y: A.mul.Tensor(A.rsqrt.default(A.relu.default(A.add.Tensor(x, y))), A.neg.default(x)),
        [("graph_only", "add", "relu")],
    ),
    "a node less in the graph": (
        lambda x, y: A.mul.Tensor(A.add.Tensor(x, y), A.neg.default(x)),
        [("pattern_only", "rsqrt", "add")],
    ),
    "another op": (
        lambda x, y: A.mul.Tensor(A.sqrt.default(A.add.Tensor(x, y)), A.neg.default(x)),
        [("substitute", "rsqrt", "sqrt")],
    ),
    "another order": (
        lambda x, y: A.mul.Tensor(A.neg.default(x), A.rsqrt.default(A.add.Tensor(x, y))),
        [("order", "mul", "mul")],
    ),
    "an order that only the arguments show": (
        lambda x, y: A.mul.Tensor(A.rsqrt.default(A.add.Tensor(y, x)), A.neg.default(x)),
        [("order", "add", "add")],
    ),
    "two deviations": (
        lambda x, y: A.mul.Tensor(A.neg.default(x), A.sqrt.default(A.add.Tensor(x, y))),
        [("order", "mul", "mul"), ("substitute", "rsqrt", "sqrt")],
    ),
}


@pytest.mark.parametrize(("graph", "wanted"), CASES.values(), ids=CASES)
def test_the_cheapest_deviation_is_found(graph, wanted):
    assert steps(aligned(chain, graph)) == wanted


def test_a_node_that_stands_twice_is_one_shared():
    def once(x, y):
        h = A.neg.default(x)
        return A.mul.Tensor(A.add.Tensor(h, y), h)

    found = aligned(once, lambda x, y: A.mul.Tensor(A.add.Tensor(A.neg.default(x), y), A.neg.default(x)))
    assert [step.kind for step in found.steps] == ["shared"]


def test_a_composite_op_is_its_parts():
    whole = aligned(lambda x, y: A.silu.default(x) + y, lambda x, y: x * torch.sigmoid(x) + y)
    parts = aligned(lambda x, y: x * torch.sigmoid(x) + y, lambda x, y: A.silu.default(x) + y)
    assert [(step.kind, step.p.name, step.g.name) for step in whole.steps] == [("composite", "silu", "mul")]
    assert [(step.kind, step.p.name, step.g.name) for step in parts.steps] == [("composite", "mul", "silu")]
    assert {node.name for node in parts.steps[0].members} == {"mul", "sigmoid"}


def test_a_limit_gives_nothing_rather_than_a_dear_alignment():
    ours, theirs = traced(chain), traced(lambda x, y: A.mul.Tensor(A.add.Tensor(x, y), x))
    end = next(node for node in theirs.nodes if node.name == "mul")
    assert Aligner(ours, Calls()).align(end, 0.5) is None
    assert Aligner(ours, Calls()).align(end) is not None


UNARY = [A.neg.default, A.rsqrt.default, A.relu.default, A.sigmoid.default, A.tanh.default, A.exp.default]


@settings(max_examples=40, deadline=None)
@given(ops=st.lists(st.sampled_from(range(len(UNARY))), min_size=2, max_size=6), at=st.integers(0, 6))
def test_one_inserted_node_is_one_deviation_wherever_it_is(ops, at):
    """Whatever the chain: a clone in it costs one step, at the clone."""

    def run(x, y, with_clone):
        for index, op in enumerate(ops):
            if with_clone and index == min(at, len(ops) - 1):
                x = A.clone.default(x)
            x = UNARY[op](x)
        return A.add.Tensor(x, y)

    found = aligned(lambda x, y: run(x, y, False), lambda x, y: run(x, y, True))
    assert [(step.kind, step.g.name) for step in found.steps] in ([("graph_only", "clone")], [])
    assert len(found.pairs) == len(ops) + 1


def test_twins_compute_the_same():
    graph = traced(lambda x, y: A.add.Tensor(A.neg.default(x), A.neg.default(x)) * y)
    one, other, add = [node for node in graph.nodes if node.op == "call_function"][:3]
    assert twins(one, other)
    assert not twins(one, add)
