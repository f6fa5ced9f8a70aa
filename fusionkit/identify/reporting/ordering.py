"""The suggested order: high gain and low risk first."""

from __future__ import annotations

from fusionkit.identify.reporting.alike import Group
from fusionkit.identify.reporting.fences import span
from fusionkit.identify.reporting.materials import Materials
from fusionkit.identify.reporting.summary import reason_of
from fusionkit.identify.reporting.words import Lang, say

_PROOFS = ("PASS", "", "INCONCLUSIVE", "FAIL")


def ordered(groups: tuple[Group, ...], materials: Materials) -> list[tuple[int, Group]]:
    """The recommended groups with their numbers in the report, as they are to be tried.

    By priority, then what a profile shows them to cost, then with a replacement at hand before those left to the hand,
    then proved before unproved, then few risks.
    """
    numbered = [(number, group) for number, group in enumerate(groups, 1) if group.first.recommend == "yes"]
    return sorted(numbered, key=lambda pair: (*_rank(pair[1], materials), pair[0]))


def order_section(materials: Materials, lang: Lang) -> str:
    """Recommended groups in order, then those that wait for something."""
    lines = [say(lang, "order_intro"), ""]
    first = ordered(materials.groups, materials)
    lines += [
        f"{place}. {_line(number, group, materials, lang)}" for place, (number, group) in enumerate(first, 1)
    ]
    if not first:
        lines.append(say(lang, "none"))
    waiting = [(n, group) for n, group in enumerate(materials.groups, 1) if group.first.recommend == "defer"]
    if waiting:
        lines += ["", f"{say(lang, 'then')}:", ""]
        lines += [f"- {_named(n, group, lang)}: {reason_of(group.first, lang)}" for n, group in waiting]
    return "\n".join(lines)


def _rank(group: Group, materials: Materials) -> tuple[int, float, bool, int, int]:
    item = group.first
    proof = "" if item.proof is None else str(item.proof.get("verdict", ""))
    shown = () if materials.profile is None else materials.profile.of(item.op)
    cost = sum(found.us or 0.0 for found in shown)
    return item.priority, -cost, _is_by_hand(group, materials), _PROOFS.index(proof), len(item.hazards)


def _is_by_hand(group: Group, materials: Materials) -> bool:
    """Whether a replacement was asked for and none could be written."""
    rewrite = materials.rewrites.get(group.first.id)
    return rewrite is not None and bool(rewrite.refused)


def _line(number: int, group: Group, materials: Materials, lang: Lang) -> str:
    item = group.first
    proof = say(lang, "none") if item.proof is None else str(item.proof.get("verdict"))
    told = say(lang, "order_line", risks=len(item.hazards), proof=proof)
    by_hand = f"; {say(lang, 'by_hand')}" if _is_by_hand(group, materials) else ""
    return f"{_named(number, group, lang)}: {told}{by_hand}"


def _named(number: int, group: Group, lang: Lang) -> str:
    item = group.first
    many = f" ({say(lang, 'places', count=len(group.members))})" if group.others else ""
    return f"{span(item.op)} {span(item.symbol)}{many} [{number}]"
