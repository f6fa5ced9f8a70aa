"""npu_gelu in place of GELU: called by name, or a module that the class builds."""

from __future__ import annotations

import ast

from fusionkit.identify.replacing.activation_kinds import activation_at, form_of
from fusionkit.identify.replacing.place import Place, call
from fusionkit.identify.replacing.replacement import Change, Unfit
from fusionkit.identify.replacing.statements import Statements
from fusionkit.identify.rules.activations import GELU
from fusionkit.identify.rules.unit import Unit
from fusionkit.identify.source.values import sides

_NOTE = (
    "on the NPU F.gelu itself is the tanh form whatever is asked: npu_gelu keeps to the form that is named"
)


def replace_gelu(place: Place) -> list[Change]:
    """The change for one call of GELU. Raises Unfit where its form is not told."""
    told = activation_at(place, place.value)
    return [_change(place, told.argument, told.tanh)]


def calls_of_gelus(unit: Unit, statements: Statements, symbol: str) -> list[Change]:
    """The changes for calls self.act(x) in one method of a class whose self.act is a GELU of one form."""
    if unit.cls is None or symbol != unit.cls.name:
        return []
    found = []
    for value in unit.of("module"):
        held, node = unit.built(value.name), value.node
        told = {form_of(side) for side in sides(held)} if held is not None else set()
        form = next(iter(told)) if len(told) == 1 else None
        if form is not None and form[0] == GELU and isinstance(node, ast.Call) and len(node.args) == 1:
            found.append(_change(Place(unit, statements, value, frozenset()), node.args[0], form[1]))
    return found


def _change(place: Place, argument: ast.expr, tanh: bool) -> Change:
    if place.value.node is None:
        raise Unfit("the activation stands nowhere")
    form = "tanh" if tanh else "none"
    text = call("torch_npu.npu_gelu", place.text(argument), f'approximate="{form}"')
    return Change(place.put(place.value.node, text), notes=(_NOTE,))
