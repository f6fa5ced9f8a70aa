"""Phase records, one JSON file each, and the record of the run that is rendered from them.

`phases/NN.json` is the source; `record.jsonl` (one line per phase) and `record.md` are rendered from all of them
after every write. Times and durations are in the manifest only.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fusionkit.encoding import Result, decode
from fusionkit.errors import MisuseError
from fusionkit.evidence.gates import MODEL_NUMBERS, SITE_NUMBERS, Gate, phase_reason, phase_verdict
from fusionkit.store import read_json, to_json, write_json, write_text
from fusionkit.verdict import Verdict

SCHEMA = "fusionkit/phase/1"
RECORD_JSONL = "record.jsonl"
RECORD_MD = "record.md"
_NUMBERS = (SITE_NUMBERS, MODEL_NUMBERS)
_NONE = "none in this phase"

_TIME_KEY = re.compile(
    r"^(\w+_)?(us|ms|ns|secs?|seconds|minutes|hours|times?|timings?|timestamp|durations?|elapsed|date|datetime"
    r"|started|ended|wallclock)$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRecord(Result, schema=SCHEMA, also=("verdict", "reason")):
    """The result of one phase.

    `hits` and `numeric`: the claims of the phase, per pattern and per site. `artifacts`: the files that prove them,
    `{"path": <relative to the run folder>, "kind": <a key of verify.RECHECKS, or another word>}`. `benefit`:
    adoption or rollback with the reason. `switch`: the state of the flags.
    """

    phase: int
    notebook: str
    subject: str
    target: str
    window: str
    dtype: str
    gates: Sequence[Gate]
    hits: Mapping[str, Any] = field(default_factory=dict)
    numeric: Mapping[str, Any] = field(default_factory=dict)
    benefit: str = ""
    switch: str = ""
    artifacts: Sequence[Mapping[str, str]] = ()

    @property
    def verdict(self) -> Verdict:
        """The combined verdict of the gates."""
        return phase_verdict(self.gates)

    @property
    def reason(self) -> str:
        """The reasons of the gates that decide the verdict."""
        return phase_reason(self.gates)

    def __bool__(self) -> bool:
        return bool(self.verdict)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; a number that is not finite becomes the string "nan", "inf" or "-inf"."""
        claims = {"hits": _plain(self.hits, "hits"), "numeric": _plain(self.numeric, "numeric")}
        return Result.to_dict(self) | claims


@dataclass(frozen=True, slots=True)
class _Artifact:
    path: str
    kind: str


@dataclass(frozen=True, slots=True)
class _PhaseFile:
    """What the file of a phase holds, all of it."""

    phase: int
    notebook: str
    subject: str
    target: str
    window: str
    dtype: str
    gates: tuple[Gate, ...]
    hits: Mapping[str, Any]
    numeric: Mapping[str, Any]
    benefit: str
    switch: str
    artifacts: tuple[_Artifact, ...]
    verdict: Verdict
    reason: str


def write_phase(run_dir: Path | str, record: PhaseRecord) -> Path:
    """Write the phase's file into the run folder and render the record anew; returns the phase's file.

    An earlier record of the phase is replaced. Raises MisuseError for a time in the record, a value that JSON
    cannot represent, or an artifact that is not a file of the run folder; RunBrokenError if the folder cannot be
    written.
    """
    folder = Path(run_dir)
    if not 1 <= record.phase <= 99:
        raise MisuseError(f"phase {record.phase}: phases are numbered 1 to 99")
    _check_artifacts(folder, record)
    path = write_json(phase_path(folder, record.phase), _relative(record.to_dict(), folder))
    write_record(folder)
    return path


def compared_nothing(phase: Mapping[str, Any]) -> bool:
    """Whether a phase record has no gate, neither a hit nor a site, or no passing number of a target that computes."""
    claims = phase["hits"].values()
    numbers = {gate["name"]: gate["verdict"] for gate in phase["gates"] if gate["name"] in _NUMBERS}
    without_sites = bool(claims) and not any(claim["hits"] or claim["expected_sites"] for claim in claims)
    without_numbers = len(numbers) == len(_NUMBERS) and Verdict.PASS not in numbers.values()
    return not phase["gates"] or without_sites or without_numbers


def phase_path(run_dir: Path, phase: int) -> Path:
    """The path of a phase record."""
    return run_dir / "phases" / f"{phase:02d}.json"


def read_phases(run_dir: Path) -> list[dict[str, Any]]:
    """The phase records of the run folder, in order. Raises MisuseError for a file that is none."""
    phases = []
    for path in sorted((run_dir / "phases").glob("[0-9][0-9].json")):
        value = read_json(path)
        if not isinstance(value, dict) or value.get("schema") != SCHEMA:
            raise MisuseError(f"{path}: not a phase of schema {SCHEMA}; run the notebook again")
        decode(_PhaseFile, value, f"{path}: not a phase of schema {SCHEMA}; run the notebook again")
        phases.append(value)
    return phases


def record_jsonl(phases: Sequence[Mapping[str, Any]]) -> str:
    """The text of record.jsonl: one line per phase, canonical JSON."""
    return "".join(to_json(phase, indent=None) + "\n" for phase in phases)


def write_record(run_dir: Path) -> None:
    """Render record.jsonl and record.md from the phases of the run folder."""
    phases = read_phases(run_dir)
    write_text(run_dir / RECORD_JSONL, record_jsonl(phases))
    write_text(run_dir / RECORD_MD, render_record(phases))


def _check_artifacts(run_dir: Path, record: PhaseRecord) -> None:
    root = run_dir.resolve()
    for artifact in record.artifacts:
        if set(artifact) != {"path", "kind"}:
            raise MisuseError(f"phase {record.phase}: an artifact is {{path, kind}}, not {dict(artifact)!r}")
        path = Path(artifact["path"])
        if path.is_absolute() or not (root / path).resolve().is_relative_to(root):
            raise MisuseError(
                f"phase {record.phase}: artifact {path} must be relative, inside the run folder"
            )
        if not (root / path).is_file():
            raise MisuseError(
                f"phase {record.phase}: artifact {path} is not there; write it before the record"
            )


def _plain(value: Any, where: str) -> Any:
    """`value` in JSON types. Raises MisuseError for keys that name a time."""
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str) or _TIME_KEY.match(key):
                raise MisuseError(f"{where}.{key}: no times and only text keys in a record; see the manifest")
        return {key: _plain(inner, f"{where}.{key}") for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, where) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(float(value))
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return str(value)
    raise MisuseError(f"{where}: {type(value).__name__} is not a JSON type; use to_dict() or .item()")


def _relative(value: Any, run_dir: Path) -> Any:
    """`value` with absolute paths of the run folder made relative, so that the record is the same in any folder."""
    if isinstance(value, dict):
        return {key: _relative(inner, run_dir) for key, inner in value.items()}
    if isinstance(value, list):
        return [_relative(inner, run_dir) for inner in value]
    if isinstance(value, str):
        for folder in (run_dir.resolve(), run_dir.absolute()):
            value = value.replace(f"{folder}/", "")
    return value


def render_record(phases: Sequence[Mapping[str, Any]]) -> str:
    """The text of record.md; each phase has the four evidence lines whose keys scripts search for."""
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
