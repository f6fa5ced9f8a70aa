"""Generic operators: each changes one op of any pattern in a way that has one name among the cause types.

An operator knows nothing of the pattern or the graph; whether its change makes a pattern miss is for torch's
matcher to say. `at` is the number of the op among those that the original pattern dispatches.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from mismatches.dispatch import Call, Change, DoesNotApplyError
from mismatches.literals import DIM_NAMES, SIZE_NAMES, other_dim, other_size

aten, prims = torch.ops.aten, torch.ops.prims


def change_scalar(call: Call) -> Any:
    """Another number in a literal that is neither a dim nor a size."""
    names = call.names()
    free = [
        index
        for index, value in enumerate(call.args)
        if isinstance(value, int | float) and not isinstance(value, bool)
        if names[index] not in (*DIM_NAMES, *SIZE_NAMES, "step")
    ]
    index = call.one_of(free)
    value = call.args[index]
    other = value + 1 if isinstance(value, int) else value * (1 + 2**-10)
    return call.make(_with(call.args, index, other))


def change_dim(call: Call) -> Any:
    """The same dim counted from the other end, or another dim."""
    places = [index for index, name in enumerate(call.names()) if name in DIM_NAMES]
    index = call.one_of(places)
    return call.make(_with(call.args, index, other_dim(call, index)))


def change_size(call: Call) -> Any:
    """The same size written in another way: -1 for it, or the bound of a slice for no bound."""
    places = [index for index, name in enumerate(call.names()) if name in SIZE_NAMES]
    found = [(index, size) for index in places for size in other_size(call, index)]
    index, size = call.one_of(found)
    return call.make(_with(call.args, index, size))


def freeze_size(call: Call) -> Any:
    """A size as the example inputs have it, wherever the pattern is traced."""
    example = call.example()
    places = [index for index, name in enumerate(call.names()) if name in SIZE_NAMES]
    return call.make(_with(call.args, (index := call.one_of(places)), example[index]))


def swap_operands(call: Call) -> Any:
    """The two tensors of a binary op, or the elements of a list of tensors, in the other order."""
    places = call.tensors()
    if len(places) == 2 and call.args[places[0]] is not call.args[places[1]]:
        first, second = places
        made = _with(_with(call.args, first, call.args[second]), second, call.args[first])
        return call.make(made)
    for index, value in enumerate(call.args):
        if isinstance(value, list) and len(value) == 2 and isinstance(value[0], torch.Tensor):
            return call.make(_with(call.args, index, value[::-1]))
    raise DoesNotApplyError("no two operands")


def other_overload(call: Call) -> Any:
    """Another overload of the same op that takes the same arguments and gives the same form."""
    kept, fitting = call.make(), []
    for name in call.func.overloadpacket.overloads():
        overload = getattr(call.func.overloadpacket, name)
        if overload is call.func or overload._schema.is_mutable or "out" in name:
            continue
        before = len(call.mode.events)
        try:
            made = overload(*call.args, **call.kwargs)
        except (RuntimeError, TypeError, ValueError, NotImplementedError):
            continue
        called = [event.func for event in call.mode.events[before:]]
        if called == [overload] and _same_form(made, kept):
            fitting.append(made)
    return call.one_of(fitting)


def insert_cast(call: Call) -> Any:
    """A cast of the op's result, to a wider dtype and back, or an operand's cast there and back."""
    made = _tensor(call.make())
    wide = torch.float32 if made.dtype != torch.float32 else torch.float64
    return aten._to_copy.default(aten._to_copy.default(made, dtype=wide), dtype=made.dtype)


def widen(call: Call) -> Any:
    """The op's result in a wider dtype from here on."""
    made = _tensor(call.make())
    return aten._to_copy.default(made, dtype=torch.float32 if made.dtype != torch.float32 else torch.float64)


def change_cast(call: Call) -> Any:
    """A cast to another dtype."""
    if call.func is not aten._to_copy.default or "dtype" not in call.kwargs:
        raise DoesNotApplyError("no cast")
    options = [d for d in (torch.float16, torch.float64, torch.float32) if d != call.kwargs["dtype"]]
    return call.make(kwargs=call.kwargs | {"dtype": call.one_of(options)})


