"""All cases of one subject, made, explained and scored; plain rows come back, so that it can run in a process."""

from __future__ import annotations

import itertools
import logging
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fusionkit.capture.reading import read_capsule
from fusionkit.errors import FusionKitError
from mismatches.baseline import read_debug_output
from mismatches.case import Case
from mismatches.class_cases import class_cases, unchanged_cases
from mismatches.generate import Original, double_cases, graph_cases, op_cases, originals_of
from mismatches.score import Outcome, outcome_of, score

# Not caught: KeyboardInterrupt and the like. What explain raises on a case is that case's outcome.
_ERRORS = (
    RuntimeError,
    LookupError,
    AssertionError,
    AttributeError,
    TypeError,
    ValueError,
    FusionKitError,
    NotImplementedError,
)


@dataclass(frozen=True, slots=True)
class Row:
    """One case's result, in plain types."""

    case: str
    subject: str
    variant: str
    operator: str
    types: tuple[str, ...]
    dropped: int
    type_right: bool
    node_right: bool | None
    extra: int
    false: int
    baseline_type: bool
    baseline_node: bool | None
    seconds: float
    expected: str
    got: str
    files: dict[str, str]
    repaired: bool | None = None
    repair_told: str = ""


def quiet() -> None:
    """No warnings of torch about patterns that are wrong on purpose."""
    for name in ("torch._subclasses.fake_tensor", "torch._inductor.pattern_matcher", "torch._dynamo"):
        logging.getLogger(name).setLevel(logging.CRITICAL if "fake" in name else logging.WARNING)


def make_cases(capsule: Path, seed: int, per_type: int, doubles: int) -> Iterator[Case]:
    """Every case of one subject, in a fixed order."""
    capture = read_capsule(capsule)
    originals: list[Original] = originals_of(capture)
    yield from itertools.chain(
        op_cases(capture, originals, seed, per_type),
        graph_cases(capture, originals, seed, per_type),
        class_cases(capture, originals, seed, per_type),
        double_cases(capture, originals, seed, doubles),
        unchanged_cases(capture, originals),
    )


def run_subject(
    capsule: Path, seed: int, per_type: int, doubles: int, only: str | None, repair: bool, limit: int | None
) -> list[Row]:
    """Make, explain and score a subject's cases."""
    from fusionkit.npu.target import use_target

    quiet()
    use_target("cpu")
    rows = []
    for case in itertools.islice(make_cases(capsule, seed, per_type, doubles), limit):
        if only is None or only in (*case.types, case.operator):
            rows.append(run_case(case, repair=repair))
    return rows


def run_case(case: Case, *, repair: bool = False) -> Row:
    """Explain one case by the kit and by the baseline, and score both."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asked = case.write(folder)
        start = time.perf_counter()
        told = explained(case, asked, folder)
        seconds = time.perf_counter() - start
        first = folder / next(iter(case.files), "none")
        debug = read_debug_output(case, first) if case.expected else Outcome(())
        repaired, repair_told = _repaired(case, asked, folder) if repair else (None, "")
    own, other = score(case, told), score(case, debug)
    return Row(
        case.name,
        case.subject,
        case.variant,
        case.operator,
        case.types,
        len(case.expected),
        own.type,
        own.node,
        own.extra,
        own.false,
        other.type,
        other.node,
        round(seconds, 3),
        _expectation(case),
        own.got,
        dict(case.files),
        repaired,
        repair_told,
    )


def explained(case: Case, asked: str | Path, folder: Path) -> Outcome:
    """What the kit's explain says of a case; an error that is no MisuseError is told as a crash."""
    from fusionkit.match.explanation.missing import explain_capture

    try:
        return outcome_of(explain_capture(case.capture, asked, case.config_in(folder)))
    except FusionKitError as error:
        return Outcome((), str(error))
    except _ERRORS as error:
        return Outcome(
            (), f"crash {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        )


def _repaired(case: Case, asked: str | Path, folder: Path) -> tuple[bool | None, str]:
    from mismatches.repairing import try_repair

    return try_repair(case, asked, folder)


def _expectation(case: Case) -> str:
    labels: list[dict[str, Any]] = [
        {"site": item.site.found.anchor, **label.to_dict()}
        for item in case.expected[:2]
        for label in item.labels
    ]
    return " ".join(str(label) for label in labels)
