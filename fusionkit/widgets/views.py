"""Static HTML for the notebooks: tables, source with line numbers, gates, kernel charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fusionkit.evidence.gates import Gate
from fusionkit.evidence.phase_records import PhaseRecord
from fusionkit.subjects.fragments import SourceFragment
from fusionkit.widgets.alignments import Explained, alignments_html
from fusionkit.widgets.charts import bar_chart_svg
from fusionkit.widgets.listings import fragment_listing, listing
from fusionkit.widgets.tables import NOTHING_TO_SHOW, column_names, html_table, nothing, show


def table(
    rows: Sequence[Mapping[str, object]],
    caption: str,
    *,
    empty: str = NOTHING_TO_SHOW,
    merge: Sequence[str] = (),
) -> Any:
    """A static table with a caption; `empty`: the reason for no rows; `merge` joins equal neighbours.

    Columns in which no row has a value are left out.
    """
    columns = [name for name in column_names(rows) if any(row.get(name) is not None for row in rows)]
    return show(html_table(rows, columns=columns, caption=caption, empty=empty, merge=merge))


def text(content: str, caption: str) -> Any:
    """Preformatted text with a caption: a diff, a file, a dump."""
    return show(listing(content, caption))


def texts(rows: Sequence[Mapping[str, str]], name: str, content: str, *, empty: str = NOTHING_TO_SHOW) -> Any:
    """One block of preformatted text per row: `name` is the column of captions, `content` that of the text."""
    return show("".join(listing(row[content], row[name]) for row in rows) or nothing(empty))


def source(fragments: Sequence[SourceFragment]) -> Any:
    """The source fragments with file, line numbers, the modules that run them, and the kinds of their parameters."""
    markup = "".join(fragment_listing(item) for item in fragments)
    return show(markup or nothing("no primitive was counted, so there is no source to show"))


def alignments(explained: Explained, *, empty: str) -> Any:
    """Every missed site, pattern and graph side by side with the causes; sites missed for the same causes together."""
    return show(alignments_html(explained, empty=empty))


def gates(gates: Sequence[Gate]) -> Any:
    """The exit gates of a phase."""
    rows = [{"gate": gate.name, "verdict": str(gate.verdict), "reason": gate.reason} for gate in gates]
    return table(rows, "Exit gates", empty="this phase has no gate")


def chart(
    rows: Sequence[Mapping[str, object]],
    label: str,
    values: Sequence[str],
    title: str,
    *,
    unit: str = "",
    empty: str = NOTHING_TO_SHOW,
) -> Any:
    """A bar chart of counts."""
    return show(bar_chart_svg(rows, label, values, title=title, unit=unit, empty=empty))


def outcome(record: PhaseRecord) -> Any:
    """The phase's verdict, its reason and its artifacts; the page of the notebook repeats the verdict at its top."""
    rows = [
        {
            "phase": record.phase,
            "verdict": str(record.verdict),
            "reason": record.reason,
            "artifacts": [artifact["path"] for artifact in record.artifacts] or None,
        }
    ]
    names = ("verdict", "reason", "gates")
    verdict = {name: value for name, value in record.to_dict().items() if name in names}
    return show(html_table(rows, caption="Evidence"), metadata={"fusionkit": verdict})
