"""Pattern classes made from another one: with ops changed, or with the class itself made wrong in one way.

A case's pattern file holds nothing but one of these calls, so that it reads as what it is.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch

from fusionkit.patterns import PatternBase
from mismatches.dispatch import Mutating
from mismatches.operators import OPERATORS, WHOLE_PATTERN

PatternClass = type[PatternBase]
_LONGEST = 64  # ops of a pattern
Step = tuple[str, int, int]


def change(operator: str, *, at: int, seed: int = 0) -> Step:
    """One operator at one op of a pattern."""
    return operator, at, seed


def mutated(pattern: PatternClass, *steps: Step) -> PatternClass:
    """`pattern` with each step's operator applied to its op, wherever it is traced."""
    changes = {at: ((OPERATORS | WHOLE_PATTERN)[operator][1], seed) for operator, at, seed in steps}
    examples: dict[int, tuple[Any, ...]] = {}

    @functools.wraps(pattern.pattern)
    def changed(*args: Any, **kwargs: Any) -> Any:
        with Mutating(changes, examples) as mode:
            made = pattern.pattern(*args, **kwargs)
        made_class.events = mode.events
        return made

    told = "_".join(f"{operator}_{at}" for operator, at, _ in steps[:2])
    made_class = variant_of(pattern, told, pattern=changed)
    return made_class


def variant_of(pattern: PatternClass, told: str, /, **methods: Callable[..., Any]) -> Any:
    """A subclass under a name of its own with some methods put in the place of the pattern's."""
    name = f"{pattern.name()}_{told}"
    body = {key: staticmethod(method) for key, method in methods.items()}
    return type(f"Mutated{pattern.__name__}", (pattern,), {"name": staticmethod(lambda: name), **body})


def with_scalar(pattern: PatternClass, scalar: str, value: float) -> PatternClass:
    """A number that the pattern reads from the graph, written down as `value`."""
    place = list(inspect.signature(pattern.pattern).parameters).index(scalar)

    def without(function: Callable[..., Any]) -> Callable[..., Any]:
        def given(*args: Any) -> Any:
            return function(*args[:place], value, *args[place:])

        signature = inspect.signature(function)
        kept = [item for name, item in signature.parameters.items() if name != scalar]
        given.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return given

    left = {name: number for name, number in pattern.scalars().items() if name != scalar}
    return variant_of(
        pattern,
        f"{scalar}_{value}",
        pattern=without(pattern.pattern),
        replacement=without(pattern.replacement),
        scalars=lambda: left,
    )


def with_closure(pattern: PatternClass, argument: int) -> PatternClass:
    """One tensor argument held by the pattern itself instead of being given."""
    example = pattern.inputs()[argument]
    held = torch.ones(example.shape, dtype=example.dtype)

    def without(function: Callable[..., Any]) -> Callable[..., Any]:
        def given(*args: Any) -> Any:
            return function(*args[:argument], held, *args[argument:])

        signature = inspect.signature(function)
        kept = [item for index, item in enumerate(signature.parameters.values()) if index != argument]
        given.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return given

    return variant_of(
        pattern,
        f"closure_{argument}",
        inputs=lambda: [t for index, t in enumerate(pattern.inputs()) if index != argument],
        pattern=without(pattern.pattern),
        replacement=without(pattern.replacement),
    )


def with_unused(pattern: PatternClass, shape: tuple[int, ...] = (4,)) -> PatternClass:
    """One more argument in front, of which nothing is made."""

    def ignoring(function: Callable[..., Any]) -> Callable[..., Any]:
        def given(*args: Any) -> Any:
            return function(*args[1:])

        signature = inspect.signature(function)
        first = inspect.Parameter("unused", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        parameters = [first, *signature.parameters.values()]
        given.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return given

    return variant_of(
        pattern,
        "unused",
        inputs=lambda: [torch.empty(shape, device="meta"), *pattern.inputs()],
        pattern=ignoring(pattern.pattern),
        replacement=ignoring(pattern.replacement),
    )


def raising_elsewhere(pattern: PatternClass, argument: int, what: str) -> PatternClass:
    """A pattern that can only be traced for the size (`what` a dim's number) or rank ("rank") of its example."""
    example = pattern.inputs()[argument]
    wanted = example.dim() if what == "rank" else example.shape[int(what)]

    @functools.wraps(pattern.pattern)
    def choosy(*args: Any) -> Any:
        tensor = args[argument]
        found = tensor.dim() if what == "rank" else tensor.shape[int(what)]
        if found != wanted:
            raise RuntimeError(f"this pattern is for {what} {wanted}, not {found}")
        return pattern.pattern(*args)

    return variant_of(pattern, f"raising_{what}", pattern=choosy)


def with_misfit(pattern: PatternClass, kind: str) -> PatternClass:
    """A replacement that gives another dtype ("dtype"), rank ("rank") or length ("length")."""

    @functools.wraps(pattern.replacement)
    def misfit(*args: Any) -> Any:
        made = pattern.replacement(*args)
        if kind == "dtype":
            return made.to(torch.float16)
        return made.unsqueeze(0) if kind == "rank" else torch.cat([made, made], dim=-1)

    return variant_of(pattern, f"misfit_{kind}", replacement=misfit)


def as_one_op(pattern: PatternClass, whole: str) -> PatternClass:
    """The whole pattern as one op of torch: `_fused_rms_norm` or `gelu` (tanh)."""
    aten = torch.ops.aten

    @functools.wraps(pattern.pattern)
    def one(x: torch.Tensor, *rest: Any) -> Any:
        if whole == "gelu":
            return aten.gelu.default(x, approximate="tanh")
        return aten._fused_rms_norm.default(x, [x.shape[-1]], *rest[:2])[0]

    return variant_of(pattern, f"one_{whole}", pattern=one)


def by_default_table(pattern: PatternClass) -> PatternClass:
    """The pattern as a trace with Inductor's default decomposition table has it."""
    return mutated(pattern, *(change("by_table", at=at) for at in range(_LONGEST)))


def takes(pattern: PatternClass, at: int) -> PatternClass:
    """A pattern of its own that takes the op `at` of `pattern`, and nothing else, wherever it stands."""
    from mismatches.single import single_op

    return single_op(pattern, at)
