"""From a PatternBase subclass to an entry of torch's pattern matcher."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.fx
from torch._inductor.pattern_matcher import Match, PatternEntry, PatternMatcherPass, register_replacement
from torch._subclasses.fake_tensor import FakeTensorMode

from fusionkit.errors import USER_CODE_ERRORS, FusionKitError, MisuseError
from fusionkit.numeric.samples import example_like
from fusionkit.passes.tracing import (
    TraceFunction,
    form_of,
    remembering,
    require_searchable,
    searched_graphs,
    unlogged_retraces,
)
from fusionkit.pattern_files.time_limit import own_code, place_of, within_limits
from fusionkit.patterns.pattern_base import PatternBase

PatternClass = type[PatternBase]


class UnmatchableError(MisuseError):
    """A pattern that torch's matcher cannot represent; `kind`: the cause type of the explanation."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


ExtraCheck = Callable[[PatternClass, Match], bool]


def register_pattern(
    pattern: PatternClass, into: PatternMatcherPass, trace: TraceFunction, check: ExtraCheck, device: str
) -> bool:
    """Register one variant; False if an equal one is registered already.

    `device`: the model's device. The example inputs become fake tensors on it, since some ops decompose by device.
    Raises MisuseError when the pattern cannot be traced.
    """
    scalars = scalars_of(pattern)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        inputs = [fake_like(tensor, device) for tensor in example_inputs(pattern)]
    name = name_of(pattern)
    bounded = _BoundedTrace(trace, name)
    arguments = bind_arguments(pattern, inputs, scalars)
    searched = searched_graphs(trace, pattern.pattern, device)
    try:
        with mode, unlogged_retraces(), within_limits(f"pattern {name}: tracing it"):
            if (pattern.pattern, form_of(list(arguments.values()))) not in searched:
                require_searchable(name, pattern.pattern, arguments)
            entry = register_replacement(
                pattern.pattern,
                pattern.replacement,
                inputs,
                remembering(bounded, pattern.pattern, searched),
                into,
                extra_check=lambda match: check(pattern, match),
                scalar_workaround=scalars,
                skip_duplicates=True,
            )
    except USER_CODE_ERRORS as error:
        if isinstance(error, FusionKitError):
            raise
        message = f"pattern {name}: {_why_untraceable(error)}"
        if _holds_tensor(error):
            raise UnmatchableError(message, "parameter_source") from error
        raise MisuseError(message) from error
    bounded.registered = True
    if entry:
        _require_arguments(pattern, repr(entry), scalars)
        _miss_where_untraceable(into, entry)
    return bool(entry)


def entries_of(matcher: PatternMatcherPass) -> Iterator[PatternEntry]:
    """Every entry of torch's matcher, once for each of its indexes."""
    for indexed in matcher.patterns.values():
        yield from indexed


def _miss_where_untraceable(into: PatternMatcherPass, registered: Any) -> None:
    """Turn any error of a retrace at a site into a miss; torch itself does so for RuntimeError only."""
    for entry in entries_of(into):
        if entry.pattern is registered:
            entry.extra_check = _missing_on_errors(entry.extra_check)


def _missing_on_errors(check: Callable[[Match], Any]) -> Callable[[Match], bool]:
    def checked(match: Match) -> bool:
        bound = [value for value in match.kwargs.values() if isinstance(value, torch.fx.Node)]
        if any("val" not in node.meta for node in bound):
            return False
        try:
            with unlogged_retraces():
                return bool(check(match))
        except FusionKitError:
            raise
        except USER_CODE_ERRORS:
            return False

    return checked


class _BoundedTrace:
    """A trace function with a time limit for each call: torch traces the pattern again at every site's shapes.

    Once `registered`, any error of the pattern becomes a RuntimeError, which torch treats as a miss (retrace_error);
    any other type would end the compile.
    """

    def __init__(self, trace: TraceFunction, name: str) -> None:
        self._trace = trace
        self._name = name
        self.registered = False

    def __call__(self, fn: Callable[..., Any], args: Sequence[Any], **keywords: Any) -> torch.fx.GraphModule:
        with within_limits(f"pattern {self._name}: tracing it"):
            try:
                return self._trace(fn, args, **keywords)
            except USER_CODE_ERRORS as error:
                if not self.registered or isinstance(error, RuntimeError | FusionKitError):
                    raise
                raise RuntimeError(f"{type(error).__name__}: {error}") from error


