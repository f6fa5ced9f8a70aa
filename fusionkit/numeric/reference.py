"""The float64 reference: run an implementation with every float it makes inside lifted to float64.

`model.double()` is no reference: models cast internally (`.float()`, `.to(torch.float32)`,
`softmax(dtype=...)`, tables built by `arange`), so its result has float32 errors as large as those to be judged.

Limits: code that branches on a dtype takes its float64 branch; random factories (`rand`, `randn`) draw the same
numbers as the original, in-place random ops do not; casts to 8-bit floats stay, since quantisation is part of the
computation.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakTensorKeyDictionary

from fusionkit.errors import MisuseError

LIFTED: dict[torch.dtype, torch.dtype] = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128,
    torch.complex32: torch.complex128,
}
"""Dtypes that are lifted, and to what; complex ones too, since rotary embeddings are written with them."""

CAST_OPS = ("prims::convert_element_type", "npu::_npu_dtype_cast", "npu::npu_dtype_cast")
"""Casts outside aten, all `(Tensor, ScalarType dtype)`; run as aten._to_copy (npu kernels know no float64).

Sources: torch._prims; torch_npu 2.13 npu_native_functions.yaml.
"""

LOWER_EPS = torch.finfo(torch.float32).eps
"""What rms_norm(eps=None) means on float32, float16 and bfloat16 alike (measured with torch 2.13)."""

RMS_NORMS = (
    torch.nn.functional.rms_norm,
    torch.rms_norm,
    torch.ops.aten.rms_norm.default,
    torch.ops.aten._fused_rms_norm.default,
)
"""Calls with an optional eps as fourth argument."""


def lift(value: Any) -> Any:
    """`value`, or its float64 (complex128) counterpart where it is a tensor of lower precision; differentiable."""
    return value.to(LIFTED[value.dtype]) if _is_lower(value) else value


class Float64Lift(TorchDispatchMode):
    """Within this mode every floating tensor that an operator reads or makes is float64.

    * a dtype argument of any operator, positional or by keyword (found through the operator's schema);
    * operators that pick the default float dtype themselves (`arange(0., 1.)`, an integer tensor divided);
    * tensors of lower precision from outside (graph constants, closures): reads and writes go to one float64
      copy, made at first use and dropped with the mode; the tensor itself is unchanged;
    * `torch.tensor(0.1)` and the like, so that the literal is not rounded to float32 first;
    * `rms_norm(eps=None)`: the default eps stays float32's, as on all lower dtypes, instead of float64's.

    Raises MisuseError where bits are reinterpreted (`view(dtype)`), which means nothing in another precision.
    """

    def __init__(self) -> None:
        """Start with no float64 copies."""
        # torch leaves the hooks of its modes untyped
        super().__init__()  # type: ignore[no-untyped-call]
        self._copies: Any = WeakTensorKeyDictionary()
        self._calls = _CallLift()

    def __enter__(self) -> Float64Lift:
        """Push this mode and the function mode for Python calls."""
        super().__enter__()  # type: ignore[no-untyped-call]
        self._calls.__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        """Pop both modes and drop the copies."""
        self._calls.__exit__(exc_type, exc_value, traceback)  # type: ignore[no-untyped-call]
        super().__exit__(exc_type, exc_value, traceback)  # type: ignore[no-untyped-call]
        self._copies = WeakTensorKeyDictionary()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator in float64."""
        _refuse_reinterpretation(func, args, kwargs or {})
        args, kwargs = tree_map(self._read, (tuple(args), dict(kwargs or {})))
        if _is_random_factory(func, args, kwargs):
            return tree_map(lift, func(*args, **kwargs))
        args, kwargs = _lift_dtype_arguments(func, args, kwargs)
        if func._schema.name in CAST_OPS:
            func = torch.ops.aten._to_copy.default
            args, kwargs = args[:1], {"dtype": kwargs["dtype"] if "dtype" in kwargs else args[1]}
        args, kwargs = _choose_float64(func, args, kwargs)
        return tree_map(lift, func(*args, **kwargs))

    def _read(self, value: Any) -> Any:
        """The float64 copy that stands for `value` within this mode, or `value` itself."""
        if not _is_lower(value):
            return value
        if value not in self._copies:
            self._copies[value] = lift(value)
        return self._copies[value]


class _CallLift(TorchFunctionMode):
    """Lifts the Python calls whose arguments are already rounded or defaulted at operator level."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Give constants their full precision, and rms_norm the eps of the original dtype."""
        kwargs = dict(kwargs or {})
        if func in (torch.tensor, torch.as_tensor, torch.asarray):
            return _construct(func, args, kwargs)
        if func in RMS_NORMS:
            eps = args[3] if len(args) > 3 else kwargs.get("eps")
            kwargs["eps"] = LOWER_EPS if eps is None else eps
            args = args[:3]
        return func(*args, **kwargs)


def _construct(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """A tensor from Python numbers, built as float64 if it is floating."""
    result = func(*args, **kwargs)
    data = args[0] if args else kwargs.get("data", kwargs.get("obj"))
    floating = result.is_floating_point() or result.is_complex()
    is_literal = floating and not hasattr(data, "dtype")
    return func(*args, **{**kwargs, "dtype": result.dtype}) if is_literal else result


def _is_lower(value: Any) -> bool:
    """Whether `value` is a tensor that would be lifted."""
    return isinstance(value, torch.Tensor) and value.dtype in LIFTED


def _is_random_factory(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether `func` draws random numbers from no tensor: drawn in float64 they would be other numbers."""
    is_random = torch.Tag.nondeterministic_seeded in func.tags
    return is_random and not any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves((args, kwargs)))


def _refuse_reinterpretation(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise MisuseError for view(dtype) from or to a floating dtype."""
    if func is not torch.ops.aten.view.dtype:
        return
    target = args[1] if len(args) > 1 else kwargs["dtype"]
    if args[0].is_floating_point() or target.is_floating_point:
        raise MisuseError(
            f"float64 reference: view of {args[0].dtype} as {target} reinterprets bits and cannot be lifted; "
            "compare without a reference, or give the implementation an arithmetic form"
        )


def _lift_dtype_arguments(func: Any, args: Any, kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Replace the value of every ScalarType argument of the schema by its lifted dtype."""
    positional, named = list(args), dict(kwargs)
    for index, argument in enumerate(func._schema.arguments):
        if "ScalarType" not in str(argument.real_type):
            continue
        if index < len(positional):
            positional[index] = LIFTED.get(positional[index], positional[index])
        elif argument.name in named:
            named[argument.name] = LIFTED.get(named[argument.name], named[argument.name])
    return tuple(positional), named


def _choose_float64(func: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Arguments with which `func` returns float64 where it would choose float32 by default.

    This concerns factories without a dtype and elementwise arithmetic on integers alone. Whether they return floats
    depends on the values (`arange(3)` or `arange(3.)`), so `func` is run once, with all other modes disabled.
    """
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    is_float = any(tensor.is_floating_point() or tensor.is_complex() for tensor in tensors)
    if is_float or func._schema.is_mutable:
        return args, kwargs
    is_factory = not tensors and any(argument.name == "dtype" for argument in func._schema.arguments)
    if not (is_factory or torch.Tag.pointwise in func.tags):
        return args, kwargs
    with _disable_current_modes():
        result = func(*args, **kwargs)
    if not _is_lower(result):
        return args, kwargs
    if is_factory:
        return args, {**kwargs, "dtype": LIFTED[result.dtype]}
    keep_bool = func.overloadpacket is torch.ops.aten.where
    args, kwargs = tree_map(lambda leaf: _integer_to_float64(leaf, keep_bool), (args, kwargs))
    return args, kwargs


def _integer_to_float64(value: Any, keep_bool: bool) -> Any:
    """An integer tensor as float64; anything else unchanged."""
    if not isinstance(value, torch.Tensor) or value.is_floating_point() or value.is_complex():
        return value
    return value if keep_bool and value.dtype is torch.bool else value.to(torch.float64)


def run_float64(
    fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
) -> Any:
    """Result of `fn(*args, **kwargs)` computed in float64 throughout: the reference of a comparison.

    Floating tensors of `args` and `kwargs` (pytrees) are converted, the rest is passed as it is; the floating
    tensors of the result are float64. Gradients flow if grad mode is on. Raises what `fn` raises, and
    MisuseError as `Float64Lift` does.
    """
    args, kwargs = tree_map(lift, (tuple(args), dict(kwargs or {})))
    with Float64Lift():
        return tree_map(lift, fn(*args, **kwargs))


def float64_module(module: torch.nn.Module) -> Callable[..., Any]:
    """A callable like `module` that computes in float64 throughout; `module` itself is not touched.

    Works on a deep copy with parameters and buffers in float64 and the training flag as it is; tensors that
    are plain attributes are lifted when they are read.
    """
    double = copy.deepcopy(module).double()
    return lambda *args, **kwargs: run_float64(double, args, kwargs)
