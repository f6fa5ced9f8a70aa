"""Replacements written by hand: the original lines of an installed file under `else`, the fused ones before them."""

from __future__ import annotations

import importlib.util
import textwrap
from pathlib import Path

from fusionkit.identify.scan_file import Site, sites_of_text

GUARD = "\n\nfrom {package}.utils import is_torch_npu_available\n\n\nif is_torch_npu_available():\n    import torch_npu\n\n\n"


def installed(module: str) -> Path:
    spec = importlib.util.find_spec(module.partition(".")[0])
    assert spec is not None
    return Path(spec.submodule_search_locations[0]).joinpath(*module.split(".")[1:]).with_suffix(".py")


def site_of(path: Path, symbol: str, op: str) -> Site:
    found = [s for s in sites_of_text(path, path.read_text("utf-8")) if (s.symbol, s.op) == (symbol, op)]
    assert found, f"{path}: no {op} at {symbol}"
    return found[0]


def rewritten(
    path: Path, first: str, last: str, fused: str, after: str = "", package: str = "transformers"
) -> str:
    """The text with the lines from `first` to `last` (their stripped beginnings, behind `after`) under else."""
    lines = path.read_text("utf-8").splitlines()
    behind = next(i for i, line in enumerate(lines) if line.startswith(after)) if after else 0
    start = next(i for i in range(behind, len(lines)) if lines[i].strip().startswith(first))
    end = next(i for i in range(start, len(lines)) if lines[i].strip().startswith(last))
    indent = lines[start][: len(lines[start]) - len(lines[start].lstrip())]
    block = [f"{indent}if is_torch_npu_available():"]
    block += textwrap.indent(textwrap.dedent(fused).strip(), indent + "    ").splitlines()
    block += [f"{indent}else:", *(f"    {line}" if line else line for line in lines[start : end + 1])]
    top = next(i for i, line in enumerate(lines) if line.startswith(("class ", "def ", "@", "logger =")))
    guard = GUARD.format(package=package).splitlines()
    return "\n".join([*lines[:top], *guard, *lines[top:start], *block, *lines[end + 1 :]]) + "\n"
