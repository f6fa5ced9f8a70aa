"""What the profile shows: sequences of kernels, what they cost, and which candidate they belong to."""

from __future__ import annotations

from fusionkit.identify.profiled.bounds import ASSUMPTIONS, Assumption
from fusionkit.identify.profiled.findings import KernelSequence
from fusionkit.identify.reporting.benefits import ceiling
from fusionkit.identify.reporting.fences import one_line, span, table
from fusionkit.identify.reporting.materials import Materials
from fusionkit.identify.reporting.words import Lang, say


def profile_section(materials: Materials, lang: Lang) -> str:
    """The sequences that a fused op does, then frequent ones that none is known for."""
    found = materials.profile
    if found is None:
        return say(lang, "not_given")
    lines = [say(lang, "adjacency"), ""]
    if found.note:
        lines += [one_line(found.note), ""]
    names = ("sequence", "times", "us", "share", "bound", "value", "joined")
    rows = [_row(item, materials, lang) for item in (*found.known, *found.frequent)]
    lines.append(table([say(lang, name) for name in names], rows) if rows else say(lang, "none"))
    fused = ", ".join(f"{span(op)} {count}" for op, count in sorted(found.fused.items()))
    lines += ["", f"{say(lang, 'fused_already')}: {fused or say(lang, 'none')}"]
    if found.source == "npu" and rows:
        lines += ["", f"{say(lang, 'assumed')}:", "", *(_assumed(row, lang) for row in ASSUMPTIONS)]
    return "\n".join(lines)


def _assumed(row: Assumption, lang: Lang) -> str:
    limit = f"{span(row.column)} {row.limit:g}{row.unit}".strip()
    meaning, ground = (row.meaning_zh, row.ground_zh) if lang == "zh" else (row.meaning, row.ground)
    return f"- {limit}: {meaning}（{ground}）" if lang == "zh" else f"- {limit}: {meaning} ({ground})"


def sequence_line(item: KernelSequence, lang: Lang) -> str:
    """One sequence in a line."""
    told = [f"{', '.join(item.kernels)}: {say(lang, 'times')} {item.count}"]
    if item.us is not None and item.share is not None:
        told.append(f"{item.us:.1f} us ({item.share:.1%})")
    if item.bound != "unknown":
        told.append(ceiling(lang, item.bound))
    if item.saved_us is not None:
        told.append(f"{say(lang, 'value')} {item.saved_us:.1f} us")
    return "; ".join(told)


def _row(item: KernelSequence, materials: Materials, lang: Lang) -> list[str]:
    us = "-" if item.us is None else f"{item.us:.1f}"
    share = "-" if item.share is None else f"{item.share:.1%}"
    saved = "-" if item.saved_us is None else f"{item.saved_us:.1f} us"
    bound = f"{say(lang, f'bound_{item.bound}')} ({item.ground})"
    return [", ".join(item.kernels), str(item.count), us, share, bound, saved, _joined(item, materials, lang)]


def _joined(item: KernelSequence, materials: Materials, lang: Lang) -> str:
    if not item.op:
        return say(lang, "no_op")
    places = [held for held in materials.scan.candidates if held.op == item.op]
    if not places:
        return f"{span(item.op)}: {say(lang, 'no_join')}"
    named = ", ".join(span(held.symbol) for held in places[:3])
    rest = f" (+{len(places) - 3})" if len(places) > 3 else ""
    return f"{span(item.op)}: {named}{rest}"
