"""Scan against labels: precision and recall of every op, and recall of hazards, on both halves of the labelled files.

    python benchmarks/score_scan.py             the tuned half
    python benchmarks/score_scan.py --held-out  the held-out half as well, scored apart

Labels: fusion_labels/ (read by hand before the rules were written). Needs the versions of transformers and diffusers
that the labels name. Nothing is tuned on the held-out half: its errors are printed only with --reveal-held-out.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import sys
from collections import Counter
from pathlib import Path

from fusionkit.identify.ops import OP_NAMES
from fusionkit.identify.scan_file import sites_of_text

LABELS = Path(__file__).parent / "fusion_labels"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--held-out", action="store_true", help="score the held-out half as well")
    parser.add_argument("--reveal-held-out", action="store_true", help="print its errors too")
    parser.add_argument("--show-wrong", action="store_true", help="print the errors of the tuned half")
    parser.add_argument("--labels", action="store_true", help="print the labels themselves")
    arguments = parser.parse_args()
    halves = ["tuned"] + (["held_out"] if arguments.held_out or arguments.reveal_held_out else [])
    good = True
    for half in halves:
        data = json.loads((LABELS / f"{half}.json").read_text())
        problem = wrong_versions(data["packages"])
        if problem:
            print(problem, file=sys.stderr)
            return 2
        if arguments.labels:
            print_labels(data["files"])
        show = arguments.show_wrong if half == "tuned" else arguments.reveal_held_out
        good = score(half, data["files"], show) and good
    return 0 if good else 1


def wrong_versions(packages: dict[str, str]) -> str:
    for name, wanted in packages.items():
        there = importlib.metadata.version(name)
        if there != wanted:
            return (
                f"the labels are of {name} {wanted}, and {there} is installed; line numbers and code differ"
            )
    return ""


def print_labels(files: list[dict]) -> None:
    for item in files:
        for label in item["labels"]:
            print(
                f"{item['file']}:{label['line']} {label['symbol']} {label['op']} {' '.join(label['hazards'])}"
            )


def score(half: str, files: list[dict], show: bool) -> bool:
    """Print the table of one half; whether every op and the hazards reach 0.95."""
    right, extra, missed = Counter(), Counter(), Counter()
    hazard_right, hazard_missed, hazard_extra = Counter(), Counter(), Counter()
    for item in files:
        package, _, rest = item["file"].partition("/")
        root = Path(importlib.util.find_spec(package).origin).parent
        path = root / rest
        found = {(s.symbol, s.op): set(s.hazards) for s in sites_of_text(path, path.read_text("utf-8"))}
        wanted = {(label["symbol"], label["op"]): set(label["hazards"]) for label in item["labels"]}
        for key in found.keys() | wanted.keys():
            symbol, op = key
            if key not in wanted:
                extra[op] += 1
                tell(show, f"{item['file']} {symbol}: {op} found, not labelled")
            elif key not in found:
                missed[op] += 1
                tell(show, f"{item['file']} {symbol}: {op} labelled, not found")
            else:
                right[op] += 1
                hazard_right.update(wanted[key] & found[key])
                hazard_missed.update(wanted[key] - found[key])
                hazard_extra.update(found[key] - wanted[key])
                if wanted[key] != found[key]:
                    lacking, more = sorted(wanted[key] - found[key]), sorted(found[key] - wanted[key])
                    tell(show, f"{item['file']} {symbol} {op}: hazards missed {lacking}, unlabelled {more}")
    print(f"\n{half}: {len(files)} files, {sum(right.values()) + sum(missed.values())} labels")
    good = table(right, extra, missed)
    total = sum(hazard_right.values()) + sum(hazard_missed.values())
    recall = sum(hazard_right.values()) / total if total else 1.0
    print(
        f"hazards: recall {recall:.3f} ({sum(hazard_missed.values())} of {total} missed), {sum(hazard_extra.values())} unlabelled"
    )
    for name in sorted(hazard_missed | hazard_extra):
        print(
            f"  {name}: {hazard_right[name]} right, {hazard_missed[name]} missed, {hazard_extra[name]} unlabelled"
        )
    return good and recall >= 0.95


def tell(show: bool, line: str) -> None:
    if show:
        print(line)


def table(right: Counter, extra: Counter, missed: Counter) -> bool:
    good = True
    print(f"{'op':28}{'right':>7}{'extra':>7}{'missed':>8}{'precision':>11}{'recall':>8}")
    for op in OP_NAMES:
        if not right[op] + extra[op] + missed[op]:
            continue
        precision = right[op] / (right[op] + extra[op]) if right[op] + extra[op] else 0.0
        recall = right[op] / (right[op] + missed[op]) if right[op] + missed[op] else 1.0
        good = good and min(precision, recall) >= 0.95
        print(f"{op:28}{right[op]:>7}{extra[op]:>7}{missed[op]:>8}{precision:>11.3f}{recall:>8.3f}")
    return good


if __name__ == "__main__":
    raise SystemExit(main())
