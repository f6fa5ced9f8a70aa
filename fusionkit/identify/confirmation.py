"""The user's confirmation of a report: without one that matches it, nothing is replaced."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fusionkit.errors import MisuseError
from fusionkit.identify.report import IDS
from fusionkit.store import sha256_file, write_text

SCHEMA = "fusionkit.confirmation/1"
FILE_NAME = "confirmation.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """Which candidates of which report are to be replaced, said by whom and when.

    `report_sha256`: of the report's bytes; `chosen`: ids as its list of candidates has them; `confirmed_at`: ISO 8601
    with a time zone; `despite`: why something is chosen that is not recommended, "" where nothing is.
    """

    report: str
    report_sha256: str
    chosen: tuple[str, ...]
    confirmed_by: str
    confirmed_at: str
    despite: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types: what stands in the file."""
        return {
            "schema": SCHEMA,
            "report": self.report,
            "report_sha256": self.report_sha256,
            "chosen": list(self.chosen),
            "confirmed_by": self.confirmed_by,
            "confirmed_at": self.confirmed_at,
        } | ({"despite": self.despite} if self.despite else {})


def report_ids(report: Path) -> tuple[str, ...]:
    """The ids in the list at the end of a report. Raises MisuseError where it has none, or cannot be read."""
    return tuple(report_judgements(report))


def report_judgements(report: Path) -> dict[str, str]:
    """Id -> "yes", "defer" or "no", from the list at the end of a report. Raises MisuseError like `report_ids`."""
    try:
        lines = report.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise MisuseError(
            f"{report}: cannot read the report ({error}); write it with fusionkit scan"
        ) from error
    starts = [
        number for number, line in enumerate(lines) if line.strip("`") == IDS and line.startswith("```")
    ]
    if not starts:
        raise MisuseError(f"{report}: no identification report, it has no list of candidates")
    first = starts[-1]
    fence = lines[first].removesuffix(IDS)
    end = next((n for n in range(first + 1, len(lines)) if lines[n] == fence), len(lines))
    found = [line.partition(" ") for line in lines[first + 1 : end] if line]
    if any(word not in ("yes", "defer", "no") for word, _, _ in found):
        raise MisuseError(
            f"{report}: its list of candidates tells no judgements; scan again and write it anew"
        )
    return {name: word for word, _, name in found}


def write_confirmation(
    path: Path,
    report: Path,
    chosen: Iterable[str],
    *,
    confirmed_by: str,
    confirmed_at: str,
    despite: str = "",
) -> Confirmation:
    """Write the confirmation of `chosen` candidates of a report.

    What is deferred may be chosen; what is not recommended only with the reason in `despite`. Raises MisuseError where
    it is missing, nothing is chosen, an id is not in the report, or nobody is named.
    """
    ids = tuple(dict.fromkeys(chosen))
    _check_ids(str(path), ids, report, despite)
    if not confirmed_by.strip():
        raise MisuseError(f"{path}: nobody confirms; give confirmed_by")
    confirmation = Confirmation(
        report=report.name,
        report_sha256=sha256_file(report),
        chosen=ids,
        confirmed_by=confirmed_by.strip(),
        confirmed_at=confirmed_at,
        despite=" ".join(despite.split()),
    )
    write_text(path, yaml.safe_dump(confirmation.to_dict(), sort_keys=False, allow_unicode=True))
    return confirmation


def require_confirmation(path: Path, report: Path) -> Confirmation:
    """The confirmation at `path`, if it is one of this very report.

    Raises MisuseError in one line where it is absent, unreadable, of another report, names ids that are not in it, or
    what it does not recommend without saying why.
    """
    if not path.is_file():
        raise MisuseError(
            f"{path}: no confirmation; choose candidates of {report.name} and confirm them first"
        )
    confirmation = _read(path)
    if confirmation.report_sha256 != sha256_file(report):
        raise MisuseError(
            f"{path}: confirms another report ({confirmation.report_sha256[:12]}) than {report} "
            f"({sha256_file(report)[:12]}); read this one and confirm it"
        )
    _check_ids(str(path), confirmation.chosen, report, confirmation.despite)
    return confirmation


def _check_ids(where: str, chosen: tuple[str, ...], report: Path, despite: str) -> None:
    if not chosen:
        raise MisuseError(f"{where}: no candidate is chosen; choose from the list at the end of {report}")
    known = report_judgements(report)
    unknown = [item for item in chosen if item not in known]
    if unknown:
        near = difflib.get_close_matches(unknown[0], known, n=1)
        hint = f"did you mean {near[0]}?" if near else "see the list at its end"
        raise MisuseError(f"{where}: {unknown[0]!r} is no candidate of {report}; {hint}")
    refused = [item for item in chosen if known[item] == "no"]
    if refused and not despite.strip():
        raise MisuseError(
            f"{where}: {refused[0]} is not recommended, see {report}; leave it out, or say why in despite: REASON"
        )


def _read(path: Path) -> Confirmation:
    try:
        told = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        what = " ".join(str(error).split())
        raise MisuseError(f"{path}: cannot be read as YAML ({what:.120}); confirm again") from error
    if not isinstance(told, Mapping) or told.get("schema") != SCHEMA:
        raise MisuseError(f"{path}: no confirmation of schema {SCHEMA}; confirm again")
    texts = ("report", "report_sha256", "confirmed_by", "confirmed_at")
    missing = [name for name in texts if not isinstance(told.get(name), str) or not told[name].strip()]
    chosen: Any = told.get("chosen")
    if not isinstance(chosen, list) or not all(isinstance(item, str) for item in chosen):
        missing.append("chosen")
    if not isinstance(told.get("despite", ""), str):
        missing.append("despite")
    if missing:
        raise MisuseError(f"{path}: {missing[0]} is missing or no text; confirm again")
    return Confirmation(
        chosen=tuple(chosen), despite=told.get("despite", ""), **{name: told[name] for name in texts}
    )
