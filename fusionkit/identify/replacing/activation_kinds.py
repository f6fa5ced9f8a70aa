"""Which activation a place applies, exactly: the fused op has SiLU and two forms of GELU, and no other."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from fusionkit.identify.replacing.place import Place
from fusionkit.identify.replacing.replacement import Unfit
from fusionkit.identify.rules.activations import GELU, SILU, activation
from fusionkit.identify.source.values import Value, peel, sides

# What the class of a module that is SiLU or GELU may be called, by its form; in transformers' ACT2FN and torch.
_SILU_CLASSES = ("SiLU", "SiLUActivation", "FP32SiLU")
_GELU_CLASSES = {
    "GELUActivation": False,
    "GELU": False,
    "GELUTanh": True,
    "PytorchGELUTanh": True,
    "NewGELUActivation": True,
}
_SILU_NAMES = ("silu", "swish")
# Names of ACT2FN -> whether it is the tanh form; quick_gelu is neither.
_GELU_NAMES = {
    "gelu": False, "gelu_python": False, "gelu_new": True, "gelu_pytorch_tanh": True, "gelu_python_tanh": True,
    "gelu_fast": True, "gelu_accurate": True,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Activation:
    """`argument`: the expression it is applied to. `tanh`: which GELU. `conditions`: what says that it is this one."""

    kind: str
    argument: ast.expr
    tanh: bool = False
    conditions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def activation_at(place: Place, act: Value) -> Activation:
    """The activation at a value. Raises Unfit where it is not one that the fused op computes."""
    found = activation(place.unit, act)
    if found is None:
        raise Unfit("the activation cannot be told")
    kind, applied = found
    node = act.node
    if act.op == "mul":
        return Activation(kind, _written_out(act, kind, applied))
    if not isinstance(node, ast.Call):
        raise Unfit("the activation is not called")
    argument = _argument(act, node)
    if act.op in (SILU, GELU):
        return Activation(kind, argument, _tanh_of_call(node))
    if act.op == "call" and act.name:
        return _named(act.name, kind, argument)
    if act.op == "call_method":
        raise Unfit("the activation is a method of another object")
    return _held(place, act, kind, argument, node)


def _argument(act: Value, node: ast.Call) -> ast.expr:
    if act.op in (SILU, GELU) and act.name == "method" and isinstance(node.func, ast.Attribute):
        return node.func.value
    if node.args:
        return node.args[0]
    given = next((item.value for item in node.keywords if item.arg == "input"), None)
    if given is None:
        raise Unfit("the activation is called without an argument")
    return given


def _tanh_of_call(node: ast.Call) -> bool:
    given = next((item.value for item in node.keywords if item.arg == "approximate"), None)
    if given is None:
        return False
    if not isinstance(given, ast.Constant):
        raise Unfit("the form of GELU depends on a variable")
    return given.value == "tanh"


def _named(name: str, kind: str, argument: ast.expr) -> Activation:
    last = name.rpartition(".")[2]
    if kind == SILU:
        return Activation(kind, argument)
    if last not in _GELU_NAMES:
        raise Unfit(f"{last} is no form of GELU that the op has")
    return Activation(kind, argument, _GELU_NAMES[last])


def _held(place: Place, act: Value, kind: str, argument: ast.expr, node: ast.Call) -> Activation:
    """A module that the class holds: asked at run time unless __init__ builds nothing else."""
    target = act.args[0] if act.op == "call" else None
    name = act.name if act.op == "module" else (target.name if target is not None else "")
    held = place.unit.built(name) if name else None
    told = [form_of(side) for side in sides(held)] if held is not None else []
    text = place.text(node.func)
    if kind == SILU:
        if told and all(item == (SILU, False) for item in told):
            return Activation(kind, argument)
        condition = f"type({text}).__name__ in {_SILU_CLASSES[:2]!r}".replace("'", '"')
        return Activation(
            kind, argument, conditions=(condition,), notes=(f"{text} is chosen by the configuration",)
        )
    known = [item for item in told if item is not None and item[0] == GELU]
    if told and len(known) == len(told) and len({item[1] for item in known}) == 1:
        return Activation(kind, argument, known[0][1])
    tanh = _default_form(place, name)
    classes = tuple(
        item for item, form in _GELU_CLASSES.items() if form is tanh and item != "PytorchGELUTanh"
    )
    wanted = ", ".join(f'"{item}"' for item in classes if item != "GELU")
    condition = (
        f"type({text}).__name__ in ({wanted},)"
        if "," not in wanted
        else f"type({text}).__name__ in ({wanted})"
    )
    return Activation(kind, argument, tanh, (condition,), (f"{text} is chosen by the configuration",))


def form_of(side: Value) -> tuple[str, bool] | None:
    """(kind, tanh) of what __init__ builds; None where it is not told by the code."""
    if side.op == "call":
        last = side.name.rpartition(".")[2]
        if last in _SILU_CLASSES:
            return SILU, False
        if last in _GELU_CLASSES:
            given = side.arg(0, "approximate") if last == "GELU" else None
            return GELU, _GELU_CLASSES[last] if given is None else "tanh" in given.name
    if side.op == "getitem" and "ACT2" in side.args[0].name and side.args[1].op == "const":
        key = str(getattr(side.args[1].node, "value", ""))
        if key in _SILU_NAMES:
            return SILU, False
        return (GELU, _GELU_NAMES[key]) if key in _GELU_NAMES else None
    if side.op == "global":
        last = side.name.rpartition(".")[2]
        return (SILU, False) if last in _SILU_NAMES else None
    return None


def _default_form(place: Place, name: str) -> bool:
    """Whether the configuration's default is the tanh form."""
    from fusionkit.identify.source.configurations import config_defaults

    held = place.unit.built(name)
    cls = place.unit.cls
    for side in sides(held) if held is not None and cls is not None else ():
        key = side.args[1] if side.op == "getitem" else side
        if cls is not None and key.op == "attr":
            for default in config_defaults(cls, key.name):
                if default in _GELU_NAMES:
                    return _GELU_NAMES[default]
                raise Unfit(f"the configuration's default {default} is no form of GELU that the op has")
    return False


def _written_out(act: Value, kind: str, applied: Value) -> ast.expr:
    """x of x * sigmoid(x). GELU written out is left alone: its forms differ by constants."""
    if kind != SILU:
        raise Unfit("GELU is written out: its form is not told by a name")
    sigmoid = next((peel(arg) for arg in act.args if peel(arg).op == "sigmoid"), None)
    if sigmoid is None or peel(sigmoid.args[0]) is not peel(applied):
        raise Unfit("the sigmoid has a factor inside, which the op leaves out")
    node = act.node
    factors = [node.left, node.right] if isinstance(node, ast.BinOp) else []
    for factor, value in zip(factors, act.args, strict=False):
        if peel(value).op != "sigmoid":
            return factor
    raise Unfit("x * sigmoid(x) is not written as a product")