def drop_cast(call: Call) -> Any:
    """No cast."""
    if call.func is not aten._to_copy.default or "dtype" not in call.kwargs:
        raise DoesNotApplyError("no cast")
    return call.args[0]


_UNARY = (aten.neg.default, aten.abs.default, aten.clone.default, aten.relu.default, aten.sigmoid.default)


def insert_node(call: Call) -> Any:
    """One more op on the op's result: neg, abs, clone, relu, sigmoid, or a multiplication by one."""
    made = _tensor(call.make())
    options = [
        *(lambda op=op: op(made) for op in _UNARY if op is not call.func),
        lambda: aten.mul.Tensor(made, 1.0),
    ]
    return call.one_of(options)()


def insert_before(call: Call) -> Any:
    """One more op on an operand."""
    index = call.one_of(call.tensors())
    op = _UNARY[call.seed % len(_UNARY)]
    return call.make(_with(call.args, index, op(_tensor(call.args[index]))))


def drop_node(call: Call) -> Any:
    """Without the op: its first operand of the same form goes on in its place."""
    made = call.make()
    if call.func is aten._to_copy.default:
        raise DoesNotApplyError("a cast")
    same = [call.args[i] for i in call.tensors() if _same_form(call.args[i], made)]
    return call.one_of(same)


_BINARY_OTHERS = {
    aten.mul.Tensor: (aten.div.Tensor, aten.sub.Tensor),
    aten.add.Tensor: (aten.sub.Tensor, aten.mul.Tensor),
    aten.add.Scalar: (aten.sub.Scalar, aten.mul.Scalar),
    aten.sub.Tensor: (aten.add.Tensor, aten.div.Tensor),
    aten.rsqrt.default: (aten.sqrt.default, aten.reciprocal.default, aten.exp.default),
    aten.silu.default: (aten.relu.default, aten.tanh.default, aten.hardswish.default),
    aten.neg.default: (aten.abs.default, aten.exp.default),
    aten.tanh.default: (aten.sigmoid.default, aten.sin.default),
    aten.mean.dim: (aten.amax.default, aten.sum.dim_IntList),
    aten.gelu.default: (aten.silu.default, aten.relu.default),
    aten.pow.Tensor_Scalar: (aten.fmod.Scalar, aten.remainder.Scalar),
}


def replace_node(call: Call) -> Any:
    """Another op in the place of the op, with its arguments as far as it takes them."""
    other = call.one_of(list(_BINARY_OTHERS.get(call.func, ())))
    wanted = {argument.name for argument in other._schema.arguments}
    kwargs = {key: value for key, value in call.kwargs.items() if key in wanted}
    return other(*call.args, **kwargs)


def prims_cast(call: Call) -> Any:
    """prims.convert_element_type for a cast, as a trace with Inductor's table has it."""
    if call.func is not aten._to_copy.default or "dtype" not in call.kwargs:
        raise DoesNotApplyError("no cast")
    return prims.convert_element_type.default(call.args[0], call.kwargs["dtype"])


_PRIMS = {
    aten.rsqrt.default: prims.rsqrt.default,
    aten.neg.default: prims.neg.default,
    aten.tanh.default: prims.tanh.default,
    aten.pow.Tensor_Scalar: prims.pow.default,
}


def prims_op(call: Call) -> Any:
    """The op of prims with the same meaning."""
    other = _PRIMS.get(call.func)
    if other is None:
        raise DoesNotApplyError("no op of prims")
    if call.func is aten.pow.Tensor_Scalar:
        return other(call.args[0], aten.full_like.default(call.args[0], call.args[1]))
    return other(*call.args)


