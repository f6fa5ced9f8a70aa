"""The cells of an executed notebook as its page shows them: the verdict first, parameters short, no active content."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fusionkit.templates import render

_WIDGET = "application/vnd.jupyter.widget"
_WIDGET_NOTE = (
    '<p class="note">interactive in JupyterLab; here the same rows follow as a table or picture</p>'
)
_PAPERMILL_ERROR = "papermill-error-cell-tag"
_ACTIVE = frozenset(
    {"application/javascript", "text/javascript", "application/ecmascript", "text/vnd.mermaid"}
)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_LONGEST_ERROR = 600
_TEMPLATE = "evidence/templates/cells.html"

Cell = dict[str, Any]


def page_cells(cells: Sequence[Mapping[str, Any]]) -> list[Cell]:
    """Copies of the cells without active parts; the verdict is below the first markdown cell.

    The cells tagged `parameters` and `injected-parameters` become one with a list of the values, unless they have
    more than literals. The cells that papermill adds to point at an error are left out.
    """
    cells = [cell for cell in cells if _PAPERMILL_ERROR not in cell["metadata"].get("tags", ())]
    shown = _with_parameters([_inert(cell, number) for number, cell in enumerate(cells, start=1)])
    verdict = _verdict_html(cells)
    if verdict:
        index = next((i for i, cell in enumerate(shown, start=1) if cell["cell_type"] == "markdown"), 0)
        shown.insert(index, _html_cell("verdict", verdict))
    return shown


def _verdict_html(cells: Sequence[Mapping[str, Any]]) -> str:
    """The verdict of the notebook, or the cell at which it broke; "" without either."""
    code = [(n, cell) for n, cell in enumerate(cells, start=1) if cell["cell_type"] == "code"]
    outputs = [(number, output) for number, cell in code for output in cell["outputs"]]
    for number, output in outputs:
        if output["output_type"] == "error":
            error = " ".join(_ANSI.sub("", f"{output['ename']}: {output['evalue']}").split())
            short = error if len(error) <= _LONGEST_ERROR else f"{error[:_LONGEST_ERROR]} ..."
            return render(_TEMPLATE, "broken", f"in cell {number}: {short}")
    for _, output in outputs:
        outcome = _outcome(output)
        if outcome is not None:
            return render(_TEMPLATE, "outcome", outcome)
    started = [n for n, cell in code if cell.get("execution_count") is not None]
    if started and any(cell.get("execution_count") is None and cell["source"] for _, cell in code):
        text = f"not run to the end; the last cell that was started is cell {started[-1]}"
        return render(_TEMPLATE, "broken", text)
    return ""


def _outcome(output: Mapping[str, Any]) -> dict[str, Any] | None:
    """Verdict, reason and gates, which `views.outcome` puts into an output's metadata; None without them."""
    outcome = output.get("metadata", {}).get("text/html")
    outcome = outcome.get("fusionkit") if isinstance(outcome, dict) else None
    if not isinstance(outcome, dict):
        return None
    gates = [gate for gate in outcome.get("gates") or () if isinstance(gate, dict)]
    return {
        "verdict": str(outcome.get("verdict", "")),
        "reason": str(outcome.get("reason", "")),
        "gates": [{key: str(gate.get(key, "")) for key in ("name", "verdict", "reason")} for gate in gates],
    }


def _with_parameters(cells: list[Cell]) -> list[Cell]:
    """The two parameter cells as one with a list of the values; the code stays, folded."""
    tagged = {
        tag: cell
        for cell in cells
        if cell["cell_type"] == "code"
        for tag in cell["metadata"].get("tags", ())
        if tag in ("parameters", "injected-parameters")
    }
    defaults = _literals(tagged.get("parameters"))
    injected = _literals(tagged.get("injected-parameters")) if "injected-parameters" in tagged else {}
    if not defaults or injected is None:
        return cells
    last = tagged.get("injected-parameters", tagged["parameters"])
    merged = {**last, "outputs": [*last["outputs"], _html_output(_parameter_list(defaults, injected))]}
    return [
        merged if cell is last else cell for cell in cells if cell is last or cell is not tagged["parameters"]
    ]


def _literals(cell: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Name -> value of a cell of plain assignments of literals; None for any other cell."""
    literals: dict[str, Any] = {}
    try:
        for statement in ast.parse("" if cell is None else "".join(cell["source"])).body:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                continue
            target = statement.targets[0] if isinstance(statement, ast.Assign) else None
            if isinstance(statement, ast.AnnAssign):
                target = statement.target
            if not isinstance(target, ast.Name):
                return None
            literals[target.id] = ast.literal_eval(statement.value)  # type: ignore[attr-defined]
    except (SyntaxError, ValueError, TypeError):
        return None
    return literals


def _parameter_list(defaults: Mapping[str, Any], injected: Mapping[str, Any]) -> str:
    """The notebook's parameters: those that differ from the defaults are marked, empty ones only named."""
    values = {**defaults, **injected}
    texts = {name: _value(value) for name, value in values.items()}
    listed = [(name, text, values[name] != defaults.get(name)) for name, text in texts.items() if text]
    return render(_TEMPLATE, "parameters", listed, [name for name, text in texts.items() if not text])


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {inner}" for key, inner in value.items() if inner is not None)
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


def _html_cell(tag: str, markup: str) -> Cell:
    """A cell with the output `markup` and without code."""
    return {
        "cell_type": "code",
        "id": f"page-{tag}",
        "metadata": {"tags": [tag], "transient": {"remove_source": True}},
        "source": "",
        "execution_count": None,
        "outputs": [_html_output(markup)],
    }


def _html_output(markup: str) -> dict[str, Any]:
    return {"output_type": "display_data", "data": {"text/html": markup}, "metadata": {}}


def _inert(cell: Mapping[str, Any], number: int) -> Cell:
    if cell["cell_type"] != "code":
        return dict(cell)
    outputs = [_inert_output(output, number) for output in cell["outputs"]]
    return {**cell, "outputs": [output for output in outputs if output is not None]}


def _inert_output(output: Mapping[str, Any], cell_number: int) -> dict[str, Any] | None:
    """The output without its active parts; a note for a widget, no output if only a repr is left."""
    if "data" not in output:
        return dict(output)
    data = {mime: value for mime, value in output["data"].items() if mime not in _ACTIVE}
    if any(mime.startswith(_WIDGET) for mime in data):
        return _html_output(_WIDGET_NOTE)
    if len(data) < len(output["data"]) and set(data) <= {"text/plain"}:
        return None
    metadata = {key: value for key, value in output.get("metadata", {}).items() if key != "text/html"}
    for mime in data:
        if mime.startswith("image/"):
            metadata[mime] = {"alt": f"output of cell {cell_number}", **metadata.get(mime, {})}
    return {**output, "data": data, "metadata": metadata}
