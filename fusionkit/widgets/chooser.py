"""A list of candidates to choose from; the choice is read when the evidence is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_MOST_ROWS = 16


def candidate_chooser(choices: Mapping[str, tuple[str, ...]], chosen: Sequence[str] = ()) -> Any | None:
    """Build a list in which several candidates can be chosen; show a static table of them beside it.

    `choices`: label -> the ids of its candidates; `chosen`: ids chosen at the start. Returns an `ipywidgets.VBox`, or
    None if ipywidgets is not installed: `chosen` is then the choice.
    """
    try:
        import ipywidgets
    except ImportError:
        return None
    start = tuple(ids for ids in choices.values() if ids and set(ids) <= set(chosen))
    box = ipywidgets.SelectMultiple(
        options=list(choices.items()),
        value=start,
        rows=max(2, min(len(choices), _MOST_ROWS)),
        layout=ipywidgets.Layout(width="100%"),
        description="",
    )
    count_line = ipywidgets.HTML()

    def update(_change: object = None) -> None:
        count = sum(len(ids) for ids in box.value)
        count_line.value = f"{count} chosen (Ctrl or Shift for several); run the last cell to confirm them"

    box.observe(update, names="value")
    update()
    return ipywidgets.VBox([box, count_line])


def chosen_ids(chooser: Any | None, chosen: Sequence[str] = ()) -> tuple[str, ...]:
    """The ids chosen in the list, together with those of `chosen` that it does not offer."""
    if chooser is None:
        return tuple(dict.fromkeys(chosen))
    box = chooser.children[0]
    offered = {item for _, ids in box.options for item in ids}
    picked = [item for ids in box.value for item in ids]
    return tuple(dict.fromkeys([*picked, *(item for item in chosen if item not in offered)]))
