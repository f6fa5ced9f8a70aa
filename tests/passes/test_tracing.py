"""Tracing patterns: what is traced anew, and what is given again."""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from fusionkit.capture.foreign import npu_device
from fusionkit.config import select_patterns
from fusionkit.passes.match_pass import match_pass_for
from fusionkit.passes.registry import enabled_groups
from fusionkit.passes.tracing import make_tracer, remembering, searched_graphs


def test_a_function_is_traced_once_per_form_and_a_replacement_gets_values_of_its_own():
    calls = []
    plain = make_tracer({})

    def counting(fn, args, **keywords):
        calls.append(fn)
        return plain(fn, args, **keywords)

    def search(x):
        return x + 1

    def replacement(x):
        return (x * 2).t()

    traced = remembering(counting, search)
    with FakeTensorMode():
        small, big = torch.empty(2, 3), torch.empty(4, 3)
        assert traced(search, [small]) is traced(search, [torch.empty(2, 3)])
        first, second, other = (traced(replacement, [value]) for value in (small, small, big))
        traced(search, [torch.empty_strided((2, 3), (1, 2))])
    assert calls == [search, replacement, replacement, search]
    nodes = [
        [node for node in module.graph.nodes if node.op == "call_function"] for module in (first, second)
    ]
    assert [node.target for node in nodes[0]] == [node.target for node in nodes[1]]
    values = [[node.meta["val"] for node in found] for found in nodes]
    assert values[0][0] is not values[1][0]
    assert other.graph.find_nodes(op="call_function", target=torch.ops.aten.t.default)[0].meta[
        "val"
    ].shape == (3, 4)
    assert [value.shape for value in values[0]] == [value.shape for value in values[1]]


def test_the_kits_own_search_functions_are_traced_once_in_a_process_and_others_for_each_pass(monkeypatch):
    """Two passes over one pattern share its graph; a pattern of the user's may change between two passes."""
    groups = enabled_groups(select_patterns(("gelu",)))
    (first, *_) = groups["gelu"]

    class Users(first):
        pattern = staticmethod(lambda x: first.pattern(x))

    calls = []
    plain = make_tracer({})
    traced = lambda fn, args, **more: calls.append(fn) or plain(fn, args, **more)  # noqa: E731
    monkeypatch.setattr("fusionkit.passes.match_pass.make_tracer", lambda table: traced)
    entries = [match_pass_for(groups, "none").entries("gelu") for _ in range(3)]
    assert entries == [len(groups["gelu"])] * 3
    assert calls == [pattern.pattern for pattern in groups["gelu"]]
    values = [
        node.meta
        for graph in searched_graphs(traced, first.pattern, "cpu").values()
        for node in graph.graph.nodes
    ]
    assert values
    assert not any("val" in meta for meta in values)
    calls.clear()
    for _ in range(2):
        match_pass_for({"gelu": [Users]}, "none")
    assert calls == [Users.pattern] * 2
    calls.clear()
    for _ in range(2):  # which ops are traced whole on the slot of an npu depends on the graph
        match_pass_for(groups, "none", str(npu_device("npu")))
    assert len(calls) == 2 * len(groups["gelu"])


def test_a_tracer_belongs_to_one_table():
    table = {torch.ops.aten.silu.default: lambda x: x * torch.sigmoid(x)}
    assert make_tracer(table) is make_tracer(dict(table)) is not make_tracer({})
    assert make_tracer({}) is not make_tracer({}, sources=True)
