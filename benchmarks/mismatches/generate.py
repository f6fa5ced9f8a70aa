"""The seeded generator: for one subject, cases of every operator that drops hits there by torch's own word."""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch.fx

from fusionkit.capture.graphs import Capture, CapturedGraph
from fusionkit.capture.sources import module_path
from fusionkit.config import FusionPatterns
from fusionkit.errors import MisuseError
from fusionkit.passes.registering import PatternClass
from fusionkit.passes.registry import enabled_groups, pattern_registry
from mismatches.capsules import OWN
from mismatches.case import Case, file_text, steps_text
from mismatches.classes import Step, change, mutated
from mismatches.dispatch import DoesNotApplyError, Event
from mismatches.graph_edits import EDITS
from mismatches.labels import Expected, Label, label_of, same_elsewhere
from mismatches.operators import OPERATORS
from mismatches.own_patterns import OwnPatternGroup
from mismatches.sites import Found, Site, Traced, clean_copy, site_of, torch_matches, traced

BEFORE = "before-freezing"
INVALID = (
    DoesNotApplyError,
    MisuseError,
    RuntimeError,
    TypeError,
    ValueError,
    IndexError,
    NotImplementedError,
)


@dataclass(frozen=True, slots=True)
class Original:
    """A variant of the kit that hits in a subject, with its trace and its sites."""

    fusion: str
    index: int
    pattern: PatternClass
    trace: Traced
    events: tuple[Event, ...]
    sites: tuple[Site, ...]

    @property
    def ops(self) -> int:
        """How many ops the pattern dispatches."""
        return len(self.events)

    @property
    def group(self) -> str:
        """The module that exports the group and its name there, as an import statement has them."""
        if self.fusion == "own":
            return "mismatches.own_patterns import OwnPatternGroup"
        return f"fusionkit.patterns import {pattern_registry[f'enable_{self.fusion}'][0]}"

    @property
    def name(self) -> str:
        return self.pattern.name()


def originals_of(capture: Capture) -> list[Original]:
    """Every variant of the kit that torch's matcher finds in the capture and the kit replaces there.

    In the capture of the user-like models, the patterns for them instead.
    """
    from mismatches.replaced import replaced_sites

    found = []
    graphs = capture.in_window(BEFORE)
    groups = {"own": OwnPatternGroup} if capture.subject == OWN else enabled_groups(FusionPatterns())
    for fusion, group in groups.items():
        for index, pattern in enumerate(group):
            matches = torch_matches([pattern], graphs)
            if not matches or not replaced_sites(capture, pattern):
                continue
            plain = mutated(pattern)
            trace = traced(plain)
            sites = tuple(site_of(trace, item, *_place(graphs, item)) for item in matches if item.binds_nodes)
            found.append(Original(fusion, index, pattern, trace, tuple(plain.events), sites))
    return found


def _place(graphs: tuple[CapturedGraph, ...], found: Found) -> tuple[CapturedGraph, str]:
    graph = next(graph for graph in graphs if graph.key.index == found.graph)
    return graph, module_path(node_of(graph, found.anchor))


def node_of(graph: CapturedGraph, name: str) -> torch.fx.Node:
    """A node by its name."""
    return next(node for node in graph.nodes if node.name == name)


def chance_for(capture: Capture, seed: int, what: str) -> random.Random:
    """A generator of its own for each subject and purpose."""
    return random.Random(zlib.crc32(f"{capture.subject}:{what}:{seed}".encode()))


def dropped(original: Original, matches: list[Found]) -> list[Site]:
    """The sites of a variant that torch takes no more: no match has most of their nodes."""
    return [site for site in original.sites if not any(_takes(item, site) for item in matches)]


def _takes(match: Found, site: Site) -> bool:
    own = set(site.found.nodes)
    return match.graph == site.found.graph and 2 * len(own.intersection(match.nodes)) >= len(own)


def op_cases(capture: Capture, originals: list[Original], seed: int, per_type: int) -> Iterator[Case]:
    """Cases with one op changed: at most `per_type` for each operator, spread over the variants."""
    chance = chance_for(capture, seed, "ops")
    uses: Counter[str] = Counter()
    for operator in OPERATORS:
        order = list(originals)
        chance.shuffle(order)
        order.sort(key=lambda original: uses[original.name])
        made = 0
        for original in order:
            case = _one_op_case(capture, original, operator, chance)
            if case is not None:
                yield case
                made += 1
                uses[original.name] += 1
            if made >= per_type:
                break


def _one_op_case(
    capture: Capture, original: Original, operator: str, chance: random.Random, tries: int = 12
) -> Case | None:
    last = original.ops - 1
    places = [last] if operator == "absent_root" else list(range(original.ops))
    steps = [change(operator, at=at, seed=s) for at in places for s in range(3)]
    chance.shuffle(steps)
    for step in steps[:tries]:
        if operator in ("insert_node", "replace_node", "insert_cast", "widen") and step[1] == last:
            continue
        expected = expect(capture, original, (step,))
        if expected:
            text = file_text(original.group, steps_text(original.index, (step,)))
            told = f"{capture.subject}-{original.name}-{operator}-{step[1]}-{step[2]}"
            return Case(
                told,
                capture.subject,
                original.name,
                operator,
                capture,
                expected,
                original.sites,
                {file_name(told): text},
            )
    return None


