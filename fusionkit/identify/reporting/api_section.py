"""What the API lookup says about an op: schema, what it returns, constraints, products, and corrections."""

from __future__ import annotations

from fusionkit.identify.reporting.fences import fenced, one_line, span
from fusionkit.identify.reporting.words import Lang, say
from fusionkit.npu.op_docs.entry import ApiEntry
from fusionkit.npu.op_docs.sections import HEADINGS

_SHOWN = ("returns", "constraints", "products")
_LONGEST = 400  # characters of a section


def api_section(entry: ApiEntry | str | None, lang: Lang) -> list[str]:
    """The lines on one op; a text is the error of a lookup, None stands for no API at all."""
    if entry is None:
        return [say(lang, "api_plain")]
    if isinstance(entry, str):
        return [say(lang, "api_unknown", why=one_line(entry))]
    lines = [_origin(entry, lang), "", fenced("\n".join(_schemas(entry))), ""]
    for kind in _SHOWN:
        text = one_line(entry.section(kind))
        if text:
            shown = text if len(text) <= _LONGEST else text[:_LONGEST] + " ..."
            lines.append(f"- {HEADINGS[kind][lang]}: {shown}")
    rules = [] if entry.kit is None or entry.section("constraints") else list(entry.kit.rules)
    for rule in rules[:3]:
        lines.append(f"- {HEADINGS['constraints'][lang]}: {span(rule.argument)} {one_line(rule.rule)}")
    lines += [
        f"- {say(lang, 'api_note')}: {one_line(note.text(lang))} ({note.source})" for note in entry.notes
    ]
    return lines


def _origin(entry: ApiEntry, lang: Lang) -> str:
    if not entry.package:
        return say(lang, "api_wheel", online=entry.online)
    where = entry.where or ", ".join(place for item in entry.schemas[:1] for place in item.where[:1])
    return say(lang, "api_read", version=entry.version, where=span(where or entry.call))


def _schemas(entry: ApiEntry) -> list[str]:
    if entry.schemas:
        return [schema.text for schema in entry.schemas]
    if entry.signature:
        return [entry.signature]
    return list(entry.kit.schemas) if entry.kit is not None else [entry.call]
