"""How long `import fusionkit` takes: it and `pass`, in turn, each in a new interpreter.

    python benchmarks/import_time.py [--pairs 15]

Prints the medians of both and of the pairwise difference, in seconds; exit 1 when that is over the limit.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

LIMIT_S = 0.3


def run_s(code: str) -> float:
    """Return the seconds that a new interpreter takes to run `code`."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, stdin=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(description="Time `import fusionkit` against an empty program.")
    parser.add_argument("--pairs", type=int, default=15, help="how often both are run (default 15)")
    pairs = max(1, parser.parse_args().pairs)
    run_s("import fusionkit")  # writes the byte code, which is no part of the claim
    measured = [(run_s("pass"), run_s("import fusionkit")) for _ in range(pairs)]
    empty_s, full_s = (statistics.median(column) for column in zip(*measured, strict=True))
    difference_s = statistics.median(full - empty for empty, full in measured)
    print(f"python -c pass              median {empty_s:.3f} s of {pairs}")
    print(f"python -c import fusionkit  median {full_s:.3f} s of {pairs}")
    print(f"difference                  median {difference_s:.3f} s, limit {LIMIT_S} s")
    return 1 if difference_s > LIMIT_S else 0


if __name__ == "__main__":
    sys.exit(main())