def decompose(call: Call) -> Any:
    """The op's own parts, from torch's decomposition table for Inductor."""
    from torch._inductor.decomposition import decompositions

    parts = decompositions.get(call.func)
    if parts is None or call.func is aten._to_copy.default:
        raise DoesNotApplyError("torch has no parts for it")
    before = len(call.mode.events)
    made = parts(*call.args, **call.kwargs)
    called = [event.func for event in call.mode.events[before:]]
    if made is NotImplemented or not called or called == [call.func]:
        raise DoesNotApplyError("it stays one op")
    if all(func.overloadpacket is call.func.overloadpacket for func in called):
        raise DoesNotApplyError("another overload")
    return made


def by_table(call: Call) -> Any:
    """The op's parts from Inductor's table where it has some, else the op: one of many (`by_default_table`)."""
    from torch._inductor.decomposition import select_decomp_table

    parts = select_decomp_table().get(call.func)
    made = NotImplemented if parts is None else parts(*call.args, **call.kwargs)
    return call.make() if made is NotImplemented else made


def more_kwargs(call: Call) -> Any:
    """A keyword that changes nothing, or one that the graph lacks."""
    made = call.make()
    known = {argument.name for argument in call.func._schema.arguments if argument.kwarg_only}
    options: list[dict[str, Any]] = []
    if "dtype" in known and isinstance(made, torch.Tensor) and "dtype" not in call.kwargs:
        options.append({"dtype": made.dtype})
    if "memory_format" in known and "memory_format" not in call.kwargs:
        options.append({"memory_format": torch.contiguous_format})
    if "alpha" in known and "alpha" not in call.kwargs:
        options += [{"alpha": 2}, {"alpha": 3}]
    if "layout" in known and "layout" not in call.kwargs:
        options.append({"layout": torch.strided})
    if "pin_memory" in known and "pin_memory" not in call.kwargs:
        options.append({"pin_memory": False})
    return call.make(kwargs=call.kwargs | call.one_of(options))


def compute_twice(call: Call) -> Any:
    """A second copy of the op for the next op that takes its result."""
    first, second = call.make(), call.make()
    call.mode.swap_next(_tensor(first), _tensor(second))
    return first


def absent_root(call: Call) -> Any:
    """An op that no model has, behind the op: meant for the last one."""
    made = _tensor(call.make())
    options = [aten.erfinv.default, aten.lgamma.default, aten.sinh.default, aten.atanh.default]
    return call.one_of(options)(made)


# Operator -> (cause type, change). Operators with the whole pattern for their object stand in `classes`.
OPERATORS: dict[str, tuple[str, Change]] = {
    "change_scalar": ("scalar_literal", change_scalar),
    "change_dim": ("dim_literal", change_dim),
    "change_size": ("dynamic_shape", change_size),
    "freeze_size": ("dynamic_shape", freeze_size),
    "swap_operands": ("argument_order", swap_operands),
    "other_overload": ("overload", other_overload),
    "insert_cast": ("dtype_path", insert_cast),
    "widen": ("dtype_path", widen),
    "change_cast": ("dtype_path", change_cast),
    "drop_cast": ("dtype_path", drop_cast),
    "insert_node": ("missing_node", insert_node),
    "insert_before": ("missing_node", insert_before),
    "drop_node": ("missing_node", drop_node),
    "replace_node": ("missing_node", replace_node),
    "prims_cast": ("decomposition", prims_cast),
    "prims_op": ("decomposition", prims_op),
    "decompose": ("decomposition", decompose),
    "more_kwargs": ("kwargs_structure", more_kwargs),
    "compute_twice": ("shared_node", compute_twice),
    "absent_root": ("root_not_indexed", absent_root),
}

# Only for `by_default_table`: alone it is what `decompose` and `prims_cast` are.
WHOLE_PATTERN: dict[str, tuple[str, Change]] = {"by_table": ("decomposition", by_table)}


def _with(args: tuple[Any, ...], index: int, value: Any) -> tuple[Any, ...]:
    return (*args[:index], value, *args[index + 1 :])


def _tensor(value: Any) -> torch.Tensor:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        raise DoesNotApplyError("no tensor of floats")
    return value


def _same_form(one: Any, other: Any) -> bool:
    tensors = isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)
    return tensors and one.shape == other.shape and one.dtype == other.dtype and math.prod(one.shape) > 0
