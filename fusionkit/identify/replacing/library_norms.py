"""npu_rms_norm in place of torch's own: calls of F.rms_norm, and of nn.RMSNorm modules that a class builds."""

from __future__ import annotations

import ast

from fusionkit.identify.replacing.place import Place, call
from fusionkit.identify.replacing.replacement import Change, Unfit
from fusionkit.identify.replacing.statements import Statements
from fusionkit.identify.rules.unit import Unit
from fusionkit.identify.source.files import SourceClass
from fusionkit.identify.source.values import sides

_OP = "torch_npu.npu_rms_norm"
_SHAPE = "the op normalises over as many last dimensions as the weight has"


def called_norm(place: Place) -> Change:
    """F.rms_norm(x, shape, weight, eps) as a call of the op."""
    value = place.value
    x, weight, eps = (value.arg(i, name) for i, name in ((0, "input"), (2, "weight"), (3, "eps")))
    if x is None or not isinstance(value.node, ast.Call):
        raise Unfit("the call of rms_norm is not written with its input")
    given = _argument(value.node, 0, "input")
    text = place.tight(given)
    if weight is None or weight.name == "None":
        shape = _argument(value.node, 1, "normalized_shape")
        gamma = f"{place.in_function('ones')}({place.text(shape)}, dtype={place.in_function('float32')}, device={text}.device)"
    else:
        gamma = f"{place.tight(_argument(value.node, 2, 'weight'))}.float()"
    held = _argument(value.node, 3, "eps") if eps is not None and eps.name != "None" else None
    epsilon = place.text(held) if held is not None else f"{place.in_function('finfo')}({text}.dtype).eps"
    changed = call(_OP, text, gamma, f"epsilon={epsilon}") + "[0]"
    return Change(place.put(value.node, changed), notes=(_SHAPE,))


def _argument(node: ast.Call, index: int, keyword: str) -> ast.expr | None:
    if index < len(node.args):
        return node.args[index]
    return next((item.value for item in node.keywords if item.arg == keyword), None)


def calls_of_norms(unit: Unit, statements: Statements, cls: SourceClass) -> list[Change]:
    """The changes in one function for calls of the nn.RMSNorm modules that `cls` builds.

    self.norm(x) in a method of the class, and attn.norm(x) in the class of a processor that is handed the object.
    """
    norms = _norms(cls)
    found = []
    for value in unit.of("module", "call_method"):
        node = value.node
        own = value.op == "module" and unit.cls is not None and unit.cls.name == cls.name
        handed = value.op == "call_method" and value.args[0].op == "param" and value.args[0].name == "attn"
        if value.name not in norms or not (own or handed) or not isinstance(node, ast.Call):
            continue
        if len(node.args) == 1 and not node.keywords:
            found.append(
                _of_call(Place(unit, statements, value, frozenset()), node, norms[value.name] and own)
            )
    return found


def _of_call(place: Place, node: ast.Call, surely: bool) -> Change:
    module, x = place.text(node.func), place.tight(node.args[0])
    asked = () if surely else (f"isinstance({module}, {place.in_function('nn.RMSNorm')})",)
    return Change(
        place.put(node, call(_OP, x, f"{module}.weight.float()", f"epsilon={module}.eps") + "[0]"),
        conditions=(*asked, f"{module}.eps is not None", f"{module}.weight is not None"),
        notes=(_SHAPE, "hooks on the norm module do not run in the fused branch"),
    )


def _norms(cls: SourceClass) -> dict[str, bool]:
    """Attribute that __init__ may give an nn.RMSNorm -> whether it gives it nothing else."""
    built = {
        name: [side.op == "call" and side.name == "torch.nn.RMSNorm" for side in sides(held)]
        for name, held in cls.attributes.items()
    }
    return {name: all(told) for name, told in built.items() if any(told)}
