"""npu_add_rms_norm in place of a residual addition and the norm that is called with it."""

from __future__ import annotations

import ast

from fusionkit.identify.replacing.norm_core import weight_and_eps
from fusionkit.identify.replacing.place import Place, call, factor_nodes
from fusionkit.identify.replacing.replacement import Change, Unfit
from fusionkit.identify.source.files import SourceClass
from fusionkit.identify.source.project import lineage
from fusionkit.identify.source.values import Value

_OP = "torch_npu.npu_add_rms_norm"
_NOTES = (
    "npu_add_rms_norm has no backward in torch_npu: where gradients are on, the original runs",
    "the op rounds the sum, and on Atlas A2 and A3 the normalised sum once more, to the input's dtype",
    "hooks on the norm module do not run in the fused branch",
)


def replace_added_norm(place: Place) -> list[Change]:
    """The change for one addition and norm. Raises Unfit where the sum or the norm's weight cannot be named."""
    node = place.value.node
    if place.value.op != "module" or not isinstance(node, ast.Call) or len(node.args) != 1 or node.keywords:
        raise Unfit("the norm is not called as self.norm(x)")
    added = place.value.args[0]
    if added.op != "add" or added.node is None:
        raise Unfit("the sum is changed before it goes into the norm, or depends on a branch")
    module = place.text(node.func)
    weight, eps = _attributes(place, module)
    one, other = _terms(place, added)
    conditions = [f"not {place.in_function('is_grad_enabled')}()", f"{weight} is not None"]
    conditions += [f"{weight}.dtype == {name}.dtype" for name in (one, other)]
    inside = any(item is added.node for item in ast.walk(node))
    fused = call(_OP, one, other, weight, f"epsilon={eps}")
    if inside:
        return [Change({node: f"{fused}[0]"}, conditions=tuple(conditions), notes=_NOTES)]
    held, target = _sum_statement(place, added)
    normed = place.fresh("normed_states")
    texts: dict[ast.AST, str] = {held: f"{normed}, _, {target} = {fused}", node: normed}
    return [Change(texts, conditions=tuple(conditions), notes=_NOTES)]


def _terms(place: Place, added: Value) -> tuple[str, str]:
    """The two names that are added; the op wants tensors of one shape and dtype."""
    if added.node is not None and place.statements.parent(added.node) is None:
        held = place.statements.augmented(added.node)
        texts = (ast.unparse(held.target), place.text(held.value))
    else:
        one, other = factor_nodes(added)
        texts = (place.text(one), place.text(other))
    if not all(text.isidentifier() for text in texts):
        raise Unfit("what is added has no name: its dtype cannot be asked")
    return texts


def _sum_statement(place: Place, added: Value) -> tuple[ast.stmt, str]:
    if added.node is not None and place.statements.parent(added.node) is None:
        held = place.statements.augmented(added.node)
        return held, ast.unparse(held.target)
    assigned = place.statements.statement(added.node or place.unit.node)
    if not isinstance(assigned, ast.Assign) or assigned.value is not added.node or len(assigned.targets) != 1:
        raise Unfit("the sum is not assigned by itself")
    if not isinstance(assigned.targets[0], ast.Name):
        raise Unfit("the sum is not assigned to a name")
    return assigned, assigned.targets[0].id


def _attributes(place: Place, module: str) -> tuple[str, str]:
    """(weight, eps) of the norm module, as source."""
    for name, cls in place.unit.class_of(place.value):
        if name == "torch.nn.RMSNorm":
            return f"{module}.weight", f"{module}.eps"
        if cls is not None:
            return _of_class(cls, module)
    raise Unfit("the norm's class cannot be read")


def _of_class(cls: SourceClass, module: str) -> tuple[str, str]:
    for item in lineage(cls):
        found = weight_and_eps(item)
        if found is not None:
            weight, eps = found
            return weight.replace("self.", f"{module}."), eps.replace("self.", f"{module}.")
    raise Unfit("the norm's weight and eps are not told by its class")
