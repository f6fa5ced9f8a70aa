"""The identification report: Markdown, in Chinese or English, of what a scan found and what is known about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fusionkit.errors import MisuseError
from fusionkit.identify.candidates import Candidate, ScanReport
from fusionkit.identify.profiled.findings import ProfileFindings
from fusionkit.identify.replacements import Written, replacements
from fusionkit.identify.reporting.candidate_section import candidate_section
from fusionkit.identify.reporting.checklist import checklist, checklist_lines
from fusionkit.identify.reporting.fences import fenced, one_line, span
from fusionkit.identify.reporting.materials import Materials, Rewrite, changed_files, gather_materials
from fusionkit.identify.reporting.ordering import order_section
from fusionkit.identify.reporting.phrases import in_words
from fusionkit.identify.reporting.profile_section import profile_section
from fusionkit.identify.reporting.summary import head, summary
from fusionkit.identify.reporting.words import LANGS, Lang, say

IDS = "candidates"
"""What follows the fence of the list of candidates, by which a confirmation finds it: a judgement and an id a line."""


def report_text(
    scan: ScanReport,
    *,
    lang: str = "zh",
    wheel: Path | None = None,
    profile: ProfileFindings | None = None,
    written: Mapping[str, Written] | None = None,
) -> str:
    """The report of a scan, replacements included. Raises MisuseError for a language other than zh and en.

    `wheel`: the torch_npu that the API is looked up in, one that is at hand where none is given. `written`: the
    replacements of this scan, where they stand already.
    """
    chosen = language(lang)
    materials = materials_of(scan, wheel=wheel, profile=profile, written=written)
    return render(materials, lang=chosen, changed=changed_files(materials))


def materials_of(
    scan: ScanReport,
    *,
    wheel: Path | None = None,
    profile: ProfileFindings | None = None,
    written: Mapping[str, Written] | None = None,
) -> Materials:
    """All that the report of a scan is made of. `written`: its replacements, where they stand already."""
    told = replacements(scan) if written is None else written

    def rewrite(candidate: Candidate) -> Rewrite:
        found = told[candidate.id]
        return Rewrite(found.diff, found.condition, found.notes, found.refused)

    return gather_materials(scan, wheel=wheel, profile=profile, rewrite=rewrite)


def language(lang: str) -> Lang:
    """`lang` if the report can be written in it. Raises MisuseError."""
    for known in LANGS:
        if lang == known:
            return known
    raise MisuseError(f"language {lang!r}: reports are written in {' or '.join(LANGS)}")


def render(materials: Materials, *, lang: Lang, changed: Sequence[str] = ()) -> str:
    """The text of the report. `changed`: files that are not what they were when the materials were gathered."""
    scan = materials.scan
    told: set[str] = set()
    sections = [
        candidate_section(number, group, materials, lang, told)
        for number, group in enumerate(materials.groups, 1)
    ]
    failed = [f"- {span(item.file)}: {one_line(in_words(lang, item.reason))}" for item in scan.failed]
    parts = (
        head(materials, lang),
        _titled(lang, "summary", summary(materials, lang)),
        _titled(lang, "candidates", "\n\n".join(sections) or say(lang, "none")),
        _titled(lang, "profiled", profile_section(materials, lang)),
        _titled(lang, "order", order_section(materials, lang)),
        _titled(lang, "failed", "\n".join(failed) or say(lang, "none")),
        _titled(lang, "checklist", checklist_lines(checklist(materials, changed, lang))),
        _titled(lang, "ids", f"{say(lang, 'ids_intro')}\n\n{_ids(scan)}"),
    )
    return "\n\n".join(parts) + "\n"


def _titled(lang: Lang, key: str, body: str) -> str:
    return f"## {say(lang, key)}\n\n{body}"


def _ids(scan: ScanReport) -> str:
    return fenced("\n".join(f"{item.recommend} {one_line(item.id)}" for item in scan.candidates), IDS)
