"""What in an attention its fused op would get wrong: masks, scales, biases, shared heads, and who really runs it."""

from __future__ import annotations

from collections.abc import Iterator

from fusionkit.identify.rules.masking import mask_hazards, trail
from fusionkit.identify.rules.unit import Unit, named
from fusionkit.identify.source.evaluate import FunctionNode
from fusionkit.identify.source.files import SourceClass
from fusionkit.identify.source.project import attribute
from fusionkit.identify.source.values import Value, find, peel, sides

_OTHER_STATES = ("encoder_hidden_states", "key_value_states", "context", "cross_hidden_states", "kv")
_INTERFACE = "ALL_ATTENTION_FUNCTIONS"


def library_hazards(unit: Unit, call: Value) -> frozenset[str]:
    """Those of scaled_dot_product_attention, and of dispatch_attention_fn, which takes the same arguments."""
    found = _shared(unit)
    mask = call.arg(3, "attn_mask")
    if mask is not None and mask.name != "None":
        found.add("mask_additive" if _is_visibly_float(mask) else "mask_bool_keep")
    dropout = call.arg(4, "dropout_p")
    if dropout is not None and dropout.number() != 0:
        found.add("dropout")
    if (call.kwargs or {}).get("enable_gqa") is not None and call.kwargs["enable_gqa"].name != "False":  # type: ignore[index]
        found.add("gqa")
    if unit.dispatched:
        found.add("dispatch_elsewhere")
    scale = call.arg(6, "scale")
    if scale is not None and _is_other_scale(unit.cls, scale):
        found.add("scale_not_rsqrt_d")
    return frozenset(found)


def _is_visibly_float(mask: Value) -> bool:
    for side in sides(peel(mask)):
        if side.op == "masked_fill" or (
            side.op == "mul" and find(side, lambda v: v.name in ("min", "finfo"), 4)
        ):
            return True
    return False


def eager_hazards(unit: Unit, normal: Value, scores: Value) -> frozenset[str]:
    """Those of an attention that is written out: `normal` the normalised scores, `scores` query times key."""
    found = _shared(unit)
    steps = list(trail(normal.args[0]))
    if normal.op in ("sigmoid", "relu", "tanh") or (normal.op != "softmax" and "gumbel" in normal.name):
        found.add("not_softmax")
    found |= mask_hazards(normal.args[0])
    if scores.op == "baddbmm":
        found.add("mask_additive")
    for step in steps:
        if step.op == "tanh":
            found.add("softcap")
        if step.op == "cat" and find(step, lambda item: "sink" in named(item), 5) is not None:
            found.add("sinks")
        if step.op == "add":
            found |= _bias_hazards(step)
    if _drops(unit, normal):
        found.add("dropout")
    if not _is_scaled(unit, scores, steps):
        found.add("scale_not_rsqrt_d")
    if unit.dispatched:
        found.add("dispatch_elsewhere")
    return frozenset(found | _of_callers(unit))


def _bias_hazards(step: Value) -> set[str]:
    found = set()
    for arg in step.args:
        words = " ".join(named(item) for item in trail(arg, 4)).lower()
        if "alibi" in words:
            found.add("alibi")
        if any(
            word in words
            for word in ("position_bias", "rel_pos", "relative", "attention_bias", "rel_", "position")
        ) and "mask" not in named(peel(arg)):
            found.add("relative_position_bias")
    return found


def _shared(unit: Unit) -> set[str]:
    """Hazards told by names in the function itself."""
    found = set()
    if unit.mentions(("repeat_kv", "repeat_interleave")) or any(
        item.op == "call" and "repeat_kv" in item.name for item in unit.flow.values
    ):
        found.add("gqa")
    if unit.mentions(("sliding_window", "window_size_left")):
        found.add("sliding_window")
    if any(name in _OTHER_STATES and _is_used(unit, name) for name in unit.flow.parameters):
        found.add("cross_attention")
    if unit.mentions(("relative_position_bias", "rel_pos")):
        found.add("relative_position_bias")
    if unit.depends_on_data:
        found.add("dynamic_shape")
    return found


def _is_used(unit: Unit, name: str) -> bool:
    return bool(unit.users(unit.flow.parameters[name]))


def _drops(unit: Unit, normal: Value) -> bool:
    front = [normal]
    for _ in range(6):
        following = []
        for item in front:
            for user in unit.users(item):
                told = user.name.lower()
                if user.op == "dropout" or (user.op in ("module", "call", "call_method") and "drop" in told):
                    return True
                if user.op not in ("matmul", "einsum"):
                    following.append(user)
        front = following
    return False


def _is_scaled(unit: Unit, scores: Value, steps: list[Value]) -> bool:
    """Whether a factor is laid on scores, query or key, other than one that is visibly not 1 / sqrt(head_dim)."""
    scales = [arg for step in steps if step.op in ("mul", "div") for arg in step.args]
    for operand in scores.args:
        scales += [arg for step in trail(operand, 6) if step.op in ("mul", "div") for arg in step.args]
    if scores.op == "baddbmm":
        return True
    scales += list((scores.kwargs or {}).values())
    told = [item for item in scales if not has_product(item)]
    return bool(told) and not any(_is_other_scale(unit.cls, item) for item in told)


def has_product(value: Value) -> bool:
    """Whether `value` is the tensor that is scaled rather than the scale."""
    return find(value, lambda item: item.op in ("matmul", "einsum", "linear", "module"), 8) is not None


def _is_other_scale(cls: SourceClass | None, scale: Value) -> bool:
    """Whether a scale is visibly something else than 1 / sqrt(head_dim)."""
    for side in sides(peel(scale)):
        held: Value | None = side
        if side.op == "attr" and side.args[0].name == "self" and cls is not None:
            held = attribute(cls, side.name)
        if held is None:
            continue
        for value in sides(held):
            if value.number() == 1:
                return True
            if value.op == "attr" and any(word in value.name for word in ("multiplier", "scalar", "scale")):
                return True
            if value.op == "mul":
                return True
            if value.op == "call" and not value.name.endswith("sqrt"):
                return True
            if value.op == "pow" and find(value, lambda item: "scalar" in item.name, 4) is not None:
                return True
    return False


def _of_callers(unit: Unit) -> set[str]:
    """What the classes that reach an eager function through transformers' interface add to it."""
    if unit.cls is not None:
        return set()
    found = set()
    for cls, method in _callers(unit):
        found.add("dispatch_elsewhere")
        if any("sliding_window" in (value.kwargs or ()) for value in unit.file.flow(method).values):
            found.add("sliding_window")
        names = {item.arg for item in (*method.args.args, *method.args.kwonlyargs)}
        if names & set(_OTHER_STATES):
            found.add("cross_attention")
        if _other_scale_passed(unit, cls, method):
            found.add("scale_not_rsqrt_d")
    return found


def _callers(unit: Unit) -> Iterator[tuple[SourceClass, FunctionNode]]:
    for cls in unit.file.classes.values():
        for method in cls.methods.values():
            if method.name != "__init__":
                names = unit.file.flow(method).names
                if unit.node.name in names and _INTERFACE in names:
                    yield cls, method


def _other_scale_passed(unit: Unit, cls: SourceClass, method: FunctionNode) -> bool:
    flow = unit.file.flow(method)
    scales = [value.kwargs["scaling"] for value in flow.values if value.kwargs and "scaling" in value.kwargs]
    return any(_is_other_scale(cls, scale) for scale in scales)