def bind_arguments(
    pattern: PatternClass, tensors: Iterable[Any], scalars: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Argument -> the next of `tensors`, or its stand-in in `scalars` (default: scalars()), in order."""
    numbers, rest = scalars_of(pattern) if scalars is None else scalars, iter(tensors)
    return {name: numbers[name] if name in numbers else next(rest) for name in argument_names(pattern)}


def replacement_of(
    pattern: PatternClass, names: Sequence[str], literals: Mapping[str, Any]
) -> Callable[..., Any]:
    """The replacement as a function of the arguments `names`, the others fixed to `literals`."""

    def replacement(*tensors: torch.Tensor) -> Any:
        given = dict(zip(names, tensors, strict=True)) | dict(literals)
        return pattern.replacement(*(given[name] for name in argument_names(pattern)))

    return replacement


def _why_untraceable(error: BaseException) -> str:
    """One line on an error of tracing or converting a pattern."""
    if _holds_tensor(error):
        return "holds a tensor of its own (parameter_source); make it an argument of pattern and replacement"
    place = place_of(error)
    if isinstance(error, RecursionError) and not place:
        return (
            "is too long a chain for torch's matcher, which recurses from op to op; search for a part of it"
        )
    text = str(error).strip().partition("\n")[0]
    return f"cannot be traced ({type(error).__name__}{text and ': '}{text}){place}"


def _holds_tensor(error: BaseException) -> bool:
    return "_tensor_constant" in str(error) or "_param_constant" in str(error)


def _require_arguments(pattern: PatternClass, converted: str, scalars: dict[str, float]) -> None:
    """Raise MisuseError unless every argument occurs in the converted pattern: torch's matcher needs them all."""
    for name in argument_names(pattern):
        if f"KeywordArg({name!r})" in converted:
            continue
        if name in scalars:
            raise MisuseError(
                f"pattern {name_of(pattern)}: scalar '{name}' is not found in its trace by its stand-in"
                f" {scalars[name]}; an op rounds or drops it: choose a value that float32 holds exactly"
            )
        raise UnmatchableError(
            f"pattern {name_of(pattern)}: argument '{name}' is not used by pattern(); remove it from all methods",
            "unused_argument",
        )


def name_of(pattern: PatternClass) -> str:
    """The variant's name. Raises MisuseError when name() raises or gives no string."""
    with own_code(f"pattern class {pattern.__name__}: name()"):
        name = pattern.name()
    if not isinstance(name, str) or not name:
        raise MisuseError(f"pattern class {pattern.__name__}: name() gives {name!r:.80}; give a unique name")
    if not name.isprintable():
        raise MisuseError(
            f"pattern class {pattern.__name__}: name() gives {name!r:.80}; a name is one line without control characters"
        )
    return name


def example_inputs(pattern: PatternClass, scalars: Collection[str] | None = None) -> list[torch.Tensor]:
    """The example tensors, one for each argument of the pattern that is not in `scalars` (default: scalars()).

    Raises MisuseError when there are more or fewer, or when pattern and replacement take different arguments.
    """
    with own_code(f"pattern {name_of(pattern)}: inputs()"):
        inputs = pattern.inputs()
    tensors = list(inputs) if isinstance(inputs, list | tuple) else [None]
    if not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
        raise MisuseError(f"pattern {name_of(pattern)}: inputs() gives something else than a list of tensors")
    names = argument_names(pattern)
    other = _parameters(pattern, "replacement")
    if names != other:
        raise MisuseError(
            f"pattern {name_of(pattern)}: pattern takes {names}, replacement takes {other}; make them equal"
        )
    numbers = scalars_of(pattern) if scalars is None else scalars
    wanted = [name for name in names if name not in numbers]
    if len(tensors) != len(wanted):
        raise MisuseError(
            f"pattern {name_of(pattern)}: inputs() gives {len(tensors)} tensors for {len(wanted)} arguments {wanted}"
        )
    return tensors


def argument_names(pattern: PatternClass) -> list[str]:
    """The names of the pattern's arguments, in order."""
    return _parameters(pattern, "pattern")


def _parameters(pattern: PatternClass, method: str) -> list[str]:
    """The names of a method's parameters. Raises MisuseError for *args, **kwargs and self."""
    try:
        parameters = inspect.signature(getattr(pattern, method)).parameters.values()
    except (TypeError, ValueError) as error:
        raise MisuseError(f"pattern {name_of(pattern)}: {method} is no function ({error})") from error
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise MisuseError(
                f"pattern {name_of(pattern)}: {method}() takes {parameter}; name each argument, as inputs() gives them"
            )
    names = [parameter.name for parameter in parameters]
    if names[:1] == ["self"]:
        raise MisuseError(f"pattern {name_of(pattern)}: {method}() takes self; make it a @staticmethod")
    return names


def raw_scalars(pattern: PatternClass) -> dict[str, float]:
    """The result of scalars(), numbers that may be equal; empty for a class of another backend, which has no `scalars`.

    Raises MisuseError for anything else than a mapping of names to numbers.
    """
    method = getattr(pattern, "scalars", None)
    with own_code(f"pattern {name_of(pattern)}: scalars()"):
        scalars = dict(method()) if callable(method) else {}
    if not all(isinstance(value, int | float) and value == value for value in scalars.values()):
        raise MisuseError(
            f"pattern {name_of(pattern)}: scalars() must map names to numbers, got {scalars!r:.80}"
        )
    return scalars


def scalars_of(pattern: PatternClass) -> dict[str, float]:
    """The pattern's scalar stand-ins. Raises MisuseError unless they are different numbers."""
    scalars = raw_scalars(pattern)
    if len(set(scalars.values())) != len(scalars):
        raise MisuseError(f"pattern {name_of(pattern)}: scalars() gives two arguments one stand-in value")
    return scalars


def activations_of(pattern: PatternClass) -> tuple[str, ...]:
    """The arguments that a replay draws at random: as declared, else the first.

    Raises MisuseError when activations() raises or returns no sequence.
    """
    method = getattr(pattern, "activations", None)
    with own_code(f"pattern {name_of(pattern)}: activations()"):
        declared = tuple(method()) if callable(method) else ()
    return declared or tuple(argument_names(pattern)[:1])


def fake_like(tensor: torch.Tensor, device: str) -> torch.Tensor:
    """An empty tensor of the same size, stride and dtype on `device` (fake under an active FakeTensorMode)."""
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=device)


def real_inputs(pattern: PatternClass, seed: int) -> list[torch.Tensor]:
    """Random CPU tensors of the shapes and dtypes of `inputs()`, as `example_like` draws them."""
    generator = torch.Generator().manual_seed(seed)
    return [example_like(tensor, generator) for tensor in example_inputs(pattern)]
