"""Whether a match may be replaced: the fused op's documented constraints, and the outputs that the graph needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.fx
import torch.utils._pytree as pytree
from torch._guards import detect_fake_mode
from torch._inductor.pattern_matcher import Match
from torch.utils._python_dispatch import TorchDispatchMode

from fusionkit.errors import FusionKitError
from fusionkit.npu.constraints import violations
from fusionkit.passes.cycles import cycle_of, dependent_arguments
from fusionkit.passes.keywords import OmittedKeyword, omitted_keywords
from fusionkit.passes.registering import PatternClass, argument_names
from fusionkit.passes.tracing import make_tracer
from fusionkit.pattern_files.time_limit import own_code
from fusionkit.subjects.load import UserCode


class _RefusedError(FusionKitError):
    """Carries the reason out of the dispatch mode."""


class _ConstraintCheck(TorchDispatchMode):
    """Checks every npu:: and kit op call of a replacement against the table of documented constraints."""

    supports_higher_order_operators = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace in ("npu", "fusionkit"):
            broken = violations(func._schema.name.split("::")[1], *args, **(kwargs or {}))
            if broken:
                raise _RefusedError(str(broken[0]))
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a match must not be replaced. `documented`: the fused op's own documented limit excludes this site.

    `cause`: the cause type of the explanation. `node`: the graph node that is at fault, "" for the match's last one.
    """

    reason: str
    documented: bool = False
    cause: str = "extra_check"
    node: str = ""


# The reason for a match that the pattern file's own check refuses.
OWN_CHECK = "the pattern's own extra_check refuses this site (extra_check)"


def refuse_replacement(pattern: PatternClass, match: Match) -> Refusal | None:
    """The reason why the match must not be replaced, or None.

    A keyword that the pattern omits must not change the result: torch's matcher takes any value for it.
    No argument may be computed from an output, since the fused op would wait for itself.
    A class's own static method `extra_check(match) -> bool`, as MindIE-SD's have, runs next. Then the replacement
    runs once on the site's fake tensors: every npu op must satisfy its documented constraints, and each output must
    have the shape of the node that it replaces, and its dtype unless every user casts to the new one.
    A constraint that is violated only because an argument is the site's own cast is no documented refusal:
    another variant, which includes the cast, may be allowed there.
    """
    omitted = next(omitted_keywords(match), None)
    if omitted is not None:
        return _keyword_refusal(omitted)
    cyclic = _cycle_refusal(match, partial(_needs, pattern, match))
    if cyclic is not None:
        return cyclic
    own_check = getattr(pattern, "extra_check", None)
    if callable(own_check):
        with own_code(f"pattern {pattern.name()}: extra_check"):
            if not own_check(match):
                return Refusal(OWN_CHECK)
    bound = [match.kwargs[name] for name in argument_names(pattern)]
    arguments = [value.meta.get("val") if isinstance(value, torch.fx.Node) else value for value in bound]
    mode = detect_fake_mode(arguments)
    if mode is None:
        return Refusal("an operand has no tensor metadata (missing_meta)", cause="missing_meta")
    try:
        with (
            torch.no_grad(),
            mode,
            _ConstraintCheck(),  # type: ignore[no-untyped-call]
            UserCode(f"replacement of {pattern.name()} raised"),
        ):
            result = pattern.replacement(*arguments)
    except _RefusedError as error:
        casts = [
            value for value in bound if isinstance(value, torch.fx.Node) and cast_dtype(value) is not None
        ]
        return Refusal(str(error), documented=not casts)
    except FusionKitError as error:
        return Refusal(str(error))
    changed = _changed_output(match.output_nodes(), result)
    return None if changed is None else Refusal(changed)


def _keyword_refusal(omitted: OmittedKeyword) -> Refusal:
    node, name, value = omitted
    reason = (
        f"{node.name} ({node.target}) has {name}={value}, which the pattern omits: torch's matcher takes any value"
        " for it (kwargs_structure)"
    )
    return Refusal(reason, cause="kwargs_structure", node=node.name)


