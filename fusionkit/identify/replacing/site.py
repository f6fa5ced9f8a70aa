"""The replacement of one site: the changes that its rule's places ask for, written into a copy of the file's text."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fusionkit.identify.replacing.branch import Edit, branch, grouped_changes
from fusionkit.identify.replacing.builders import BUILDERS, CALLS, REFUSED_HAZARDS
from fusionkit.identify.replacing.header import head_lines
from fusionkit.identify.replacing.patch import patch_of
from fusionkit.identify.replacing.place import Place
from fusionkit.identify.replacing.replacement import Change, Refused, Replacement, Unfit
from fusionkit.identify.replacing.statements import Statements
from fusionkit.identify.replacing.switches import Switch, switch_for
from fusionkit.identify.replacing.unchanged import check_original
from fusionkit.identify.rules.table import RULES
from fusionkit.identify.rules.unit import Unit
from fusionkit.identify.scan_file import Site, symbol_node, units_of
from fusionkit.identify.source.files import SourceFile

SwitchOf = Callable[[Unit, str], Switch]


def replace_site(file: SourceFile, site: Site, root: Path | None = None) -> Replacement | Refused:
    """Write the fused op beside the code of a site; nothing is written to disk.

    `root`: what the paths of the diff are relative to (the file's folder, if not given). Refused where a hazard of the
    site cannot be met, or where the code is not written in a way that can be replaced safely.
    """
    try:
        told = _gathered(file, site, switch_for)
        return _written(file, site, told, root)
    except Unfit as error:
        return Refused(str(error))


def outlined(file: SourceFile, site: Site) -> tuple[str, ...] | Refused:
    """The notes of the replacement that can be written for a site, without writing the whole text and its diff."""
    try:
        return tuple(_gathered(file, site, lambda _, __: Switch("torch_npu is not None")).notes)
    except Unfit as error:
        return Refused(str(error))


@dataclass(frozen=True, slots=True)
class _Gathered:
    """The edits of a site, what to note of them, and the switch that their branches ask."""

    edits: list[Edit]
    notes: dict[str, None]
    switch: Switch


def _gathered(file: SourceFile, site: Site, switch_of: SwitchOf) -> _Gathered:
    """Everything that is to be changed. Raises Unfit where nothing is."""
    for hazard, reason in REFUSED_HAZARDS.get(site.op, {}).items():
        if hazard in site.hazards:
            raise Unfit(reason)
    if site.op not in BUILDERS:
        raise Unfit(f"no replacement is written for {site.op}")
    edits: list[Edit] = []
    notes: dict[str, None] = {}
    reasons: dict[str, None] = {}
    switch: Switch | None = None
    units = [unit for unit in units_of(file) if _belongs(unit, site)]
    for unit in sorted(units, key=lambda item: item.symbol == site.symbol):
        if edits and unit.symbol == site.symbol and "." in site.symbol:
            break  # the calls of the helper are replaced, so that it is not called in the fused branch
        found, told, refused = _edits_of(unit, site, switch_of)
        if found:
            switch = switch or switch_of(unit, site.op)
        edits += found
        notes.update(told)
        reasons.update(refused)
    if switch is None:
        raise Unfit(next(iter(reasons), "the code of the site was not found again"))
    if switch.existing:
        notes.setdefault(f"asks the existing switch {switch.existing}")
    for reason in reasons:
        if "called by the class itself" in reason:
            continue
        notes[f"one place keeps its original code: {reason}"] = None
    return _Gathered(edits, notes, switch)


def _written(file: SourceFile, site: Site, told: _Gathered, root: Path | None) -> Replacement:
    """The edits in a copy of the file's text."""
    edits = told.edits
    after, head = head_lines(file, told.switch)
    name = _shown_path(file.path, root)
    patch = patch_of(file, name, edits, after, head)
    check_original(file, patch.new_text, edits, after, head)
    condition = " | ".join(dict.fromkeys(edit.condition for edit in edits))
    return Replacement(site.op, name, site.symbol, condition, tuple(told.notes), patch)


def _belongs(unit: Unit, site: Site) -> bool:
    """Whether a function is the site's, or may call what the site's class builds: as its method, or handed as attn."""
    if unit.symbol == site.symbol:
        return symbol_node(unit).lineno == site.line  # and not its namesake in another branch
    if site.op not in CALLS or not unit.runs or unit.cls is None:
        return False
    handed = any(item.arg == "attn" for item in unit.node.args.args)
    return handed or (unit.cls.name == site.symbol.partition(".")[0] and unit.cls.holds(site.line))


def _edits_of(
    unit: Unit, site: Site, switch_of: SwitchOf
) -> tuple[list[Edit], dict[str, None], dict[str, None]]:
    """(edits, notes, reasons of places left alone) of one function of the site."""
    if unit.mentions((site.op,)):
        return [], {}, {f"the code calls {site.op} in a branch of its own already": None}
    statements = Statements(unit.node, unit.file.text)
    changes: list[Change] = []
    refused: dict[str, None] = {}
    if site.op in CALLS and unit.runs and unit.cls is not None:
        changes += CALLS[site.op](unit, statements, site.symbol)
    for place in _places(unit, site, statements) if unit.symbol == site.symbol else ():
        if place.unit.builds and site.op in CALLS:
            refused.setdefault("the module that the class builds is not called by the class itself")
            continue
        try:
            changes += BUILDERS[site.op](place)
        except Unfit as error:
            refused[str(error)] = None
    text = switch_of(unit, site.op).text if changes else ""
    edits, notes = [], dict[str, None]()
    for group in grouped_changes(statements, _distinct(changes)):
        try:
            edits.append(branch(statements, group, text))
            notes.update((note, None) for change in group for note in change.notes)
        except Unfit as error:
            refused[str(error)] = None
    return edits, notes, refused


def _places(unit: Unit, site: Site, statements: Statements) -> Iterator[Place]:
    seen = set()
    for rule in RULES:
        for found in rule(unit):
            node = found.value.node
            if found.op == site.op and node is not None and _position(node) not in seen:
                seen.add(_position(node))
                yield Place(unit, statements, found.value, found.hazards)


def _position(node: ast.AST) -> tuple[int, ...]:
    names = ("lineno", "col_offset", "end_lineno", "end_col_offset")
    return tuple(getattr(node, name, 0) or 0 for name in names)


def _distinct(changes: list[Change]) -> list[Change]:
    """Changes without those that write the same nodes again."""
    found: list[Change] = []
    seen: set[int] = set()
    for change in changes:
        if not seen & {id(node) for node in change.texts}:
            seen |= {id(node) for node in change.texts}
            found.append(change)
    return found


def _shown_path(path: Path, root: Path | None) -> str:
    base = path.parent if root is None else root
    return path.relative_to(base).as_posix() if path.is_relative_to(base) else path.name
