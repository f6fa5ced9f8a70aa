"""Repair a pattern that misses sites: a new file with variants written from the graph, each proven to hit and equal."""

from __future__ import annotations

import dataclasses
import importlib.util
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch.fx

from fusionkit.capture.aot import decomposition_table
from fusionkit.capture.graphs import Capture, CapturedGraph
from fusionkit.config import CompilationConfig
from fusionkit.errors import MisuseError
from fusionkit.fusions import pattern_names, registrations
from fusionkit.match.explanation.explain import SiteExplanation
from fusionkit.match.explanation.missing import explain_capture
from fusionkit.match.matching import device_of, match_groups
from fusionkit.match.repairing.copies import copies_left, kit_groups
from fusionkit.match.repairing.fits import Fit, fit_key
from fusionkit.match.repairing.forms import Form, find_forms
from fusionkit.match.repairing.new_variants import NewVariant, write_entry_variant, write_file, write_variant
from fusionkit.match.repairing.old_variants import OldVariant, read_variant
from fusionkit.match.repairing.proof import Candidate, Hit, Matched, groups_of_file
from fusionkit.match.repairing.renaming import rename
from fusionkit.match.repairing.report import RepairReport
from fusionkit.match.repairing.writing import parts_to_write
from fusionkit.match.repairing.writing_sizes import UnexplainedError
from fusionkit.npu.target import current_target, use_target
from fusionkit.passes.registering import PatternClass
from fusionkit.passes.tracing import TraceFunction, make_tracer
from fusionkit.passes.trial import fusion_of
from fusionkit.pattern_files.naming import FusionNames
from fusionkit.pattern_files.time_limit import TimeLimitError
from fusionkit.store import write_text
from fusionkit.verdict import Verdict

_MOST_ROUNDS = 3  # number of times that forms are searched again, after a proof refused some


def repair(
    capture: Capture,
    pattern: str | Path,
    *,
    config: CompilationConfig | None = None,
    seed: int = 0,
    names: FusionNames | None = None,
) -> RepairReport:
    """Write variants of `pattern` (a kit name or a pattern file's path) for the sites of `capture` that it misses.

    Nothing is compiled, and the old file stays unchanged. The graphs are those of `config`'s window. The new file
    is offered only if torch's matcher counts more hits with it and every new hit's replacement equals the site's
    own nodes on random inputs of the site's shapes and in a counterexample search, within the kit's tolerance of
    their float64 reference. `names`: of the new file's fusion; None keeps the old ones. Raises MisuseError for a
    pattern that does not exist, does not load or has no traceable variant, and for a capture without this window.
    """
    use_target(current_target() or "cpu")
    window = (config or CompilationConfig()).window
    graphs = capture.in_window(window)
    if not graphs:
        raise MisuseError(f"subject {capture.subject}: no graph was captured in window {window}")
    return _Repair(capture, graphs, pattern, seed, names).run()


