"""A table with one drop-down per column to filter by, for exploring sites in JupyterLab."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fusionkit.errors import MisuseError
from fusionkit.widgets.tables import column_names, html_table, plain_text

ALL = "all"


def filter_rows(
    rows: Sequence[Mapping[str, object]], choices: Mapping[str, str | None]
) -> list[Mapping[str, object]]:
    """Return the rows whose value, as shown, equals the choice in every column; None takes all."""
    wanted = {column: choice for column, choice in choices.items() if choice is not None}
    return [row for row in rows if all(plain_text(row.get(c)) == choice for c, choice in wanted.items())]


def site_explorer(
    rows: Sequence[Mapping[str, object]], by: Sequence[str] = ("pattern", "status")
) -> Any | None:
    """Build a table of `rows`, one per site, with a drop-down for each column in `by`; show a static table beside it.

    Returns an `ipywidgets.VBox`, or None if ipywidgets is not installed: the static table beside it remains. Raises
    MisuseError if a column in `by` is in no row.
    """
    unknown = [column for column in by if rows and column not in column_names(rows)]
    if unknown:
        raise MisuseError(
            f"site_explorer: no row has the column {unknown[0]!r}; there are {', '.join(column_names(rows))}"
        )
    try:
        import ipywidgets
    except ImportError:
        return None
    drop_downs = {column: _drop_down(ipywidgets, rows, column) for column in by}
    table = ipywidgets.HTML()

    def update(_change: object = None) -> None:
        choices = {column: box.value[0] for column, box in drop_downs.items()}
        kept = filter_rows(rows, choices)
        table.value = html_table(kept, columns=column_names(rows), caption=f"{len(kept)} of {len(rows)} rows")

    for box in drop_downs.values():
        box.observe(update, names="value")
    update()
    return ipywidgets.VBox([ipywidgets.HBox(list(drop_downs.values())), table])


def _drop_down(ipywidgets: Any, rows: Sequence[Mapping[str, object]], column: str) -> Any:
    """Build a drop-down of the values of `column`; its value is a tuple, so that ALL is no text."""
    values = sorted({plain_text(row.get(column)) for row in rows})
    options = [(ALL, (None,)), *((text, (text,)) for text in values)]
    return ipywidgets.Dropdown(options=options, value=(None,), description=column)
