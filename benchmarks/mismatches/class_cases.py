"""Cases whose change is in the class, its file or the config rather than in one op."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

from fusionkit.capture.graphs import Capture
from fusionkit.config import select_patterns
from fusionkit.errors import MisuseError
from mismatches.case import Case, file_text
from mismatches.classes import (
    as_one_op,
    by_default_table,
    mutated,
    raising_elsewhere,
    takes,
    with_closure,
    with_misfit,
    with_scalar,
    with_unused,
)
from mismatches.dispatch import DoesNotApplyError
from mismatches.generate import BEFORE, INVALID, Original, chance_for, dropped, file_name
from mismatches.labels import Expected, Label
from mismatches.replaced import replaced_sites
from mismatches.single import calls_of
from mismatches.sites import Site, torch_matches, traced

Maker = Callable[[Capture, Original, random.Random], Case | None]
NONE = {"fusion_patterns": select_patterns(())}


def class_cases(capture: Capture, originals: list[Original], seed: int, per_type: int) -> Iterator[Case]:
    """At most `per_type` cases of each kind, spread over the variants."""
    chance = chance_for(capture, seed, "classes")
    for maker in MAKERS:
        order, made = list(originals), 0
        chance.shuffle(order)
        for original in order:
            case = maker(capture, original, chance) if made < per_type else None
            if case is not None:
                made += 1
                yield case


def unchanged_cases(capture: Capture, originals: list[Original]) -> Iterator[Case]:
    """Every variant as it is: nothing may be said of its sites."""
    for original in originals:
        yield _case(capture, original, "unchanged", (), f"Originals[{original.index}]")


def burned_scalar(capture: Capture, original: Original, chance: random.Random) -> Case | None:
    """An eps that is written down, and not as it stands in the graph."""
    scalars = original.pattern.scalars()
    if not scalars:
        return None
    name, stand_in = chance.choice(sorted(scalars.items()))
    value = chance.choice([1e-6, 1e-5, 1e-8, 2e-6, 1e-12])
    at = next(
        (k for k, (_, args, _) in enumerate(calls_of(original.pattern)) if stand_in in _plain(args)), None
    )
    changed = with_scalar(original.pattern, name, value)
    gone = dropped(original, torch_matches([changed], capture.in_window(BEFORE)))
    if at is None or not gone:
        return None
    nodes = frozenset(node.name for node in traced(mutated(changed)).at(at))
    expected = [Expected(s, (Label("scalar_literal", nodes, _near(s, at)),)) for s in gone]
    text = f'with_scalar(Originals[{original.index}], "{name}", {value!r})'
    return _case(capture, original, "burned_scalar", expected, text)


def closure(capture: Capture, original: Original, chance: random.Random) -> Case | None:
    """A weight or table that the pattern holds itself."""
    count = len(original.pattern.inputs())
    if count < 2:
        return None
    argument = chance.randrange(1, count)
    if not _refused_at_once(capture, with_closure(original.pattern, argument)):
        return None
    text = f"with_closure(Originals[{original.index}], {argument})"
    return _case(capture, original, "closure", _all(original, "parameter_source"), text)


def unused(capture: Capture, original: Original, _: random.Random) -> Case | None:
    """An argument of which nothing is made."""
    if not _refused_at_once(capture, with_unused(original.pattern)):
        return None
    text = f"with_unused(Originals[{original.index}])"
    return _case(capture, original, "unused", _all(original, "unused_argument"), text)


def raising(capture: Capture, original: Original, chance: random.Random) -> Case | None:
    """A pattern that its own code refuses to trace for the site's size or rank."""
    what = chance.choice(["0", "-1", "-1", "rank"])
    changed = raising_elsewhere(original.pattern, 0, what)
    try:
        gone = dropped(original, torch_matches([changed], capture.in_window(BEFORE)))
    except INVALID:
        return None
    expected = [Expected(site, (Label("retrace_error"),)) for site in gone]
    text = f'raising_elsewhere(Originals[{original.index}], 0, "{what}")'
    return _case(capture, original, "raising", expected, text) if expected else None


def misfit(capture: Capture, original: Original, chance: random.Random) -> Case | None:
    """A replacement of another form."""
    kind = chance.choice(["dtype", "rank", "length"])
    if replaced_sites(capture, with_misfit(original.pattern, kind)):
        return None
    fitting = replaced_sites(capture, original.pattern)  # not where a limit of the op forbids it anyway
    expected = [
        Expected(site, (Label("extra_check", graph_nodes=frozenset(site.found.nodes)),))
        for site in original.sites
        if site.found.anchor in fitting
    ]
    if not expected:
        return None
    text = f'with_misfit(Originals[{original.index}], "{kind}")'
    return _case(capture, original, "misfit", expected, text)


def duplicate(capture: Capture, original: Original, chance: random.Random) -> Case | None:
    """The right pattern behind an equal one whose replacement does not fit: it is never registered."""
    kind = chance.choice(["dtype", "rank", "length"])
    if replaced_sites(capture, with_misfit(original.pattern, kind), original.pattern):
        return None
    texts = f'with_misfit(Originals[{original.index}], "{kind}")', f"Originals[{original.index}]"
    return _case(capture, original, "duplicate", _all(original, "duplicate"), *texts)