def refuse_entry(match: Match, is_traced: bool) -> Refusal | None:
    """The reason why the match of a file's own entry must not be replaced: its fused op would wait for itself.

    Of a traced entry also the first keyword that its pattern omits; a handler reads the keywords itself.
    """
    omitted = next(omitted_keywords(match), None) if is_traced else None
    if omitted is not None:
        return _keyword_refusal(omitted)
    arguments = [*match.args, *match.kwargs.values()]
    return _cycle_refusal(match, lambda: [arguments for _ in match.output_nodes()])


def _cycle_refusal(match: Match, needs: Callable[[], Sequence[Iterable[torch.fx.Node]]]) -> Refusal | None:
    dependencies = dependent_arguments(match)
    cycle = cycle_of(match, dependencies, needs) if dependencies else None
    if cycle is None:
        return None
    argument, output = cycle
    reason = (
        f"argument {argument.name} ({_op(argument)}) is computed from {output.name} ({_op(output)}), an output of the"
        " match (cycle)"
    )
    return Refusal(reason, cause="cycle", node=argument.name)


def _op(node: torch.fx.Node) -> str:
    return (
        str(node.target)
        if isinstance(node.target, torch._ops.OpOverload)
        else node._pretty_print_target(node.target)
    )


def _needs(pattern: PatternClass, match: Match) -> list[list[torch.fx.Node]]:
    """For each output of the replacement the arguments that it is computed from, read from its trace."""
    bound = [match.kwargs[name] for name in argument_names(pattern)]
    arguments = [value.meta.get("val") if isinstance(value, torch.fx.Node) else value for value in bound]
    mode = detect_fake_mode(arguments)
    with mode or nullcontext(), UserCode(f"replacement of {pattern.name()} raised"):
        graph = make_tracer({})(pattern.replacement, arguments).graph
    places = dict(zip(graph.find_nodes(op="placeholder"), bound, strict=True))
    below: dict[Any, set[Any]] = {}
    for node in graph.nodes:
        own = {places[node]} if isinstance(places.get(node), torch.fx.Node) else set()
        below[node] = own.union(*(below[operand] for operand in node.all_input_nodes))
    results = pytree.tree_leaves(graph.output_node().args[0])
    return [list(below.get(result, ())) for result in results]


def cast_dtype(node: torch.fx.Node) -> torch.dtype | None:
    """The dtype that a node casts to, by any of the cast ops in graphs; None for another node."""
    if node.target is torch.ops.aten._to_copy.default:
        dtype = node.kwargs.get("dtype")
    elif str(node.target) in ("prims.convert_element_type.default", "npu._npu_dtype_cast.default"):
        dtype = node.args[1]
    else:
        return None
    return dtype if isinstance(dtype, torch.dtype) else None


def _changed_output(roots: list[torch.fx.Node | None], result: Any) -> str | None:
    """The first difference in number, shape or dtype between the replacement's outputs and `roots`, or None."""
    results = list(result) if isinstance(result, tuple | list) else [result]
    if len(results) != len(roots):
        return f"the replacement gives {len(results)} outputs for {len(roots)}"
    for root, new in zip(roots, results, strict=True):
        if not isinstance(new, torch.Tensor):
            return f"the replacement gives {type(new).__name__} instead of a tensor"
        old = None if root is None else root.meta.get("val")
        if root is None or not isinstance(old, torch.Tensor):
            continue
        if tuple(old.shape) != tuple(new.shape):
            return f"the output's shape would change from {list(old.shape)} to {list(new.shape)}"
        if old.dtype != new.dtype and not all(cast_dtype(user) == new.dtype for user in root.users):
            return f"the output's dtype would change from {old.dtype} to {new.dtype}".replace("torch.", "")
    return None
