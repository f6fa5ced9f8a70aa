"""Repair a pattern that misses sites: a new file with variants written from the graph, each proven to hit and equal."""

from __future__ import annotations

import dataclasses
import importlib.util
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fusionkit.capture.aot import decomposition_table
from fusionkit.capture.graphs import Capture, CapturedGraph
from fusionkit.config import CompilationConfig
from fusionkit.encoding import Result
from fusionkit.errors import MisuseError
from fusionkit.fusions import pattern_names, registrations
from fusionkit.match.explanation.explain import SiteExplanation
from fusionkit.match.explanation.missing import explain_capture
from fusionkit.match.matching import device_of, match_groups
from fusionkit.match.repairing.fits import Fit
from fusionkit.match.repairing.forms import Form, find_forms
from fusionkit.match.repairing.new_variants import NewVariant, write_entry_variant, write_file, write_variant
from fusionkit.match.repairing.old_variants import OldVariant, read_variant
from fusionkit.match.repairing.proof import Hit, Matched, groups_of_file
from fusionkit.match.repairing.writing import parts_to_write
from fusionkit.match.repairing.writing_sizes import UnexplainedError
from fusionkit.npu.target import current_target, use_target
from fusionkit.passes.registering import PatternClass
from fusionkit.passes.tracing import TraceFunction, make_tracer
from fusionkit.pattern_files.time_limit import TimeLimitError
from fusionkit.store import write_text
from fusionkit.verdict import Verdict

SCHEMA = "fusionkit.repair/1"


@dataclass(frozen=True, slots=True)
class RepairReport(Result, schema=SCHEMA):
    """`before` and `after`: hits with the old and the new file, by torch's matcher on the same graphs.

    `sites`: every hit of the new file. `missed`: explanations of the sites that it still misses. `edits`: variant ->
    its changes. `text`: the new file, None unless `offered`; `reason`: why it is offered or not.
    """

    pattern: str
    before: int
    after: int
    sites: tuple[Hit, ...]
    edits: dict[str, tuple[str, ...]]
    text: str | None
    offered: bool
    reason: str
    missed: tuple[SiteExplanation, ...] = ()

    def __bool__(self) -> bool:
        """Whether a repair is offered."""
        return self.offered

    def write(self, out: Path) -> Path:
        """Write the new file. Raises MisuseError when no repair is offered, or `out` exists."""
        if self.text is None:
            raise MisuseError(f"no repair of {self.pattern} is offered: {self.reason}")
        if out.exists():
            raise MisuseError(f"{out}: exists already and is never overwritten; give another --out")
        return write_text(out, self.text)


def repair(
    capture: Capture, pattern: str | Path, *, config: CompilationConfig | None = None, seed: int = 0
) -> RepairReport:
    """Write variants of `pattern` (a kit name or a pattern file's path) for the sites of `capture` that it misses.

    Nothing is compiled, and the old file stays unchanged. The graphs are those of `config`'s window. The new file
    is offered only if torch's matcher counts more hits with it and every new hit's replacement equals the site's
    own nodes on random inputs of the site's shapes, within the kit's tolerance of their float64 reference. Raises
    MisuseError for a pattern that does not exist, does not load or has no traceable variant, and for a capture
    without this window.
    """
    use_target(current_target() or "cpu")
    window = (config or CompilationConfig()).window
    graphs = capture.in_window(window)
    if not graphs:
        raise MisuseError(f"subject {capture.subject}: no graph was captured in window {window}")
    return _Repair(capture, graphs, pattern, seed).run()


class _Repair:
    def __init__(
        self, capture: Capture, graphs: Sequence[CapturedGraph], pattern: str | Path, seed: int
    ) -> None:
        path = Path(pattern) if Path(pattern).suffix == ".py" else _kit_file(str(pattern))
        self.capture = capture
        self.graphs = graphs
        self.pattern = str(pattern)
        self.file_name = path.name
        self.old_text = path.read_text("utf-8")
        self.groups = groups_of_file(path)
        self.seed = seed
        self.device = device_of(self.graphs)
        self.trace: TraceFunction = make_tracer(decomposition_table(capture.decompositions))

    def run(self) -> RepairReport:
        before = self.matched(self.groups)
        variants, untraceable = self.old_variants(before)
        if untraceable and not variants and not before.count:
            raise MisuseError(untraceable[0])
        taken = {node for hit in before.nodes() for node in hit}
        forms = find_forms(variants, [graph.module.graph for graph in self.graphs], taken, self.trace)
        written = self.write(forms)
        if not written:
            return self.refused(before, self.why_nothing_written(before, forms, untraceable))
        return self.judge(before, written)

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

    def judge(self, before: Matched, written: list[NewVariant]) -> RepairReport:
        """Load the written variants, match, prove each new hit; drop variants without a hit or with a wrong one."""
        wrong, refused = "", ""
        kept = {
            group: [i for i, pattern in enumerate(classes) if before.hits_of(pattern)]
            for group, classes in self.groups.items()
        }
        for _ in range(3):
            text = write_file(self.old_text, kept, written, self.capture.subject)
            after = self.match(text)
            entries = {
                region.outputs[0]: (region, item.old.replacement(Fit(region, item.fit.scalars).values))
                for item in written
                if item.fit is not None
                for region in item.regions
            }
            hits = after.prove(self.seed, {variant.name for variant in written}, entries)
            bad = {hit.variant: hit.reason for hit in hits if hit.verdict not in (None, Verdict.PASS)}
            idle = {variant.name for variant in written} - {hit.variant for hit in hits}
            if not bad and not idle:
                break
            wrong = next(iter(bad.values()), wrong)
            refused = next((after.refused[name] for name in idle if name in after.refused), refused)
            written = [variant for variant in written if variant.name not in {*bad, *idle}]
            if not written:
                return self.refused(before, _why_dropped(wrong, refused))
        if bad or len(hits) <= before.count:
            return self.refused(before, f"hits would go from {before.count} to {len(hits)}")
        edits = {variant.name: variant.edits for variant in written}
        reason = f"{before.count} hits before, {len(hits)} after, every new one equal within tolerance"
        missed = self.still_missed(text)
        return RepairReport(
            self.pattern, before.count, len(hits), tuple(hits), edits, text, True, reason, missed
        )

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


def _why_dropped(wrong: str, refused: str) -> str:
    """Why all written variants were dropped."""
    if wrong:
        return f"the written variants break numerics: {wrong}"
    if refused:
        return f"extra_check: the written variants match, but the replacement does not fit: {refused}"
    return "the written variants hit nothing; `fusionkit explain` tells what keeps the matcher away"
