"""The head of the report: what was scanned, and one line for every common op."""

from __future__ import annotations

from collections import Counter

from fusionkit.identify.candidates import Candidate
from fusionkit.identify.ops import OPS, FusedOp
from fusionkit.identify.reporting.fences import one_line, span, table
from fusionkit.identify.reporting.materials import Materials
from fusionkit.identify.reporting.words import Lang, say, written_as
from fusionkit.identify.rulings import Recommend

_BEST: tuple[Recommend, ...] = ("yes", "defer", "no")


def head(materials: Materials, lang: Lang) -> str:
    """Title and what was scanned."""
    scan = materials.scan
    profile = (
        say(lang, "not_given") if materials.profile is None else span(one_line(materials.profile.source_name))
    )
    facts = (
        (say(lang, "scanned"), ", ".join(map(span, scan.paths)) or say(lang, "none")),
        (say(lang, "files"), str(scan.files)),
        (say(lang, "found"), str(len(scan.candidates))),
        (say(lang, "failed"), str(len(scan.failed))),
        (say(lang, "profile"), profile),
    )
    lines = [f"- {name}: {value}" for name, value in facts]
    return "\n".join([f"# {say(lang, 'title')}", "", *lines, "", say(lang, "stage")])


def summary(materials: Materials, lang: Lang) -> str:
    """One row for every op of ops.OPS, found or not."""
    rows = summary_rows(materials, lang)
    return table(list(rows[0]), [[span(first), *rest] for first, *rest in (row.values() for row in rows)])


def summary_rows(materials: Materials, lang: Lang) -> list[dict[str, str]]:
    """The rows of the summary, by the titles of its columns."""
    titles = [say(lang, name) for name in ("op", "code", "verdict", "count", "reason")]
    return [dict(zip(titles, _row(op, materials, lang), strict=True)) for op in OPS]


def reason_of(candidate: Candidate, lang: Lang) -> str:
    """The reason of its judgement."""
    return candidate.reason_zh if lang == "zh" else candidate.reason


def _row(op: FusedOp, materials: Materials, lang: Lang) -> list[str]:
    found = [item for item in materials.scan.candidates if item.op == op.name]
    name, code = op.name, written_as(lang, op.name)
    if not found:
        return [name, code, say(lang, "none"), say(lang, "none"), say(lang, "not_found")]
    counts = Counter(item.recommend for item in found)
    best = next(word for word in _BEST if counts[word])
    reasons = Counter(reason_of(item, lang) for item in found if item.recommend == best)
    told = " / ".join(str(counts[word]) for word in _BEST)
    return [name, code, say(lang, best), told, reasons.most_common(1)[0][0]]