class _Repair:
    def __init__(
        self,
        capture: Capture,
        graphs: Sequence[CapturedGraph],
        pattern: str | Path,
        seed: int,
        names: FusionNames | None,
    ) -> None:
        path = Path(pattern) if Path(pattern).suffix == ".py" else _kit_file(str(pattern))
        self.capture = capture
        self.graphs = graphs
        self.pattern = str(pattern)
        self.name = names.name if names is not None else None
        self.file_name = names.file if names is not None else path.name
        self.old_text = path.read_text("utf-8")
        self.groups = groups_of_file(path)
        if names is not None:
            self.old_text, renamed = rename(self.old_text, self.groups, names)
            self.groups = {renamed.get(name, name): group for name, group in self.groups.items()}
        self.seed = seed
        self.device = device_of(self.graphs)
        self.trace: TraceFunction = make_tracer(decomposition_table(capture.decompositions))

    def run(self) -> RepairReport:
        """Write, match and prove; where the proof refuses an exact form, once more with the next one."""
        before = self.matched(self.groups)
        variants, untraceable = self.old_variants(before)
        if untraceable and not variants and not before.count:
            raise MisuseError(untraceable[0])
        taken = {node for hit in before.nodes() for node in hit}
        graphs = [graph.module.graph for graph in self.graphs]
        refused: set[Any] = set()
        reports: list[RepairReport] = []
        for _ in range(_MOST_ROUNDS):
            forms = find_forms(variants, graphs, taken, self.trace, refused)
            written = self.write(forms)
            if not written:
                break
            report, wrong = self.judge(before, written)
            reports.append(report)
            if not wrong:
                break
            refused |= wrong
        if not reports:
            return self.refused(before, self.why_nothing_written(before, forms, untraceable))
        return max(reports, key=lambda report: report.after)

    def old_variants(self, before: Matched) -> tuple[list[OldVariant], list[str]]:
        """The variants that can be traced, and the errors of the others; endless code is not run again."""
        variants, failed = [], []
        for group, classes in self.groups.items():
            for index, pattern in enumerate(classes):
                if isinstance(before.unusable.get(pattern), TimeLimitError):
                    failed.append(str(before.unusable[pattern]))
                    continue
                try:
                    variants.append(read_variant(pattern, group, index, self.trace, self.device))
                except MisuseError as error:
                    failed.append(str(error))
        return variants, failed

    def write(self, forms: Sequence[Form]) -> list[NewVariant]:
        """One class for each form, several if a size varies, a graph entry if it has too many values for that."""
        written: list[NewVariant] = []
        for form in forms:
            if not form.regions:
                continue
            number = len(written) + 1
            try:
                parts = parts_to_write(form.regions, form.variant.tensors, form.fit.scalars)
            except UnexplainedError:
                written.append(write_entry_variant(form.fit, form.regions, form.variant, number, form.edits))
                continue
            written += [
                write_variant(form.fit, part, form.variant, index, form.edits, self.trace)
                for index, part in enumerate(parts, number)
            ]
        return written

    def judge(self, before: Matched, written: list[NewVariant]) -> tuple[RepairReport, set[Any]]:
        """Load the written variants, match, prove each new hit; drop variants without a hit or with a wrong one.

        With the keys of the exact fits that the proof refused.
        """
        wrong, refused = "", ""
        keys: set[Any] = set()
        kept = {
            group: [i for i, pattern in enumerate(classes) if before.hits_of(pattern)]
            for group, classes in self.groups.items()
        }
        for _ in range(3):
            text = write_file(self.old_text, kept, written, self.capture.subject, self.name)
            after = self.match(text)
            hits = after.prove(self.seed, {variant.name for variant in written}, _entry_candidates(written))
            bad = {hit.variant: hit.reason for hit in hits if hit.verdict not in (None, Verdict.PASS)}
            idle = {variant.name for variant in written} - {hit.variant for hit in hits}
            if not bad and not idle:
                break
            wrong = wrong or next(iter(bad.values()), "")
            refused = next((after.refused[name] for name in idle if name in after.refused), refused)
            failed = [variant for variant in written if variant.name in {*bad, *idle}]
            keys |= {fit_key(item.old, item.fit) for item in failed if item.fit.is_exact}
            written = [variant for variant in written if variant not in failed]
            if not written:
                return self.refused(before, _why_dropped(wrong, refused)), keys
        if bad or len(hits) <= before.count:
            return self.refused(before, f"hits would go from {before.count} to {len(hits)}"), keys
        return self.offered(before, written, text, after, hits), keys

    def offered(
        self, before: Matched, written: Sequence[NewVariant], text: str, after: Matched, hits: Sequence[Hit]
    ) -> RepairReport:
        """The report of a new file."""
        edits = {variant.name: variant.edits for variant in written}
        copies = copies_left(after.matching, self.known_groups()) if self.pattern.endswith(".py") else None
        reason = f"{before.count} hits before, {len(hits)} after, every new one equal within tolerance"
        if copies is not None and copies.more:
            reason = f"{reason}; {copies}"
        return RepairReport(
            self.pattern,
            before.count,
            len(hits),
            tuple(hits),
            edits,
            text,
            True,
            reason,
            self.still_missed(text),
            copies,
        )

    def known_groups(self) -> dict[str, Sequence[PatternClass]]:
        """The kit's patterns of the fusions that the file's replacements call."""
        classes = [pattern for group in self.groups.values() for pattern in group]
        fusions = dict.fromkeys(fusion_of(pattern, Path(self.file_name)) for pattern in classes)
        return {key: group for fusion in fusions for key, group in kit_groups(fusion).items()}

    def match(self, text: str) -> Matched:
        with tempfile.TemporaryDirectory() as folder:
            path = write_text(Path(folder) / self.file_name, text)
            return self.matched(groups_of_file(path, with_entries=True))

    def matched(self, groups: Mapping[str, Sequence[PatternClass]]) -> Matched:
        window = self.graphs[0].window
        return Matched(match_groups(self.capture, groups, window, tolerates=(MisuseError,)))

    def still_missed(self, text: str) -> tuple[SiteExplanation, ...]:
        """Explanations of the sites that the new file misses."""
        with tempfile.TemporaryDirectory() as folder:
            path = write_text(Path(folder) / self.file_name, text)
            try:
                reports = explain_capture(self.capture, path, window=self.graphs[0].window)
            except MisuseError:  # the proven hits count even if the misses cannot be explained
                return ()
        return tuple(_placed(site, folder) for report in reports for site in report.missed)

    def refused(self, before: Matched, reason: str) -> RepairReport:
        hits = tuple(before.prove(self.seed, set()))
        return RepairReport(self.pattern, before.count, before.count, hits, {}, None, False, reason)

    def why_nothing_written(self, before: Matched, forms: Sequence[Form], untraceable: Sequence[str]) -> str:
        leaking = [region for form in forms for region in form.leaking]
        if leaking:
            node = leaking[0].leaks[0]
            return (
                f"extra_user: {len(leaking)} sites have an inner node that is used elsewhere too ('{node.name}');"
                " end the pattern before it, or give the value back as an output"
            )
        if untraceable:
            return untraceable[0]
        more = f"{before.count} sites hit already, and no other place" if before.count else "no place"
        return f"{more} of this graph computes what the replacement computes; there is no variant to write"


