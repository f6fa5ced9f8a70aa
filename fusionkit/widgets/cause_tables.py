"""Why a site was missed: one card per cause, with both sides of the difference, both source lines, fix and edit."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence

from fusionkit.match.explanation.causes import Cause
from fusionkit.widgets.listings import diff_block
from fusionkit.widgets.tables import breakable

_TABLE = (
    "border-collapse:collapse;table-layout:fixed;width:100%;font-size:13px;line-height:1.4;margin:0.5em 0 1em"
)
_CAPTION = "caption-side:top;text-align:left;font-weight:bold;padding:4px 0"
_CELL = "border:1px solid #8c959f;padding:4px 8px;text-align:left;vertical-align:top;white-space:normal"
_HEAD = f"{_CELL};width:8.5em;background:#8c959f33;font-weight:bold"
_TEXT = f"{_CELL};overflow-wrap:anywhere"

EditMarkup = Callable[[str], str]


def cause_cards(causes: Sequence[Cause], edit: EditMarkup = diff_block) -> str:
    """One table per cause, numbered as in the rows above; `edit` renders the lines to take out and to put in."""
    return "".join(_card(number, cause, edit) for number, cause in enumerate(causes, start=1))


def _card(number: int, cause: Cause, edit: EditMarkup) -> str:
    lines = [
        ("pattern has", _side(cause.expected, cause.pattern_node, cause.pattern_source)),
        ("graph has", _side(cause.actual, cause.graph_node, cause.graph_source)),
        ("what to do", breakable(cause.fix)),
    ]
    if cause.edit:
        lines.append(("edit", edit(cause.edit)))
    body = "".join(
        f'<tr><th scope="row" style="{_HEAD}">{name}</th><td style="{_TEXT}">{cell}</td></tr>\n'
        for name, cell in lines
    )
    caption = f'<caption style="{_CAPTION}">{number} {html.escape(cause.type)}</caption>'
    return f'<table style="{_TABLE}">{caption}<tbody>{body}</tbody></table>'


def _side(value: str, node: str, source: str) -> str:
    told = f'<code style="font-weight:bold;font-size:13px">{breakable(value or "nothing")}</code>'
    at = f" at <code>{breakable(node)}</code>" if node else ""
    return told + at + (f" ({breakable(source)})" if source else "")