def consumed(capture: Capture, original: Original, chance: random.Random) -> Case | None:
    """A pattern of another file, tried before, takes one of the nodes."""
    places = list(
        range(original.ops - 1)
    )  # where the last op alone is replaced, the next pattern matches the new one
    chance.shuffle(places)
    for at in places:
        try:
            taker = takes(original.pattern, at)
            taken = replaced_sites(capture, taker)
        except (DoesNotApplyError, *INVALID):
            continue
        gone = [site for site in original.sites if site.of_op[at] in taken]
        if not gone:
            continue
        expected = [Expected(site, (_consumed_label(original, site, taken),)) for site in gone]
        case = _case(capture, original, "consumed", expected, f"Originals[{original.index}]")
        first = f"taker_{file_name(case.name)}"
        files = dict(case.files) | {
            first: file_text(original.group, f"takes(Originals[{original.index}], {at})")
        }
        return _with(case, files=files, registered=(next(iter(case.files)), first), config=NONE)
    return None


def _consumed_label(original: Original, site: Site, taken: Sequence[str]) -> Label:
    """Any of the site's nodes that the earlier pattern took: it may take several of one site."""
    places = [at for at, name in site.of_op.items() if name in taken]
    nodes = frozenset(node.name for at in places for node in original.trace.at(at))
    return Label("consumed_earlier", nodes, frozenset(site.of_op[at] for at in places))


def composite(capture: Capture, original: Original, _: random.Random) -> Case | None:
    """The whole chain written as torch's one op for it, where the graph has its parts."""
    whole = WHOLE.get(original.fusion)
    if whole is None or original.ops < 3:
        return None
    changed = as_one_op(original.pattern, whole)
    try:
        trace = traced(mutated(changed))
        gone = dropped(original, torch_matches([changed], capture.in_window(BEFORE)))
    except INVALID:
        return None
    made = frozenset(trace.positions)
    expected = [Expected(s, (Label("decomposition", made, frozenset(s.found.nodes)),)) for s in gone]
    text = f'as_one_op(Originals[{original.index}], "{whole}")'
    return _case(capture, original, "composite", expected, text) if expected else None


def default_table(capture: Capture, original: Original, _: random.Random) -> Case | None:
    """The pattern traced with Inductor's table, the model without."""
    changed = by_default_table(original.pattern)
    try:
        trace = traced(changed)
        gone = dropped(original, torch_matches([changed], capture.in_window(BEFORE)))
    except INVALID:
        return None
    funcs = {event.position: event.func for event in original.events}
    places = [n for n in funcs if [e.func for e in changed.events if e.position == n] != [funcs[n]]]
    names = frozenset(node.name for at in places for node in trace.at(at))
    expected = [
        Expected(s, (Label("decomposition", names, frozenset(s.of_op[at] for at in places)),)) for s in gone
    ]
    text = f"by_default_table(Originals[{original.index}])"
    return _case(capture, original, "default_table", expected, text) if expected else None


# Fusion -> the op of torch that is the whole chain.
WHOLE = {"rms_norm": "_fused_rms_norm", "gelu": "gelu"}


def wrong_window(capture: Capture, original: Original, _: random.Random) -> Case | None:
    """A pattern that hits before freezing, tried after it."""
    after = capture.in_window("after-freezing")
    gone = dropped(original, torch_matches([original.pattern], after)) if after else []
    if not gone:
        return None
    expected = [Expected(site, (Label("wrong_window"),)) for site in gone]
    case = _case(capture, original, "wrong_window", expected, f"Originals[{original.index}]")
    return _with(case, registered=tuple(case.files), config=NONE | {"window": "after-freezing"})


def flag_off(capture: Capture, original: Original, _: random.Random) -> Case | None:
    """A fusion of the kit whose flag is off."""
    from fusionkit.fusions import pattern_names

    if original.fusion not in pattern_names():
        return None
    case = _case(capture, original, "flag_off", _all(original, "flag_off"))
    others = select_patterns(tuple(name for name in pattern_names() if name != original.fusion))
    return _with(case, pattern=original.fusion, registered=(), config={"fusion_patterns": others})


def not_registered(capture: Capture, original: Original, _: random.Random) -> Case | None:
    """A pattern file that the config does not name."""
    expected = _all(original, "not_registered")
    case = _case(capture, original, "not_registered", expected, f"Originals[{original.index}]")
    return _with(case, registered=(), config=NONE)


MAKERS: tuple[Maker, ...] = (
    composite,
    default_table,
    burned_scalar,
    closure,
    unused,
    raising,
    misfit,
    duplicate,
    consumed,
    wrong_window,
    flag_off,
    not_registered,
)


def _case(
    capture: Capture, original: Original, operator: str, expected: Sequence[Expected], *texts: str
) -> Case:
    told = f"{capture.subject}-{original.name}-{operator}"
    files = {file_name(told): file_text(original.group, *texts)} if texts else {}
    return Case(
        told, capture.subject, original.name, operator, capture, tuple(expected), original.sites, files
    )


def _with(case: Case, **changes: object) -> Case:
    from dataclasses import replace

    return replace(case, **changes)  # type: ignore[arg-type]


def _all(original: Original, kind: str) -> list[Expected]:
    return [Expected(site, (Label(kind),)) for site in original.sites]


def _near(site: Site, at: int) -> frozenset[str]:
    return frozenset({site.of_op[at]})


def _plain(args: tuple[object, ...]) -> list[object]:
    return [value for value in args if isinstance(value, int | float)]


def _refused_at_once(capture: Capture, pattern: type) -> bool:
    """Whether registering the class raises, so that nothing can hit."""
    try:
        torch_matches([pattern], capture.in_window(BEFORE))
    except MisuseError:
        return True
    return False