def expect(capture: Capture, original: Original, steps: tuple[Step, ...]) -> tuple[Expected, ...]:
    """What the changed variant drops, with labels; empty when it is no pattern or drops nothing."""
    graphs = capture.in_window(BEFORE)
    try:
        pattern = mutated(original.pattern, *steps)
        trace = traced(pattern)
        if not same_elsewhere(original.events, pattern.events, {at for _, at, _ in steps}):
            return ()
        gone = dropped(original, torch_matches([pattern], graphs))
    except INVALID:
        return ()
    return tuple(_expected(original, trace, site, graphs, steps) for site in gone)


def _expected(
    original: Original, trace: Traced, site: Site, graphs: tuple[CapturedGraph, ...], steps: tuple[Step, ...]
) -> Expected:
    graph = next(graph for graph in graphs if graph.key.index == site.found.graph)
    nodes = {node.name: node for node in graph.nodes}
    labels = [label_of(step, original.trace, trace, site, nodes) for step in steps]
    if steps[0][0] == "freeze_size" and not _retraces(original, steps, site, nodes):
        labels = [Label("retrace_error")]
    return Expected(site, tuple(labels))


def _retraces(
    original: Original, steps: tuple[Step, ...], site: Site, nodes: dict[str, torch.fx.Node]
) -> bool:
    """Whether a changed pattern can be traced on the values of a site."""
    values = [nodes[name].meta["val"] for name in site.inputs]
    tensors = [
        torch.empty(v.shape, dtype=v.dtype, device="meta") for v in values if isinstance(v, torch.Tensor)
    ]
    pattern = mutated(original.pattern, *steps)
    traced(pattern)  # the example's sizes are those of the first trace
    try:
        traced(pattern, [torch.empty(t.shape, dtype=t.dtype) for t in tensors])
    except INVALID:
        return False
    return True


def double_cases(capture: Capture, originals: list[Original], seed: int, count: int) -> Iterator[Case]:
    """Cases with two different operators at two ops of one variant."""
    chance, made = chance_for(capture, seed, "doubles"), 0
    operators = [
        n for n in OPERATORS if n not in ("freeze_size", "absent_root", "compute_twice", "decompose")
    ]
    long = [original for original in originals if original.ops > 3]
    for _ in range(count * 15):
        if made >= count or not long:
            return
        original = chance.choice(long)
        one, two = chance.sample(operators, 2)
        at, other = sorted(chance.sample(range(original.ops - 1), 2))
        steps = change(one, at=at, seed=chance.randrange(3)), change(two, at=other, seed=chance.randrange(3))
        if OPERATORS[one][0] == OPERATORS[two][0] or not all(
            expect(capture, original, (step,)) for step in steps
        ):
            continue
        expected = expect(capture, original, steps)
        if expected:
            told = f"{capture.subject}-{original.name}-{one}-{at}-and-{two}-{other}"
            text = file_text(original.group, steps_text(original.index, steps))
            made += 1
            yield Case(
                told,
                capture.subject,
                original.name,
                "double",
                capture,
                expected,
                original.sites,
                {file_name(told): text},
            )


def graph_cases(capture: Capture, originals: list[Original], seed: int, per_type: int) -> Iterator[Case]:
    """Cases with the graph changed at one site of an unchanged variant."""
    chance = chance_for(capture, seed, "graph")
    for operator in EDITS:
        made: Counter[str] = Counter()
        order = [original for original in originals for _ in range(2)]
        chance.shuffle(order)
        for original in order:
            if sum(made.values()) >= per_type:
                break
            if made[original.name]:
                continue
            case = _one_graph_case(capture, original, operator, chance)
            if case is not None:
                made[original.name] += 1
                yield case


def _one_graph_case(
    capture: Capture, original: Original, operator: str, chance: random.Random
) -> Case | None:
    site = chance.choice(original.sites)
    graphs = tuple(replace(graph, module=clean_copy(graph.module)) for graph in capture.graphs)
    index = next(i for i, g in enumerate(graphs) if g.key.index == site.found.graph and g.window == BEFORE)
    try:
        label = EDITS[operator][1](graphs[index].module.graph, site, chance)
    except (DoesNotApplyError, *INVALID):
        return None
    graphs[index].module.graph.lint()
    changed = replace(capture, graphs=tuple(graph for graph in graphs if graph.window == BEFORE))
    try:
        gone = dropped(original, torch_matches([original.pattern], changed.in_window(BEFORE)))
    except (KeyError, AssertionError, AttributeError, TypeError, MisuseError):
        if operator != "meta_gone":
            return None
        lacking = {n.name for n in graphs[index].nodes if n.op != "output" and "val" not in n.meta}
        gone = [
            other for other in original.sites if lacking & set(other.inputs)
        ]  # torch's matcher itself raises
    if site not in gone:
        return None
    told = f"{capture.subject}-{original.name}-{operator}-{site.found.anchor}"
    text = file_text(original.group, f"Originals[{original.index}]")
    expected = tuple(Expected(other, (label,)) for other in gone)
    return Case(
        told,
        capture.subject,
        original.name,
        operator,
        changed,
        expected,
        original.sites,
        {file_name(told): text},
    )


def file_name(told: str) -> str:
    return f"{''.join(c if c.isalnum() else '_' for c in told)}_pattern.py"
