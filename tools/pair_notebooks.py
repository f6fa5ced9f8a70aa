"""Generate each notebook's .ipynb from its reviewed percent source (.py), or check that the pairs agree.

    python tools/pair_notebooks.py            write notebooks/*.ipynb
    python tools/pair_notebooks.py --check    exit 1 naming each file that differs or breaks a rule

The same source gives the same bytes: cell ids count the cells, and no version or time is written.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from notebook_rules import violations

DEFAULT_FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"file_extension": ".py", "mimetype": "text/x-python", "name": "python"},
}
MAKERS = {
    "code": nbformat.v4.new_code_cell,
    "markdown": nbformat.v4.new_markdown_cell,
    "raw": nbformat.v4.new_raw_cell,
}
REMEDY = "run `make notebooks`"


def generate(source: Path) -> str:
    """Return the text of the .ipynb that belongs to the percent file `source`."""
    return nbformat.writes(_notebook(source)) + "\n"


def _notebook(source: Path) -> Any:
    notebook = jupytext.reads(source.read_text("utf-8"), fmt="py:percent")
    cells = []
    for number, cell in enumerate(notebook.cells, start=1):
        make = MAKERS[cell.cell_type]
        tags = {"tags": list(cell.metadata["tags"])} if cell.metadata.get("tags") else {}
        cells.append(make(cell.source, id=f"cell-{number:02d}", metadata=tags))
    fresh = nbformat.v4.new_notebook(cells=cells, metadata=METADATA)
    fresh.nbformat, fresh.nbformat_minor = 4, 5
    nbformat.validate(fresh)
    return fresh


def problems(folder: Path) -> list[str]:
    """Return one line per pair of `folder` that has drifted and per rule that a notebook breaks."""
    sources = sorted(folder.glob("*.py"))
    problems = [] if sources else [f"{folder}: no notebook source (*.py) here, so nothing was checked"]
    for source in sources:
        problems += [f"{source.name}: {line}" for line in [*_drift(source), *violations(_notebook(source))]]
    for pair in sorted(folder.glob("*.ipynb")):
        if not pair.with_suffix(".py").exists():
            problems.append(f"{pair.name}: has no source {pair.stem}.py")
    return problems


def _drift(source: Path) -> list[str]:
    pair = source.with_suffix(".ipynb")
    if not pair.exists():
        return [f"has no pair {pair.name}; {REMEDY}"]
    text = pair.read_text("utf-8")
    if text == generate(source):
        return []
    return [f"{pair.name} {_difference(text, source)}; {REMEDY}"]


def _difference(text: str, source: Path) -> str:
    """Tell in a few words how the notebook `text` differs from what `source` gives."""
    try:
        committed = nbformat.reads(text, as_version=4)
    except (json.JSONDecodeError, nbformat.reader.NotJSONError, nbformat.ValidationError):
        return "is not a notebook"
    if any(cell.get("outputs") or cell.get("execution_count") for cell in committed.cells):
        return "holds output"
    expected = _notebook(source)
    if len(committed.cells) != len(expected.cells):
        return f"has {len(committed.cells)} cells, the source {len(expected.cells)}"
    pairs = zip(committed.cells, expected.cells, strict=True)
    for number, (have, want) in enumerate(pairs, start=1):
        if (have.cell_type, have.source, have.metadata) != (want.cell_type, want.source, want.metadata):
            return f"differs from the source in cell {number}"
    return "differs from the source in its metadata or cell ids"


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit code."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 on any difference")
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT_FOLDER)
    options = parser.parse_args(arguments)
    if options.check:
        lines = problems(options.folder)
        sys.stderr.writelines(f"{line}\n" for line in lines)
        return 1 if lines else 0
    for source in sorted(options.folder.glob("*.py")):
        pair, text = source.with_suffix(".ipynb"), generate(source)
        if not pair.exists() or pair.read_text("utf-8") != text:
            pair.write_text(text, "utf-8")
            sys.stdout.write(f"wrote {pair.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
