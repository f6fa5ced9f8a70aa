"""Bytes and op calls of both sides, against sums done by hand."""

import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from fusionkit.identify.proving.traffic import Ledger, Traffic, Work, difference
from fusionkit.npu.target import use_target


def entries(function, *arguments):
    with torch.no_grad(), Ledger() as ledger:
        function(*arguments)
    return ledger.entries


def test_a_gate_of_two_tensors_moves_more_where_the_op_needs_them_joined():
    npu = use_target("cpu")
    gate, up = torch.randn(2, 7, 64), torch.randn(2, 7, 64)
    one = 2 * 7 * 64 * 4
    original, replaced = difference(
        entries(lambda: F.silu(gate) * up),
        entries(lambda: npu.npu_swiglu(torch.cat((gate, up), -1))),
    )
    assert original == Work((("silu", 1), ("mul", 1)), 5 * one)
    assert replaced == Work((("cat", 1), ("npu::npu_swiglu", 1)), 7 * one)
    assert not Traffic("forward", "float32", original, replaced).saves


def test_a_gate_of_two_halves_moves_less():
    npu = use_target("cpu")
    x = torch.randn(2, 7, 128)
    one = 2 * 7 * 64 * 4

    def halves():
        gate, up = x.chunk(2, -1)
        return F.silu(gate) * up

    original, replaced = difference(entries(halves), entries(lambda: npu.npu_swiglu(x)))
    assert (original.bytes, replaced.bytes) == (5 * one, 3 * one)
    assert Traffic("forward", "float32", original, replaced).saves


def test_what_both_sides_do_is_left_out():
    weight, x = torch.randn(8, 8), torch.randn(3, 8)
    both = difference(
        entries(lambda: F.linear(x, weight).relu()), entries(lambda: F.linear(x, weight).sigmoid())
    )
    assert both == (Work((("relu", 1),), 2 * 96), Work((("sigmoid", 1),), 2 * 96))


@given(st.integers(1, 4), st.integers(1, 5))
def test_views_and_allocations_do_no_work_and_expanded_dimensions_are_read_once(rows, columns):
    x = torch.ones(rows, columns)
    assert entries(lambda: x.t().unsqueeze(0).expand(3, columns, rows)) == []
    assert entries(lambda: torch.empty(3)) == []
    wide = torch.ones(1).expand(rows, columns)
    assert [moved for _, _, moved in entries(lambda: x + wide)] == [4 * (2 * rows * columns + 1)]


def test_an_op_in_place_writes_what_it_read_and_a_copy_only_writes():
    x, y = torch.ones(4), torch.ones(4)
    assert [(name, moved) for name, _, moved in entries(lambda: x.mul_(2))] == [("aten::mul_", 32)]
    assert [(name, moved) for name, _, moved in entries(lambda: x.copy_(y))] == [("aten::copy_", 32)]
    assert [(name, moved) for name, _, moved in entries(lambda: x.zero_())] == [("aten::zero_", 16)]


def test_as_many_bytes_in_fewer_calls_saves():
    few, many = Work((("a", 1),), 8), Work((("b", 1), ("c", 1)), 8)
    assert Traffic("forward", "float32", many, few).saves
    assert not Traffic("forward", "float32", few, many).saves
    assert not Traffic("forward", "float32", few, few).saves
