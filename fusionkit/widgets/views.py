"""What the notebooks show: tables, source with line numbers, gates, kernel charts. All static HTML."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from fusionkit.evidence.gates import Gate
from fusionkit.evidence.records import PhaseRecord
from fusionkit.subjects.fragments import SourceFragment
from fusionkit.widgets.charts import bar_chart_svg
from fusionkit.widgets.tables import html_table, show

_PRE = (
    "margin:4px 0;padding:8px 10px;border:1px solid #8c959f;overflow-x:auto;line-height:1.35;font-size:12px"
)


def table(rows: Sequence[Mapping[str, object]], caption: str) -> Any:
    """A static table with a caption."""
    return show(html_table(rows, caption=caption))


def text(content: str, caption: str) -> Any:
    """Preformatted text with a caption: a diff, a file, a dump."""
    return show(_pre(content, caption))


def texts(rows: Sequence[Mapping[str, str]], name: str, content: str) -> Any:
    """One block of preformatted text per row: `name` is the column of captions, `content` that of the text."""
    return show("".join(_pre(row[content], row[name]) for row in rows) or "<p>no file was written</p>")


def source(fragments: Sequence[SourceFragment]) -> Any:
    """The source fragments with file, line numbers, the modules that run them, and where their values come from."""
    return show("".join(_fragment(item) for item in fragments) or "<p>no source to show</p>")


def gates(found: Sequence[Gate]) -> Any:
    """The exit gates of a phase."""
    return table([gate.to_dict() for gate in found], "Exit gates")


def chart(rows: Sequence[Mapping[str, object]], label: str, values: Sequence[str], title: str) -> Any:
    """A bar chart of counts."""
    return show(bar_chart_svg(rows, label, values, title=title))


def outcome(record: PhaseRecord) -> Any:
    """The phase's verdict, its reason and its artifacts."""
    rows = [
        {
            "phase": record.phase,
            "verdict": str(record.verdict),
            "reason": record.reason,
            "artifacts": [artifact["path"] for artifact in record.artifacts],
        }
    ]
    return table(rows, "Evidence written")


def _pre(content: str, caption: str) -> str:
    return f'<p><strong>{html.escape(caption)}</strong></p><pre style="{_PRE}">{html.escape(content)}</pre>'


def _fragment(item: SourceFragment) -> str:
    numbered = "\n".join(
        f"{number:>5}  {line}" for number, line in enumerate(item.text.splitlines(), start=item.first_line)
    )
    where = f"{item.primitive}: {item.qualname} ({item.file}:{item.call_line or item.first_line})"
    values = "; ".join(
        f"{value.name}: {value.kind.replace('_', ' ')}"
        + (f" {value.dtype}{list(value.shape)}" if value.shape else "")
        for value in item.parameters
    )
    modules = ", ".join(item.modules[:6]) + (
        f" and {len(item.modules) - 6} more" if len(item.modules) > 6 else ""
    )
    told = f"<p>values: {html.escape(values or 'none')}<br>run by: {html.escape(modules)}</p>"
    return _pre(numbered or "source not found", where) + told
