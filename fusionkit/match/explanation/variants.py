"""One variant of a pattern: its trace, and the answer of torch's own matcher at a node.

The stages are torch's own, observed and not reimplemented: the structure (literals ignored), the retrace at the
site's shapes with every literal compared, and the replacement's check.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch._guards import detect_fake_mode
from torch._inductor.lowering import fallback_node_due_to_unsupported_type, unsupported_input_tensor
from torch._inductor.pattern_matcher import (
    Match,
    PatternEntry,
    PatternMatcherPass,
    PatternPrettyPrinter,
    compute_mutation_region_ids,
    get_mutation_region_id,
    should_compute_mutation_region_ids,
)
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves

from fusionkit.errors import USER_CODE_ERRORS
from fusionkit.match.ops import node_pairs
from fusionkit.passes.admission import Refusal, refuse_replacement
from fusionkit.passes.registering import (
    PatternClass,
    UnmatchableError,
    argument_names,
    bind_arguments,
    example_inputs,
    fake_like,
    register_pattern,
    scalars_of,
)
from fusionkit.passes.tracing import TraceFunction, remembering, unlogged_retraces


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of torch's matcher at one node.

    `stage`: where it stopped: "dtype", "structure", "mutation", "meta", "retrace", "literals", "check" or "hit"; `said`: its
    message, or the reason of the refusal; `match`: the structural match, if any; `refusal`: that of stage "check".
    """

    stage: str
    said: str = ""
    match: Match | None = None
    refusal: Refusal | None = None


class Variant:
    """A pattern class traced on its example inputs, with its own entry of torch's matcher.

    `unmatchable`: why torch's matcher cannot represent it, None if it can. `raised`: the error of the last retrace,
    if any. Raises MisuseError when the pattern cannot be traced at all.
    """

    def __init__(self, pattern: PatternClass, trace: TraceFunction, device: str) -> None:
        self.pattern = pattern
        self.name = pattern.name()
        self.arguments = tuple(argument_names(pattern))
        self.scalars = scalars_of(pattern)
        self._trace = trace
        self._device = device
        self._remembered = remembering(trace, pattern.pattern)
        self.graph = self._traced(pattern.pattern)
        self.unmatchable: UnmatchableError | None = None
        self.raised: BaseException | None = None
        self._refusal: Refusal | None = None
        self._checked = False
        self._entry = self._register()

    @property
    def calls(self) -> tuple[torch.fx.Node, ...]:
        """The op calls of the trace, in order."""
        return tuple(node for node in self.graph.nodes if node.op == "call_function")

    @property
    def signature(self) -> str:
        """The text by which torch recognises equal patterns: the search expression, and its graph."""
        expression = "" if self._entry is None else PatternPrettyPrinter.run(self._entry.pattern)
        return f"{expression}\n{self.graph}"

    def replaces_like(self, other: Variant) -> bool:
        """Whether both replacements have equal traces."""
        ours, theirs = (str(item._traced(item.pattern.replacement)) for item in (self, other))
        return ours == theirs

    def ask(self, node: torch.fx.Node) -> Answer:
        """Run torch's matcher at one node of a graph and return where it stopped."""
        if self._entry is None:
            return Answer("structure", "the pattern is not registered")
        unsupported = unsupported_tensor(node)
        if unsupported is not None:
            return Answer("dtype", unsupported)
        match = self._entry.pattern.match(node)
        if not isinstance(match, Match):
            return Answer("structure", _words_of(match))
        crossing = _crosses_mutation(node.graph, match)
        if crossing:
            return Answer("mutation", crossing, match)
        for bound in match.kwargs.values():
            if isinstance(bound, torch.fx.Node) and bound.meta.get("val") is None:
                return Answer("meta", bound.name, match)
        return self._judge(match)

    def _judge(self, match: Match) -> Answer:
        """The later stages for a structural match: literals at the site's shapes, then the replacement's check."""
        assert self._entry is not None
        self.raised, self._refusal, self._checked = None, None, False
        taken = bool(self._entry.extra_check(match))
        if self.raised is not None:
            words = (str(self.raised).splitlines() or ["?"])[0]
            return Answer("retrace", f"{type(self.raised).__name__}: {words}", match)
        if not self._checked:
            return Answer("literals", "a literal differs at the site's own shapes", match)
        return checked_answer(match, None if taken else self._refusal or Refusal(""))

    def retrace(self, bindings: Mapping[torch.fx.Node, Any]) -> dict[torch.fx.Node, torch.fx.Node] | None:
        """The trace at a site's own shapes: nodes of `graph` -> nodes of the new trace.

        `bindings`: placeholder -> graph node or literal. None if an argument is unbound or has no value, or if the
        trace has other ops there. Raises what the pattern raises.
        """
        places = zip(self.arguments, self.placeholders, strict=True)
        values = [self._value(name, node, bindings) for name, node in places]
        mode = detect_fake_mode(values)
        if mode is None or any(value is None for value in values):
            return None
        with mode, unlogged_retraces():
            fresh = [fake_like(v, str(v.device)) if isinstance(v, torch.Tensor) else v for v in values]
            again = self._remembered(self.pattern.pattern, fresh).graph
        return node_pairs(self.graph, again)

    @property
    def placeholders(self) -> list[torch.fx.Node]:
        """The placeholders of the trace, in the order of the arguments."""
        return list(self.graph.find_nodes(op="placeholder"))

    def _value(self, name: str, place: torch.fx.Node, bindings: Mapping[torch.fx.Node, Any]) -> Any:
        if name in self.scalars:
            return self.scalars[name]
        bound = bindings.get(place)
        return bound.meta.get("val") if isinstance(bound, torch.fx.Node) else bound

    def _traced(self, function: Any) -> torch.fx.Graph:
        with FakeTensorMode(allow_non_fake_inputs=True):
            tensors = [fake_like(tensor, self._device) for tensor in example_inputs(self.pattern)]
            arguments = bind_arguments(self.pattern, tensors, self.scalars)
            return self._trace(function, [*arguments.values()]).graph

    def _register(self) -> PatternEntry | None:
        scratch = PatternMatcherPass(pass_name="fusionkit_explain")
        try:
            register_pattern(self.pattern, scratch, self._listening, self._check, self._device)
        except UnmatchableError as error:
            self.unmatchable = error
            return None
        return next((entry for indexed in scratch.patterns.values() for entry in indexed), None)

    def _listening(self, fn: Any, args: Sequence[Any], **keywords: Any) -> torch.fx.GraphModule:
        try:
            return self._trace(fn, args, **keywords)
        except USER_CODE_ERRORS as error:
            self.raised = error
            raise

    def _check(self, pattern: PatternClass, match: Match) -> bool:
        self._checked = True
        self._refusal = refuse_replacement(pattern, match)
        return self._refusal is None


