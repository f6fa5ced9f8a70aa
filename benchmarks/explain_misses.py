"""The benchmark of misses: does explain name the cause and the node, and does repair mend the pattern?

Each case is a pattern of the kit with one thing changed (or a graph with one thing changed) so that torch's matcher
drops hits. The label comes from the change, never from explain. Beside it, torch's own debug output read as
well as it can be. Held-out subjects are scored apart; nothing is tuned on them. Small models as users write them, with
patterns of few ops, are a part of their own.

    python benchmarks/explain_misses.py [--repair] [--held-out] [--type T] [--show-wrong] [--json FILE]

Exit 1 when the figures are not good enough: 97 % of types and of nodes, no type under 90 %, both of two changes in
90 %, no diagnosis of a site that hits, 95 % repaired; or when there are too few cases for the figures to mean
anything.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from mismatches.capsules import HELD_OUT, OWN, TUNED, capsule_of, default_folder
from mismatches.report import Limits, shortfalls, singles, table, wrong
from mismatches.running import Row, run_subject

CASES, PER_TYPE, SUBJECTS, DOUBLES = 300, 8, 6, 60
OWN_CASES, PER_OPERATOR_OWN = 40, 3  # of the user-like models, which are one subject
OWN_LIMITS = Limits(type=0.95, node=0.95, one_type=0.0, both=0.9, repair=0.9)


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--capsules", type=Path, default=default_folder(), help="where captures are kept")
    parser.add_argument("--subjects", help="only these, separated by commas")
    parser.add_argument("--cases", type=int, help="at most so many cases of each subject")
    parser.add_argument("--per-operator", type=int, default=1, help="cases of each operator in each subject")
    parser.add_argument("--doubles", type=int, default=6, help="double changes in each subject")
    parser.add_argument("--type", help="only this cause type, or this operator")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repair", action="store_true", help="repair the repairable cases as well")
    parser.add_argument("--held-out", action="store_true", help="run the held-out subjects as well")
    parser.add_argument("--show-wrong", action="store_true", help="print the wrong cases of the tuned part")
    parser.add_argument("--reveal-held-out", action="store_true", help="print those of the held-out part too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every case's row")
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1))
    return parser.parse_args()


def run(chosen: argparse.Namespace, subjects: Sequence[str]) -> Iterator[list[Row]]:
    """Each subject's rows as they come, each subject in a process of its own."""
    capsules = [capsule_of(subject, chosen.capsules) for subject in subjects]
    fixed = (chosen.doubles, chosen.type, chosen.repair, chosen.cases)
    each = {
        subject: chosen.per_operator * (PER_OPERATOR_OWN if subject == OWN else 1) for subject in subjects
    }
    jobs = [
        (capsule, chosen.seed, each[subject], *fixed)
        for capsule, subject in zip(capsules, subjects, strict=True)
    ]
    if chosen.processes < 2:
        for job in jobs:
            yield run_subject(*job)
        return
    with ProcessPoolExecutor(chosen.processes, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(run_subject, *job) for job in jobs]):
            yield done.result()


def too_few(rows: Sequence[Row]) -> list[str]:
    """What the tuned part lacks to be a benchmark at all."""
    one = singles(rows)
    counts = Counter(row.types[0] for row in one)
    found = [
        f"{kind}: {count} cases, wanted {PER_TYPE}" for kind, count in counts.items() if count < PER_TYPE
    ]
    doubles = sum(row.operator == "double" for row in rows)
    subjects = len({row.subject for row in one})
    for what, count, wanted in (
        ("cases", len(one), CASES),
        ("double changes", doubles, DOUBLES),
        ("subjects", subjects, SUBJECTS),
    ):
        if count < wanted:
            found.append(f"{count} {what}, wanted {wanted}")
    return found


def keep(chosen: argparse.Namespace, rows: Sequence[Row]) -> None:
    """Write what there is so far, so that a run that is cut short is not lost; held-out rows stay hidden."""
    if chosen.json:
        shown = [row for row in rows if chosen.reveal_held_out or row.subject not in HELD_OUT]
        text = json.dumps([dataclasses.asdict(row) for row in shown], indent=1)
        chosen.json.write_text(text, "utf-8")


def main() -> int:
    """Run, print, and return the exit code."""
    chosen, start = options(), time.perf_counter()
    names = (
        chosen.subjects.split(",")
        if chosen.subjects
        else [*TUNED, OWN, *(HELD_OUT if chosen.held_out else ())]
    )
    rows: list[Row] = []
    for done in run(chosen, names):
        rows += done
        keep(chosen, rows)
        told = f"{done[0].subject}: {len(done)} cases" if done else "no case"
        print(f"{time.perf_counter() - start:6.0f} s  {told}", file=sys.stderr, flush=True)
    rows.sort(key=lambda row: row.case)
    parts = {
        "tuned": [row for row in rows if row.subject not in (*HELD_OUT, OWN)],
        "own models": [row for row in rows if row.subject == OWN],
        "held out": [row for row in rows if row.subject in HELD_OUT],
    }
    faults = []
    for part, found in parts.items():
        if found:
            print(
                f"\n{part}: {len({row.subject for row in found})} subjects, {len(found)} cases\n{table(found)}"
            )
            limits = OWN_LIMITS if part == "own models" else Limits()
            faults += [f"{part}: {fault}" for fault in shortfalls(found, limits)]
    whole = chosen.type is None and chosen.cases is None and chosen.subjects is None
    faults += [f"tuned: {fault}" for fault in (too_few(parts["tuned"]) if whole else [])]
    own = len(singles(parts["own models"]))
    faults += [f"own models: {own} cases, wanted {OWN_CASES}"] if whole and own < OWN_CASES else []
    if chosen.show_wrong:
        print("\n" + wrong(rows if chosen.reveal_held_out else [*parts["tuned"], *parts["own models"]]))
    print("\n" + "\n".join(faults or ["good enough"]) + f"\n{time.perf_counter() - start:.0f} s")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
