"""Why sites were missed: one card per cause, with both sides of the difference and all sites that share it."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from fusionkit.widgets.tables import breakable, nothing

Row = Mapping[str, str]

_SHARED = ("pattern", "variant", "type", "pattern node", "pattern source", "expected", "actual", "fix")
_TABLE = "border-collapse:collapse;font-size:13px;line-height:1.4;margin:0.5em 0 1.2em"
_CAPTION = "caption-side:top;text-align:left;font-weight:bold;padding:4px 0"
_CELL = "border:1px solid #8c959f;padding:4px 8px;text-align:left;vertical-align:top"
_HEAD = f"{_CELL};white-space:nowrap;background:#8c959f33"
_TEXT = f"{_CELL};overflow-wrap:anywhere;min-width:24em;max-width:60em"
_VALUE = "font-weight:bold;font-size:13px"


def cause_cards(rows: Sequence[Row], caption: str, empty: str) -> str:
    """One table per distinct cause.

    A row is one cause of one site: `pattern`, `variant`, `module`, `type`, `pattern node`, `pattern source`,
    `graph node`, `graph source`, `expected`, `actual`, `fix`. Rows that differ only in site and graph node
    share a card. With no rows, the caption and `empty`.
    """
    if not rows:
        return nothing(empty, caption)
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(key, "") for key in _SHARED), []).append(row)
    return "".join(_card(group) for group in groups.values())


def _card(group: Sequence[Row]) -> str:
    first = group[0]
    count = f"{len(group)} site{'s' if len(group) > 1 else ''}"
    title = f"{first['type']}: {count} of {first['pattern']} missed by {first['variant'] or 'any variant'}"
    sources = "; ".join(dict.fromkeys(row["graph source"] for row in group if row["graph source"]))
    nodes = ", ".join(dict.fromkeys(row["graph node"] for row in group if row["graph node"]))
    lines = [
        ("in the pattern", _side(first["expected"], first["pattern node"], first["pattern source"])),
        ("in the graph", _side(first["actual"], nodes, sources)),
        ("what to do", breakable(first["fix"])),
        (count, "<br>".join(breakable(_site(row)) for row in group)),
    ]
    body = "".join(
        f'<tr><th scope="row" style="{_HEAD}">{name}</th><td style="{_TEXT}">{cell}</td></tr>\n'
        for name, cell in lines
    )
    caption = f'<caption style="{_CAPTION}">{html.escape(title)}</caption>'
    return f'<table style="{_TABLE}">{caption}<tbody>{body}</tbody></table>'


def _side(value: str, nodes: str, source: str) -> str:
    told = f'<code style="{_VALUE}">{html.escape(value or "nothing")}</code>'
    at = f" at {breakable(nodes)}" if nodes else ""
    return told + at + (f" ({breakable(source)})" if source else "")


def _site(row: Row) -> str:
    return f"{row['module']} ({row['graph node']})" if row["graph node"] else row["module"]
