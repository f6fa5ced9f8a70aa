"""A cold scan of the modeling files of transformers and diffusers, against ast.parse over the same files.

    python benchmarks/scan_speed.py

Both are timed in one run, in turns, wall clock: ast.parse in one process; the scan as `fusionkit scan` does it, with its
processes and without its cache. The claim: a scan takes at most 4 times as long.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from fusionkit.identify.scan import scan

CLAIM = 4.0


def modeling_files() -> list[Path]:
    """Every modeling file of transformers, and every file of diffusers' models."""
    roots = {
        name: Path(str(importlib.util.find_spec(name).origin)).parent
        for name in ("transformers", "diffusers")
    }
    return [
        *sorted(roots["transformers"].glob("models/*/modeling_*.py")),
        *sorted(roots["diffusers"].glob("models/**/*.py")),
    ]


def parse_time(paths: Sequence[Path]) -> float:
    start = time.perf_counter()
    for path in paths:
        ast.parse(path.read_bytes())
    return time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=None)
    arguments = parser.parse_args()
    paths = modeling_files()
    ratios = []
    for _ in range(arguments.rounds):
        parsed = parse_time(paths)
        start = time.perf_counter()
        report = scan(paths, processes=arguments.processes, cache=False)
        scanned = time.perf_counter() - start
        ratios.append(scanned / parsed)
        print(
            f"{len(paths)} files: ast.parse {parsed:.1f} s, scan {scanned:.1f} s, ratio {ratios[-1]:.2f};"
            f" {len(report.candidates)} candidates, {len(report.failed)} files not read"
        )
        for item in report.failed:
            print(f"  {item.file}: {item.reason}")
    ratio = statistics.median(ratios)
    print(f"median ratio {ratio:.2f}, claimed at most {CLAIM}")
    return 0 if ratio <= CLAIM else 1


if __name__ == "__main__":
    raise SystemExit(main())
