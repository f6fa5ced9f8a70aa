"""Mixture of experts: a loop over experts, or one product over the stacked weights of all."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import chain

from fusionkit.identify.rules.unit import Found, Unit, named
from fusionkit.identify.source.files import SourceClass
from fusionkit.identify.source.project import find_class
from fusionkit.identify.source.values import Value, find, peel, sides

OP = "npu_grouped_matmul"
_GATHERS = ("index_add_", "index_add", "scatter_add_", "scatter_add", "index_put_")
_PRODUCTS = ("linear", "matmul", "einsum", "baddbmm")


def find_experts(unit: Unit) -> Iterator[Found]:
    """Every product of tokens with the weights of several experts."""
    if not unit.runs:
        return
    for value in unit.flow.values:
        if value.op in ("_grouped_mm", "grouped_mm") or _is_of_stacked(unit, value) or _is_expert_call(value):
            yield Found(OP, value, _hazards(unit))
    for call in _calls_in_expert_loops(unit):
        yield Found(OP, Value("call", node=call), _hazards(unit))


def _calls_in_expert_loops(unit: Unit) -> Iterator[ast.Call]:
    """Calls of submodules in a loop that counts experts: of the experts themselves, or where results are gathered."""
    for loop in unit.flow.loops:
        counts = "expert" in f"{ast.unparse(loop.target)} {ast.unparse(loop.iter)}"
        calls = [node for item in loop.body for node in ast.walk(item) if isinstance(node, ast.Call)]
        gathers = any(isinstance(c.func, ast.Attribute) and c.func.attr in _GATHERS for c in calls)
        for call in calls:
            is_expert = isinstance(call.func, ast.Subscript) and "expert" in ast.unparse(call.func)
            if _is_of_self(call.func) and (
                is_expert or (counts and (gathers or _is_counted(call.func, loop)))
            ):
                yield call


def _is_counted(called: ast.expr, loop: ast.For | ast.AsyncFor) -> bool:
    """Whether what is called was taken from a list with the loop's own variable: self.up[i](x)."""
    return isinstance(called, ast.Subscript) and ast.unparse(called.slice) == ast.unparse(loop.target)


def _is_of_self(called: ast.expr) -> bool:
    """self.x(...), self[...](...), self.experts[...](...); not self.x.method(...)."""
    while isinstance(called, ast.Subscript):
        called = called.value
    if isinstance(called, ast.Attribute):
        called = called.value
    return isinstance(called, ast.Name) and called.id == "self"


def _is_of_stacked(unit: Unit, value: Value) -> bool:
    """A product with self.weights[expert], or with the whole stack."""
    if value.op not in _PRODUCTS:
        return False
    for operand in value.args:
        inner = peel(operand)
        is_taken = inner.op == "index_select" or (
            inner.op == "getitem" and inner.args[1].op not in ("const", "slice")
        )
        if _stack(unit, inner.args[0] if is_taken else inner):
            return True
    return False


def _stack(unit: Unit, value: Value) -> bool:
    """Whether an attribute holds the weights of every expert: of three dimensions, stacked rows, or a list."""
    value = peel(value)
    if value.op != "attr" or value.args[0].name != "self":
        return False
    for side in sides(unit.built(value.name) or value):
        if side.op != "call" or not side.args:
            continue
        if side.name.endswith("ParameterList") and _of_experts(unit):
            return True
        made = find(side.args[0], _is_made, 3) if side.name.endswith("Parameter") else None
        sizes = () if made is None else _sizes(made)
        if len(sizes) == 3 and (_of_experts(unit) or find(sizes[0], _counts_experts, 3) is not None):
            return True
        if len(sizes) == 2 and sizes[0].op == "mul" and find(sizes[0], _counts_experts, 3) is not None:
            return True
    return False


def _is_made(value: Value) -> bool:
    return value.op in ("empty", "zeros", "ones") or value.name in (
        "torch.Tensor",
        "torch.randn",
        "torch.rand",
    )


def _counts_experts(value: Value) -> bool:
    return "expert" in named(value).lower()


def _of_experts(unit: Unit) -> bool:
    """Whether the class calls itself one of experts."""
    name = "" if unit.cls is None else unit.cls.name
    return "expert" in name.lower() or "MoE" in name or "MOE" in name


def _sizes(made: Value) -> tuple[Value, ...]:
    return made.args[0].args if made.args and made.args[0].op == "tuple" else made.args


def _in_loop(index: Value) -> bool:
    return find(index, lambda item: item.op == "loop", 5) is not None


def _is_expert_call(value: Value) -> bool:
    """self.experts[i](x), getattr(self, f"expert_{i}")(x), or expert(x) in a loop over experts."""
    if value.op not in ("call", "call_method") or not value.args:
        return False
    target = value.args[0]
    if value.op == "call_method" and value.name != "forward":
        return False
    if value.op == "call" and value.name:
        return False
    if target.op == "call" and target.name == "getattr":
        return target.node is not None and "expert" in ast.unparse(target.node)
    inner = target
    for _ in range(4):
        if inner.op in ("getitem", "loop", "part", "call") and inner.args:
            if (
                inner.op == "getitem"
                and not _in_loop(inner.args[1])
                and inner.args[1].op not in ("call", "param")
            ):
                return False
            inner = inner.args[0]
    return inner is not target and inner.op in ("attr", "param") and "expert" in inner.name


def _hazards(unit: Unit) -> frozenset[str]:
    found = set()
    if unit.dispatched:
        found.add("dispatch_elsewhere")
    if unit.depends_on_data:
        found.add("dynamic_shape")
    if _is_transposed(unit):
        found.add("weight_layout_EN_K")
    if _has_bias(unit):
        found.add("expert_bias")
    if any(item.op == "clamp" for item in unit.flow.values):
        found.add("clamp_or_bias_in_gate")
    return frozenset(found)


def _is_transposed(unit: Unit) -> bool:
    """Whether stacked weights are used as F.linear's or transposed before the product."""
    for value in unit.of(*_PRODUCTS):
        for operand in value.args:
            if value.op == "linear" and _stack_in(unit, operand):
                return True
            if operand.op in ("transpose", "t", "permute") and _stack_in(unit, operand):
                return True
    return False


def _stack_in(unit: Unit, value: Value) -> bool:
    return find(value, lambda item: _stack(unit, item), 5) is not None


def _has_bias(unit: Unit) -> bool:
    if any(value.op == "attr" and "bias" in value.name for value in unit.flow.values):
        return True
    called = (cls for value in unit.flow.values if _is_expert_call(value) for _, cls in unit.class_of(value))
    classes = (cls for cls in chain(called, _kept_by_name(unit)) if cls is not None)
    return any(_is_biased(built) for cls in classes for built in cls.attributes.values())


def _kept_by_name(unit: Unit) -> Iterator[SourceClass | None]:
    """The classes that a ModuleDict of experts puts into itself: self[name] = Expert(...)."""
    start = None if unit.cls is None else unit.cls.methods.get("__init__")
    if start is not None:
        for value in unit.file.flow(start).values:
            if value.op == "setitem" and value.args[0].name == "self" and value.args[2].op == "call":
                yield find_class(unit.file, value.args[2].name)


def _is_biased(built: Value) -> bool:
    if built.op != "call" or not built.name.endswith("nn.Linear"):
        return False
    bias = built.arg(2, "bias")
    return bias is None or bias.name != "False"
