"""What the counterexample search costs: numeric, and phases 4 and 6, in this checkout against another one.

`python tools/search_cost.py BASE [--rounds N]` runs each command N times in both checkouts, alternating, and prints
the CPU seconds of every run and the ratio of the medians.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
COMMANDS = {
    "numeric flux": ["numeric", "flux"],
    "phases 4 and 6 of flux-tiny": ["run", "parameters/flux-tiny.yaml", "--notebooks", "04,06"],
}


def cpu_seconds(checkout: Path, words: list[str]) -> float:
    """CPU seconds of one command and its children. Raises SystemExit if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        out = ["--out", folder + "/run"] if words[0] == "run" else []
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-m", "fusionkit", *words, *out],
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": str(checkout)},
            stdout=subprocess.DEVNULL,
            check=False,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{checkout}: {' '.join(words)} ended with {done.returncode}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Time both checkouts and print a line for each command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    for name, words in COMMANDS.items():
        times: dict[str, list[float]] = {"base": [], "here": []}
        for _ in range(arguments.rounds):
            for state, checkout in (("base", arguments.base.resolve()), ("here", HERE)):
                times[state].append(cpu_seconds(checkout, words))
        ratio = statistics.median(times["here"]) / statistics.median(times["base"])
        rows = "; ".join(f"{state} {', '.join(f'{t:.1f}' for t in each)}" for state, each in times.items())
        sys.stdout.write(f"{name}: CPU seconds {rows}; ratio {ratio:.2f}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
