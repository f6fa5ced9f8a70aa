"""From a PatternBase subclass to an entry of torch's pattern matcher."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import torch
from torch._inductor.pattern_matcher import Match, PatternMatcherPass, register_replacement
from torch._subclasses.fake_tensor import FakeTensorMode

from fusionkit.errors import FusionKitError, MisuseError
from fusionkit.passes.tracing import TraceFunction, remembering
from fusionkit.patterns.pattern_base import PatternBase
from fusionkit.subjects.load import UserCode

PatternClass = type[PatternBase]
ExtraCheck = Callable[[PatternClass, Match], bool]


def register_pattern(
    pattern: PatternClass, into: PatternMatcherPass, trace: TraceFunction, check: ExtraCheck, device: str
) -> bool:
    """Register one variant; False if an equal one is registered already.

    `device` is where the model runs: the example inputs are moved there (as fake tensors), since some ops
    decompose by device. Raises MisuseError when the pattern cannot be traced.
    """
    scalars = scalars_of(pattern)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        inputs = [fake_like(tensor, device) for tensor in example_inputs(pattern)]
    try:
        with mode:
            entry = register_replacement(
                pattern.pattern,
                pattern.replacement,
                inputs,
                remembering(trace, pattern.pattern),
                into,
                extra_check=lambda match: check(pattern, match),
                scalar_workaround=scalars,
                skip_duplicates=True,
            )
    except _TRACE_ERRORS as error:
        if isinstance(error, FusionKitError):
            raise
        raise MisuseError(f"pattern {name_of(pattern)}: {_why_untraceable(error)}") from error
    if entry:
        _require_arguments(pattern, repr(entry), scalars)
    return bool(entry)


# What a user's pattern may raise while it is traced; anything else is not about the pattern.
_TRACE_ERRORS = (
    RuntimeError,
    TypeError,
    ValueError,
    AttributeError,
    AssertionError,
    LookupError,
    ArithmeticError,
)


def _why_untraceable(error: Exception) -> str:
    """One line for what tracing or converting a pattern raised."""
    what = (str(error).splitlines() or ["?"])[0]
    if "_tensor_constant" in str(error) or "_param_constant" in str(error):
        return "holds a tensor of its own (parameter_source); make it an argument of pattern and replacement"
    return f"cannot be traced ({type(error).__name__}: {what})"


def _require_arguments(pattern: PatternClass, converted: str, scalars: dict[str, float]) -> None:
    """Every argument must stand in the converted pattern, else torch's matcher raises at the first match."""
    for name in argument_names(pattern):
        if f"KeywordArg({name!r})" in converted:
            continue
        if name in scalars:
            raise MisuseError(
                f"pattern {name_of(pattern)}: scalar '{name}' is not found in its trace by its stand-in"
                f" {scalars[name]}; an op rounds or drops it: choose a value that float32 holds exactly"
            )
        raise MisuseError(
            f"pattern {name_of(pattern)}: argument '{name}' is not used by pattern(); remove it from all methods"
        )


def name_of(pattern: PatternClass) -> str:
    """The variant's name. Raises MisuseError when name() raises or gives no string."""
    with UserCode(f"pattern class {pattern.__name__}: name() raised"):
        name = pattern.name()
    if not isinstance(name, str) or not name:
        raise MisuseError(f"pattern class {pattern.__name__}: name() gives {name!r}; give a unique name")
    return name


def example_inputs(pattern: PatternClass) -> list[torch.Tensor]:
    """The example tensors, one for each argument of the pattern that is no scalar.

    Raises MisuseError when the numbers disagree, or when pattern and replacement take different arguments.
    """
    with UserCode(f"pattern {name_of(pattern)}: inputs() raised"):
        inputs = list(pattern.inputs())
    if not all(isinstance(tensor, torch.Tensor) for tensor in inputs):
        raise MisuseError(f"pattern {name_of(pattern)}: inputs() gives something else than tensors")
    names = argument_names(pattern)
    other = list(inspect.signature(pattern.replacement).parameters)
    if names != other:
        raise MisuseError(
            f"pattern {name_of(pattern)}: pattern takes {names}, replacement takes {other}; make them equal"
        )
    wanted = [name for name in names if name not in scalars_of(pattern)]
    if len(inputs) != len(wanted):
        raise MisuseError(
            f"pattern {name_of(pattern)}: inputs() gives {len(inputs)} tensors for {len(wanted)} arguments {wanted}"
        )
    return inputs


def argument_names(pattern: PatternClass) -> list[str]:
    """The names of the pattern's arguments, in order; those with a default that `scalars` lacks are left out."""
    parameters = inspect.signature(pattern.pattern).parameters
    return list(parameters)


def scalars_of(pattern: PatternClass) -> dict[str, float]:
    """The pattern's scalar stand-ins; none for classes of other back ends, which have no `scalars`."""
    method = getattr(pattern, "scalars", None)
    with UserCode(f"pattern {name_of(pattern)}: scalars() raised"):
        found = dict(method()) if callable(method) else {}
    values = list(found.values())
    if not all(isinstance(value, int | float) and value == value for value in values):
        raise MisuseError(
            f"pattern {name_of(pattern)}: scalars() must map names to numbers, got {found!r:.80}"
        )
    if len(set(values)) != len(values):
        raise MisuseError(f"pattern {name_of(pattern)}: scalars() gives two arguments one stand-in value")
    return found


def activations_of(pattern: PatternClass) -> tuple[str, ...]:
    """The arguments that a replay draws anew: as declared, else the first."""
    method = getattr(pattern, "activations", None)
    declared = tuple(method()) if callable(method) else ()
    return declared or tuple(argument_names(pattern)[:1])


def fake_like(tensor: torch.Tensor, device: str) -> torch.Tensor:
    """An empty tensor of the same size, stride and dtype on `device` (fake under an active FakeTensorMode)."""
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=device)


def real_inputs(pattern: PatternClass, seed: int) -> list[torch.Tensor]:
    """Random CPU tensors of the shapes and dtypes of `inputs()`; vectors are drawn as gains of both signs,
    away from 0 and 1.

    Integer inputs are refused: what they mean is the pattern's own matter.
    """
    generator = torch.Generator().manual_seed(seed)
    drawn = []
    for tensor in example_inputs(pattern):
        if not tensor.is_floating_point():
            raise MisuseError(
                f"pattern {name_of(pattern)}: inputs() of dtype {tensor.dtype} cannot be drawn at random"
            )
        values = torch.randn(tuple(tensor.shape), generator=generator)
        if tensor.dim() == 1:
            sign = torch.where(torch.rand(values.shape, generator=generator) < 0.5, -1.0, 1.0)
            values = sign * (1.5 + 0.25 * values.clamp(-2, 2))
        drawn.append(values.to(tensor.dtype))
    return drawn
