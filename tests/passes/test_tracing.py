"""Tracing patterns: what is traced anew, and what is given again."""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from fusionkit.passes.tracing import make_tracer, remembering


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
