"""Causes that only trial runs of the matcher show: switches, windows, other patterns, decomposition tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from fusionkit.capture.aot import decomposition_table
from fusionkit.config import DECOMPOSITIONS, CompilationConfig
from fusionkit.fusions import registrations
from fusionkit.match.explanation.causes import Cause, plain_cause
from fusionkit.match.explanation.entry_variants import EntryVariant
from fusionkit.match.explanation.explain import SiteExplanation
from fusionkit.match.explanation.variants import Variant
from fusionkit.match.matching import Matching, match_groups
from fusionkit.passes.site_match import SiteMatch
from fusionkit.passes.tracing import make_tracer


def switch_cause(pattern: str, path: Path | None, config: CompilationConfig) -> Cause | None:
    """Why `config` does not enable a pattern at all; None if it does."""
    if path is not None:
        known = {Path(name).resolve() for name in config.pattern_files}
        if path.resolve() in known:
            return None
        named = ", ".join(config.pattern_files) or "none"
        return plain_cause("not_registered", f"{path.name} among pattern_files", named)
    flag = registrations()[pattern].flag
    if getattr(config.fusion_patterns, flag):
        return None
    return plain_cause("flag_off", f"{flag}=True", f"{flag}=False")


def switched_on(pattern: str, path: Path | None, config: CompilationConfig) -> CompilationConfig:
    """The config with the pattern enabled: its flag on, or its file appended."""
    if path is not None:
        return dataclasses.replace(config, pattern_files=(*config.pattern_files, str(path)))
    flags = dataclasses.replace(config.fusion_patterns, **{registrations()[pattern].flag: True})
    return dataclasses.replace(config, fusion_patterns=flags)


class RunCauses:
    """Runs torch's matcher under other conditions, once each, and adds the causes found to explanations."""

    def __init__(self, matching: Matching, pattern: str, variants: Sequence[Variant]) -> None:
        self._matching = matching
        self._pattern = pattern
        self._variants = variants
        self._elsewhere: dict[str, tuple[SiteMatch, ...]] | None = None
        self._equals: dict[str, str] | None = None
        self._retraced: dict[tuple[str, Variant], Variant] = {}

    def add(self, item: SiteExplanation) -> SiteExplanation:
        """The explanation with the causes of trial runs before those of the alignment."""
        item = self._of_twin(item)
        if item.causes and item.causes[0].type == "consumed_earlier":
            causes = tuple(self._by_equal(cause, item) for cause in item.causes)
            return dataclasses.replace(item, causes=causes)
        window = self._window_cause(item)
        if window is not None:
            rest = tuple(cause for cause in item.causes if cause.type != "unexplained")
            return dataclasses.replace(item, causes=(window, *rest))
        if any(cause.type == "decomposition" for cause in item.causes):
            return dataclasses.replace(item, causes=self._with_table(item))
        return item

    def _of_twin(self, item: SiteExplanation) -> SiteExplanation:
        """The explanation with the cause `duplicate` first if the variant equals another one of its group."""
        own = [variant for variant in self._variants if variant.name == item.pattern]
        twins = [v for v in self._variants if own and v.signature == own[0].signature]
        if len(twins) < 2 or not item.causes or item.causes[0].type != "extra_check":
            return item
        actual = f"{twins[-1].name} is equal to {twins[0].name}, which stands before it and does not fit"
        cause = plain_cause("duplicate", "a pattern of its own", actual, item.anchor)
        return dataclasses.replace(item, causes=(cause, *item.causes))

    def _by_equal(self, cause: Cause, item: SiteExplanation) -> Cause:
        """`consumed_earlier` as `duplicate` if the earlier pattern is equal to this one."""
        taker = cause.actual.removeprefix("taken by ")
        if self._equals is None:
            trace, device = self._matching.tracer(), self._matching.device
            self._equals = {
                other.signature: f"{name} ({other.name})"
                for name, group in self._matching.groups.items()
                if name != self._pattern
                for other in (Variant(pattern, trace, device) for pattern in group)
            }
        own = next((variant for variant in self._variants if variant.name == item.pattern), None)
        twin = None if own is None else self._equals.get(own.signature)
        if twin is None or not twin.startswith(f"{taker} ("):
            return cause
        return plain_cause("duplicate", "a pattern of its own", f"equal to {twin}", cause.graph_node)

    def _window_cause(self, item: SiteExplanation) -> Cause | None:
        """The cause `wrong_window` if the pattern matches this site in another window of the same capture."""
        if self._elsewhere is None:
            capture, table = self._matching.capture, self._matching.pattern_table
            group = {self._pattern: self._matching.groups[self._pattern]}
            windows = dict.fromkeys(graph.window for graph in capture.graphs)
            self._elsewhere = {
                window: match_groups(capture, group, window, pattern_table=table).matches
                for window in windows
                if window != self._matching.window
            }
        for window, matches in self._elsewhere.items():
            taken = (match for match in matches if match.status != "refused")
            here = (match for match in taken if not item.source or match.source == item.source)
            if any(item.module in (match.module, *match.modules) for match in here):
                expected = f"window {window}, where the pattern takes this site"
                return plain_cause("wrong_window", expected, f"window {self._matching.window}", item.anchor)
        return None

    def _with_table(self, item: SiteExplanation) -> tuple[Cause, ...]:
        """The causes, with another fix for `decomposition` if the pattern hits when traced with another table."""
        if item.place is None or isinstance(item.place.variant, EntryVariant):
            return item.causes
        root = item.place.alignment.roots[0][1]
        used = self._matching.traced_with
        for name in DECOMPOSITIONS:
            if name != used and self._traced_with(name, item.place.variant).ask(root).stage == "hit":
                fix = (
                    f"the pattern was traced with table '{used}', and hits when traced with '{name}':"
                    " trace it with that table"
                )
                fixed = {c: dataclasses.replace(c, fix=fix) for c in item.causes if c.type == "decomposition"}
                return tuple(fixed.get(cause, cause) for cause in item.causes)
        return item.causes

    def _traced_with(self, table: str, variant: Variant) -> Variant:
        """The variant traced with another table, once for all sites."""
        key = (table, variant)
        if key not in self._retraced:
            trace = make_tracer(decomposition_table(table), sources=True)
            self._retraced[key] = Variant(variant.pattern, trace, self._matching.device)
        return self._retraced[key]


def idle_variants(variants: Sequence[Variant]) -> dict[str, Cause]:
    """Variants that can never match: name -> cause (duplicate, unused_argument, parameter_source).

    A duplicate with an equal replacement is left out: it loses nothing.
    """
    idle: dict[str, Cause] = {}
    first: dict[str, Variant] = {}
    for index, variant in enumerate(variants):
        key = variant.name if variant.name not in idle else f"{variant.name} ({index})"
        if variant.unmatchable is not None:
            actual = str(variant.unmatchable)
            idle[key] = plain_cause(variant.unmatchable.kind, "a pattern that can be held", actual)
        elif variant.signature not in first:
            first[variant.signature] = variant
        elif not variant.replaces_like(first[variant.signature]):
            twin = first[variant.signature].name
            idle[key] = plain_cause("duplicate", "a pattern of its own", f"equal to {twin}")
    return idle
