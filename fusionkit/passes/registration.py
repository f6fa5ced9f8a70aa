"""The three registrations of a new pattern as text edits, for the kit's layout and for MindIE-SD's."""

from __future__ import annotations

import ast
import difflib
from dataclasses import dataclass
from pathlib import Path

from fusionkit.errors import MisuseError
from fusionkit.pattern_files.lint_syntax import assigned_names
from fusionkit.pattern_files.naming import FusionNames
from fusionkit.store import write_text


@dataclass(frozen=True, slots=True)
class Layout:
    """The files of a code base with exports, registry and flags, and the form of their lines."""

    name: str
    exports: str
    registry: str
    flags: str
    import_line: str
    registry_line: str


# Source of the second row: the public MindIE-SD repository (the misspelling "compiliation" is theirs).
LAYOUTS: dict[str, Layout] = {
    "fusionkit": Layout(
        name="fusionkit",
        exports="fusionkit/patterns/__init__.py",
        registry="fusionkit/passes/registry.py",
        flags="fusionkit/config.py",
        import_line="from fusionkit.patterns.{module} import {group}",
        registry_line='    "{flag}": ("{group}", "fusionkit.patterns"),',
    ),
    "mindiesd": Layout(
        name="mindiesd",
        exports="mindiesd/compilation/patterns/__init__.py",
        registry="mindiesd/compilation/passes/__init__.py",
        flags="mindiesd/compilation/compiliation_config.py",
        import_line="from .{module} import {group}",
        registry_line='    "{flag}": ("{group}", "..patterns"),',
    ),
}

_EMPTY = {
    "exports": "__all__ = [\n]\n",
    "registry": "pattern_registry = {\n}\n",
    "flags": "class FusionPatterns:\n    ...\n",
}


@dataclass(frozen=True, slots=True)
class Edit:
    """One file of a registration, before and after. `present`: whether the file was read from a checkout."""

    path: str
    before: str
    after: str
    present: bool

    @property
    def diff(self) -> str:
        """Unified diff; "" if the registration exists already."""
        lines = difflib.unified_diff(
            self.before.splitlines(keepends=True),
            self.after.splitlines(keepends=True),
            f"a/{self.path}",
            f"b/{self.path}",
            n=2,
        )
        return "".join(lines)


def registration_edits(layout: Layout, names: FusionNames, root: Path | None = None) -> list[Edit]:
    """The three edits, of the files below `root`, or of empty files without a checkout.

    Raises MisuseError when a file of the checkout is missing or lacks the list, table or class to add to.
    """
    edits = []
    for kind, change in (("exports", add_export), ("registry", add_entry), ("flags", add_flag)):
        path = getattr(layout, kind)
        before = _EMPTY[kind] if root is None else _read(root / path)
        edits.append(Edit(path, before, change(before, layout, names, path), root is not None))
    return edits


def apply_edits(edits: list[Edit], root: Path) -> list[Path]:
    """Write the edits into the checkout at `root`; returns the files that changed."""
    return [write_text(root / edit.path, edit.after) for edit in edits if edit.before != edit.after]


def layout_of(root: Path) -> Layout:
    """The layout of a checkout. Raises MisuseError when it has none of them."""
    for layout in LAYOUTS.values():
        if (root / layout.exports).is_file():
            return layout
    wanted = " or ".join(layout.exports for layout in LAYOUTS.values())
    raise MisuseError(f"{root}: no checkout of a known layout (no {wanted}); give its top folder")


def add_export(text: str, layout: Layout, names: FusionNames, path: str) -> str:
    """Import line and entry of `__all__`."""
    if names.group in text:
        return text
    listed = _inserted(text, _last_line(text, "__all__", path) - 1, f'    "{names.group}",')
    imports = [node for node in ast.parse(text).body if isinstance(node, ast.ImportFrom | ast.Import)]
    place = max((node.end_lineno or 0 for node in imports), default=0)
    return _inserted(listed, place, layout.import_line.format(module=names.module, group=names.group))


def add_entry(text: str, layout: Layout, names: FusionNames, path: str) -> str:
    """The registry's line: flag -> (group, module)."""
    if f'"{names.flag}"' in text:
        return text
    line = layout.registry_line.format(flag=names.flag, group=names.group)
    return _inserted(text, _last_line(text, "pattern_registry", path) - 1, line)


def add_flag(text: str, layout: Layout, names: FusionNames, path: str) -> str:
    """The flag, default on, at the end of the flags' class."""
    del layout  # the class has one name in both
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef) and node.name == "FusionPatterns":
            if any(isinstance(s, ast.AnnAssign) and ast.unparse(s.target) == names.flag for s in node.body):
                return text
            last = node.body[-1]
            return _inserted(text, last.end_lineno or last.lineno, f"    {names.flag}: bool = True")
    raise MisuseError(f"{path}: no class FusionPatterns to add {names.flag} to")


def _inserted(text: str, place: int, line: str) -> str:
    """The text with `line` behind its first `place` lines."""
    lines = text.splitlines()
    return "\n".join([*lines[:place], line, *lines[place:]]) + "\n"


def _last_line(text: str, name: str, path: str) -> int:
    """The last line (from 1) of the module-level assignment to `name`."""
    for node in ast.parse(text).body:
        if name in assigned_names(node):
            return node.end_lineno or node.lineno
    raise MisuseError(f"{path}: no {name} to add to")


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise MisuseError(
            f"{path}: cannot read ({error.strerror or error}); is this the right checkout?"
        ) from error
