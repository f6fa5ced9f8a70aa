"""What became of the ops of a place, on graphs of a few nodes."""

import torch

from fusionkit.capture.graphs import CapturedGraph, GraphKey
from fusionkit.match.rewrites import find_rewrites

A = torch.ops.aten


def graph(*calls):
    """A graph of calls (op, module, file:line, statement)."""
    made = torch.fx.Graph()
    x = made.placeholder("x")
    for op, module, source, text in calls:
        node = made.call_function(op, (x,))
        name, line = source.split(":")
        node.meta["nn_module_stack"] = {"m": (module, "")}
        node.meta["stack_trace"] = f'  File "{name}", line {line}, in forward\n    {text}\n'
    made.output(x)
    return [CapturedGraph(GraphKey(0, "inference", ""), "w", torch.fx.GraphModule(torch.nn.Module(), made))]


def told(a, b):
    return [(dict(r.a), dict(r.b), r.places, r.modules, r.sources) for r in find_rewrites(a, b)]


MM, VIEW, MATMUL = A.mm.default, A.view.default, A.matmul.default


def test_like_changes_at_many_places_are_one_rewrite():
    a = graph(*[(op, f"l.{i}", f"m.py:{i}", f"y{i}") for i in range(3) for op in (VIEW, MM)])
    b = graph(*[(MATMUL, f"l.{i}", f"m.py:{i}", f"y{i}") for i in range(3)])
    assert told(a, b) == [
        (
            {"aten.mm.default": 1, "aten.view.default": 1},
            {"aten.matmul.default": 1},
            3,
            ("l.0", "l.1", "l.2"),
            ("m.py:0", "m.py:1", "m.py:2"),
        )
    ]


def test_a_statement_that_moved_to_another_line_is_the_same():
    assert told(graph((MM, "l", "m.py:3", "y = x @ w")), graph((MM, "l", "m.py:9", "y = x @ w"))) == []


def test_statements_are_told_apart_also_where_all_lines_moved():
    a = graph((MM, "l", "m.py:3", "y = a"), (VIEW, "l", "m.py:4", "z = b"))
    b = graph((MATMUL, "l", "m.py:13", "y = a"), (A.t.default, "l", "m.py:14", "z = b"))
    assert [(row[0], row[1]) for row in told(a, b)] == [
        ({"aten.mm.default": 1}, {"aten.matmul.default": 1}),
        ({"aten.view.default": 1}, {"aten.t.default": 1}),
    ]


def test_ops_that_stand_under_another_statement_are_no_change():
    assert told(graph((MM, "l", "m.py:3", "y = x @ w")), graph((MM, "l", "m.py:3", "return x @ w"))) == []


def test_another_branch_of_a_module_is_one_rewrite():
    a = graph((VIEW, "l", "m.py:3", "v"), (MM, "l", "m.py:4", "w"))
    b = graph((MATMUL, "l", "m.py:9", "u"))
    assert told(a, b) == [
        (
            {"aten.mm.default": 1, "aten.view.default": 1},
            {"aten.matmul.default": 1},
            1,
            ("l",),
            ("m.py:3", "m.py:4", "m.py:9"),
        )
    ]


def test_statements_that_one_side_lacks_stay_apart():
    a = graph((VIEW, "l", "m.py:3", "v"), (MM, "l", "m.py:4", "w"))
    assert told(a, graph()) == [
        ({"aten.view.default": 1}, {}, 1, ("l",), ("m.py:3",)),
        ({"aten.mm.default": 1}, {}, 1, ("l",), ("m.py:4",)),
    ]


def test_the_most_frequent_comes_first_and_equal_graphs_have_none():
    a = graph((MM, "a", "m.py:1", "s"), (VIEW, "b", "m.py:2", "t"), (VIEW, "c", "m.py:3", "u"))
    assert told(a, a) == []
    assert [row[2] for row in told(a, graph())] == [2, 1]