def checked_answer(match: Match, refusal: Refusal | None) -> Answer:
    """The answer for a match of structure and literals, which the replacement's check refuses or admits."""
    return Answer("hit", "", match) if refusal is None else Answer("check", refusal.reason, match, refusal)


def unsupported_tensor(node: torch.fx.Node) -> str | None:
    """The tensor for which torch's matcher passes a node by: Inductor generates no code for its dtype. None if it stops."""
    if not fallback_node_due_to_unsupported_type(node, allow_cpu_inputs=False):
        return None
    for place, one in [*((operand.name, operand) for operand in node.all_input_nodes), ("its result", node)]:
        for value in tree_leaves(one.meta.get("val")):
            if isinstance(value, torch.Tensor) and unsupported_input_tensor(value, node):
                return f"{place} of dtype {str(value.dtype).removeprefix('torch.')}"
    return "a tensor that Inductor generates no code for"


def _words_of(failed: Any) -> str:
    """The text of torch's FailedMatch; forming it can raise (pytorch issue 169440)."""
    try:
        return str(failed)
    except (KeyError, IndexError, ValueError, TypeError, AttributeError) as error:
        return f"{type(failed).__name__} whose text raises {type(error).__name__}"


def _crosses_mutation(graph: torch.fx.Graph, match: Match) -> str:
    """One matched node for each mutation region of a match; "" if all are in one region."""
    if should_compute_mutation_region_ids(graph):
        compute_mutation_region_ids(graph)
    regions: dict[int, str] = {}
    for node in match.nodes:
        regions.setdefault(get_mutation_region_id(graph, node), node.name)
    return ", ".join(regions.values()) if len(regions) > 1 else ""
