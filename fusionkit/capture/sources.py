"""Where a graph node comes from: the module path and the source line that the compiler recorded."""

from __future__ import annotations

import re

import torch.fx

from fusionkit.subjects.source_paths import short_path

# The model is a local of the compiled frame, or an element of one (`L['args'][0]` behind a decorator).
_ROOT = re.compile(r"^[LG]\['[^']*'\](?:\[\d+\])?")
_MODULES = re.compile(r"\.__dict__\['_modules'\]|\._modules(?=[.\[])")
_KEY = re.compile(r"\[['\"]?([^'\"\]]+)['\"]?\]")
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')


def module_path(node: torch.fx.Node) -> str:
    """Dotted path of the module whose forward produced `node`, as in `named_modules()`; "" at the top."""
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return ""
    return clean_module_path(str(list(stack.values())[-1][0]))


def clean_module_path(raw: str) -> str:
    """Turn the compiler's spelling (`L['self']._modules['blocks'][0].norm`) into `blocks.0.norm`."""
    path = _KEY.sub(r".\1", _MODULES.sub("", _ROOT.sub("", raw)))
    return path.strip(".")


def source_line(node: torch.fx.Node) -> str:
    """`file:line` of the innermost frame outside torch itself, or "" where none was recorded."""
    place = source_place(node)
    return "" if place is None else f"{short_path(place[0])}:{place[1]}"


def source_place(node: torch.fx.Node) -> tuple[str, int] | None:
    """The path of the file and the line of the innermost frame outside torch itself, None where none was recorded."""
    frames = [(name, int(line)) for name, line, _ in _FRAME.findall(node.meta.get("stack_trace") or "")]
    outside = [frame for frame in frames if not short_path(frame[0]).startswith("torch/")]
    return next(reversed(outside or frames), None)


def source_text(node: torch.fx.Node) -> str:
    """The source statement of the innermost recorded frame, or ""."""
    lines = [line.strip() for line in (node.meta.get("stack_trace") or "").splitlines()]
    lines = [line for line in lines if line and not set(line) <= {"^", "~"}]
    return lines[-1] if lines else ""