def _kit_file(name: str) -> Path:
    if name not in pattern_names():
        raise MisuseError(
            f"'{name}' is no pattern of the kit and no .py file; known: {', '.join(pattern_names())}"
        )
    module = registrations()[name].module
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        spec = None
    if spec is None or spec.origin is None:
        raise MisuseError(f"row {name} of fusions: no module {module}; name the module of its pattern")
    return Path(spec.origin)


def _placed(site: SiteExplanation, folder: str) -> SiteExplanation:
    """The explanation without the temporary folder of the new file in its sources."""
    causes = [
        dataclasses.replace(cause, pattern_source=cause.pattern_source.replace(f"{folder}/", ""))
        for cause in site.causes
    ]
    return dataclasses.replace(site, causes=tuple(causes), place=None)


def _entry_candidates(written: Sequence[NewVariant]) -> dict[torch.fx.Node, Candidate]:
    """Last node of each site of a graph entry -> its region and the replacement there."""
    return {
        region.outputs[0]: (region, item.old.replacement(Fit(region, item.fit.scalars).values))
        for item in written
        if not item.cls
        for region in item.regions
    }


def _why_dropped(wrong: str, refused: str) -> str:
    """Why all written variants were dropped."""
    if wrong:
        return f"the written variants break numerics: {wrong}"
    if refused:
        return f"extra_check: the written variants match, but the replacement does not fit: {refused}"
    return "the written variants hit nothing; `fusionkit explain` tells what keeps the matcher away"
