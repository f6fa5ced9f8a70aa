"""One candidate, or several of the same code, with everything that a decision on it needs."""

from __future__ import annotations

from fusionkit.identify.candidates import Candidate
from fusionkit.identify.dispatch import DISPATCHES
from fusionkit.identify.head_sizes import LARGEST, HeadSizes
from fusionkit.identify.reporting.alike import Group
from fusionkit.identify.reporting.api_section import api_section
from fusionkit.identify.reporting.benefits import benefit, ceiling
from fusionkit.identify.reporting.counted import counted_ceiling, counted_traffic, traffic_lines
from fusionkit.identify.reporting.fences import fenced, one_line, span
from fusionkit.identify.reporting.materials import Materials
from fusionkit.identify.reporting.phrases import in_words
from fusionkit.identify.reporting.profile_section import sequence_line
from fusionkit.identify.reporting.proof_section import proof_section
from fusionkit.identify.reporting.summary import reason_of
from fusionkit.identify.reporting.words import Lang, hazard, say

_MOST = 8  # places of the same code that are named


def candidate_section(number: int, group: Group, materials: Materials, lang: Lang, api_told: set[str]) -> str:
    """The section of a group. `api_told`: ops whose lookup stands in an earlier section; the op is added to it."""
    item = group.first
    title = f"### {number}. {span(item.op)}: {span(item.symbol)}"
    parts = [
        [title, "", *_facts(group, lang)],
        ["", *_headed("original", _original(item, materials, lang), lang)],
        ["", *_headed("replacement", _replacement(group, materials, lang), lang)],
        ["", *_headed("api", _api(item, materials, lang, api_told), lang)],
        ["", *_headed("reference", _references(item, lang), lang)],
        ["", *_headed("risks", _risks(item, lang), lang)],
        ["", *_headed("benefit", _benefit(item, materials, lang), lang)],
        ["", *_headed("proof", _proof(group, lang), lang)],
    ]
    return "\n".join(line for part in parts for line in part)


def _headed(key: str, lines: list[str], lang: Lang) -> list[str]:
    return [f"**{say(lang, key)}**", "", *lines]


def _facts(group: Group, lang: Lang) -> list[str]:
    item = group.first
    lines = [
        f"- {say(lang, 'verdict')}: **{say(lang, item.recommend)}**: {reason_of(item, lang)}",
        f"- {say(lang, 'priority')}: {say(lang, f'priority_{item.priority}')}",
        f"- {say(lang, 'where')}: {_place(item)}, {say(lang, 'lines')} {item.line}-{item.end_line}",
    ]
    if item.generated_from:
        lines.append(f"- {say(lang, 'modular', source=span(item.generated_from))}")
    if item.inherited_from:
        lines.append(f"- {say(lang, 'inherited', source=span(item.inherited_from))}")
    row = next((row for row in DISPATCHES if row.name == item.dispatch), None)
    if row is not None and row.reason != item.reason:
        lines.append(f"- {say(lang, 'dispatch')}: {row.reason_zh if lang == 'zh' else row.reason}")
    if group.others:
        named = ", ".join(f"{_place(other)} {span(other.symbol)}" for other in group.others[:_MOST])
        rest = len(group.others) - _MOST
        told = f"{named}; {say(lang, 'more', count=rest)}" if rest > 0 else named
        lines.append(f"- {say(lang, 'alike', count=len(group.others))}: {told}")
    return lines


def _place(item: Candidate) -> str:
    return span(f"{item.file}:{item.line}")


def _original(item: Candidate, materials: Materials, lang: Lang) -> list[str]:
    found = materials.excerpts.get(item.id)
    if found is None:
        why = materials.unread.get(item.id, "")
        return [say(lang, "unread", why=one_line(in_words(lang, why))) if why else say(lang, "changed")]
    where = say(lang, "excerpt", start=found.start, end=found.end, file=span(item.file))
    return [where, "", fenced(found.text, "python")]


def _replacement(group: Group, materials: Materials, lang: Lang) -> list[str]:
    item = group.first
    if item.recommend == "no":
        return [say(lang, "no_replacement", why=reason_of(item, lang))]
    rewrite = materials.rewrites.get(item.id)
    if rewrite is None:
        return [say(lang, "no_replacement", why=say(lang, "not_written"))]
    if rewrite.refused:
        return [say(lang, "no_replacement", why=one_line(in_words(lang, rewrite.refused)))]
    lines = [f"- {say(lang, 'condition')}: {span(rewrite.condition)}"] if rewrite.condition else []
    lines += [f"- {say(lang, 'notes')}: {one_line(in_words(lang, note))}" for note in rewrite.notes]
    return [*lines, *([""] if lines else []), fenced(rewrite.diff, "diff"), *_own("own_diffs", group, lang)]


def _proof(group: Group, lang: Lang) -> list[str]:
    lines = proof_section(group.first.proof, lang)
    return lines if group.first.proof is None else [*lines, *_own("own_proofs", group, lang)]


def _own(key: str, group: Group, lang: Lang) -> list[str]:
    """That what is shown is of the first place, and that the others have their own."""
    if not group.others:
        return []
    return ["", say(lang, key, place=_place(group.first), count=len(group.others))]


def _api(item: Candidate, materials: Materials, lang: Lang, told: set[str]) -> list[str]:
    if item.op in told:
        return [say(lang, "api_above", op=span(item.op))]
    told.add(item.op)
    return api_section(materials.api.get(item.op), lang)


def _references(item: Candidate, lang: Lang) -> list[str]:
    if not item.existing:
        return [say(lang, "none")]
    lines = []
    for use in item.existing:
        where = f"{span(f'{use.file}:{use.line}')}: {span(use.text)}"
        lines.append(f"- {where}" + (f", {say(lang, 'under', guard=span(use.guard))}" if use.guard else ""))
    return lines


def _risks(item: Candidate, lang: Lang) -> list[str]:
    lines = [f"- {span(name)}: {hazard(lang, name)}" for name in item.hazards]
    if item.op == "npu_fusion_attention" and item.recommend != "no":
        lines.append(f"- {_head_sizes(item, lang)}")
    return lines or [say(lang, "none")]


def _head_sizes(item: Candidate, lang: Lang) -> str:
    if not item.head_sizes:
        return say(lang, "head_asked", largest=LARGEST)
    query, value = item.head_sizes
    fits = "" if HeadSizes(query, value).fit else say(lang, "head_misfits")
    return say(lang, "head_told", query=query, value=value, largest=LARGEST, fits=fits)


def _benefit(item: Candidate, materials: Materials, lang: Lang) -> list[str]:
    if item.recommend == "no":
        return [say(lang, "none")]
    row = benefit(item.op)
    counted = counted_traffic(item.proof)
    bounds = (
        [ceiling(lang, row.bound)]
        if row.bound != "memory" or not counted
        else [counted_ceiling(counted[0], lang)]
    )
    lines = [
        f"- {row.before} -> {row.after}",
        *(f"- {told}" for told in (*bounds, *traffic_lines(counted, lang))),
    ]
    if materials.profile is not None:
        seen = materials.profile.of(item.op)
        told = [f"- {sequence_line(found, lang)}" for found in seen]
        lines += told or [f"- {say(lang, 'no_sequence')}"]
    return lines
