"""record.md: the phases as text, each with the four evidence lines whose keys scripts search for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fusionkit.store import to_json

_NONE = "none in this phase"


def render_record(phases: Sequence[Mapping[str, Any]]) -> str:
    """The text of record.md, from the phases as they are on disk."""
    lines = ["# Evidence", ""]
    for phase in phases:
        lines += [*_heading(phase), *_gates(phase["gates"]), *_evidence_lines(phase)]
    return "\n".join(lines)


def _heading(phase: Mapping[str, Any]) -> list[str]:
    about = ", ".join(f"{name} {phase[name]}" for name in ("subject", "target", "window", "dtype"))
    title = f"## Phase {phase['phase']}: {phase['notebook']}: {phase['verdict']}"
    return [title, "", _line(phase["reason"]), "", about, ""]


def _gates(gates: Sequence[Mapping[str, str]]) -> list[str]:
    if not gates:
        return []
    rows = [f"| {_cell(g['name'])} | {g['verdict']} | {_cell(g['reason'])} |" for g in gates]
    return ["| gate | verdict | reason |", "| --- | --- | --- |", *rows, ""]


def _evidence_lines(phase: Mapping[str, Any]) -> list[str]:
    paths = [f"{phase['notebook']}.ipynb", *(artifact["path"] for artifact in phase["artifacts"])]
    return [
        f"- Phase {phase['phase']} 证据: {', '.join(paths)}",
        f"- 命中: {_claims(phase['hits'])}",
        f"- 数值核验: {_claims(phase['numeric'])}",
        f"- 收益判定: {_line(phase['benefit']) or _NONE}；开关状态: {_line(phase['switch']) or _NONE}",
        "",
    ]


def _claims(claims: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_claim(value)}" for name, value in claims.items()) or _NONE


def _claim(value: Any) -> str:
    """`12/12` for hits and expected sites; verdict and reason, or the value itself, otherwise."""
    if isinstance(value, Mapping) and "hits" in value and "expected_sites" in value:
        expected = "?" if value["expected_sites"] is None else value["expected_sites"]
        return f"{value['hits']}/{expected}"
    if isinstance(value, Mapping) and "verdict" in value:
        return " ".join(_line(str(value[key])) for key in ("verdict", "reason") if value.get(key))
    return _line(value if isinstance(value, str) else to_json(value, indent=None))


def _line(text: str) -> str:
    return " ".join(text.split())


def _cell(text: str) -> str:
    return _line(text).replace("|", "\\|")
