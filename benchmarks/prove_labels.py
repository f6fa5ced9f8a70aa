"""Labels against proofs: a label whose replacement is equal at run time cannot be a wrong reading.

    python benchmarks/prove_labels.py             every labelled file (twenty minutes on two cores)
    python benchmarks/prove_labels.py --files 20  a seeded sample of them

For each labelled (file, symbol, op) that the scan finds, a replacement is written and proven on target cpu. PASS: the
label is borne out. FAIL: label, rule or replacement is wrong; it is printed with the reason. What cannot be written or
built is counted apart. Runs the real code of transformers and diffusers.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path

from fusionkit.identify.proving.prove import prove_file
from fusionkit.identify.reading import read_source
from fusionkit.identify.replacing import Refused, replace_site
from fusionkit.identify.scan_file import sites_of_file

LABELS = Path(__file__).parent / "fusion_labels"


def labelled() -> list[dict]:
    return [
        item
        for half in ("tuned", "held_out")
        for item in json.loads((LABELS / f"{half}.json").read_text())["files"]
    ]


def path_of(name: str) -> Path:
    package, _, rest = name.partition("/")
    return Path(str(importlib.util.find_spec(package).origin)).parent / rest


def check(item: dict, time_limit_s: float) -> list[tuple[str, str, str]]:
    """(op, outcome, what to print) for each label of one file."""
    file = read_source(path_of(item["file"]))
    wanted = {(label["symbol"], label["op"]) for label in item["labels"]}
    sites = [site for site in sites_of_file(file) if (site.symbol, site.op) in wanted]
    told = [(op, "not found", "") for symbol, op in wanted - {(s.symbol, s.op) for s in sites}]
    written = []
    for site in sites:
        found = replace_site(file, site)
        if isinstance(found, Refused):
            told.append((site.op, "not written", ""))
        else:
            written.append((site, found.new_text))
    for (site, _), proof in zip(
        written, prove_file(file.path, written, time_limit_s=time_limit_s), strict=True
    ):
        verdict = str(proof.verdict)
        shown = f"{item['file']} {site.symbol} {site.op}: {proof.reason[:200]}" if verdict == "FAIL" else ""
        told.append((site.op, verdict, shown))
    return told


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, help="only so many files, drawn by --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--time-limit", type=float, default=180.0)
    arguments = parser.parse_args()
    files = [item for item in labelled() if item["labels"]]
    if arguments.files is not None:
        files = random.Random(arguments.seed).sample(files, min(arguments.files, len(files)))
    counts: dict[str, Counter] = {}
    start = time.perf_counter()
    for number, item in enumerate(files, start=1):
        for op, outcome, shown in check(item, arguments.time_limit):
            counts.setdefault(op, Counter())[outcome] += 1
            if shown:
                print(f"FAIL {shown}", flush=True)
        print(
            f"{time.perf_counter() - start:6.0f} s  {number} of {len(files)} files",
            file=sys.stderr,
            flush=True,
        )
    columns = ("PASS", "FAIL", "INCONCLUSIVE", "not written", "not found")
    print(f"{'op':28}" + "".join(f"{name:>14}" for name in columns))
    for op, row in sorted(counts.items()):
        print(f"{op:28}" + "".join(f"{row[name]:>14}" for name in columns))
    total = sum((Counter(row) for row in counts.values()), Counter())
    print(f"{'all':28}" + "".join(f"{total[name]:>14}" for name in columns))
    return 1 if total["FAIL"] or not total["PASS"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
