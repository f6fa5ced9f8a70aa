"""What the kit adds to a capture: `fusionkit hits flux --size full --target npu-dry` beside a bare capture.

Both run in processes of their own, in turn, on the same machine: the bare one builds the same model from fake
tensors on the same device, runs one plain forward, and compiles with an aot_autograd backend that looks at
nothing. Process time is user plus system time; memory is the largest resident set.

    python benchmarks/dry_capture.py [--pairs 3]

Exit 1 when the kit adds more than 30 %, takes 60 s or more of process time, needs 1.0 GB or more, or misses a
site.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from typing import Any

BARE = """
import sys
from fusionkit.npu.target import use_target
use_target("npu-dry")
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from fusionkit.subjects.load import load_subject

def keep(module, inputs):
    print(len(module.graph.nodes))
    return make_boxed_func(module.forward)

subject = load_subject(sys.argv[1], size="full")
with torch.no_grad(), subject.mode():
    subject.model(*subject.args, **subject.kwargs)
    backend = aot_autograd(fw_compiler=keep, inference_compiler=keep)
    torch.compile(subject.model, backend=backend)(*subject.args, **subject.kwargs)
"""


def measured(command: list[str]) -> tuple[str, float, float]:
    """Run a command; its output, process time in s, and largest resident set in MB."""
    with tempfile.TemporaryFile("w+") as out:
        child = subprocess.Popen(command, stdout=out)
        _, status, usage = os.wait4(child.pid, 0)
        if os.waitstatus_to_exitcode(status):
            raise SystemExit(f"{' '.join(command[:6])} ended with {os.waitstatus_to_exitcode(status)}")
        out.seek(0)
        return out.read(), usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e3


LIMIT_ADDED, LIMIT_S, LIMIT_MB = 0.30, 60.0, 1000.0


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=3)
    arguments = parser.parse_args()
    hits = [
        "hits",
        "flux",
        "--size",
        "full",
        "--target",
        "npu-dry",
        "--pattern",
        "rms_norm",
        "--json",
    ]
    rows: list[dict[str, Any]] = []
    for _ in range(arguments.pairs):
        nodes, bare_s, bare_mb = measured([sys.executable, "-c", BARE, "flux"])
        text, kit_s, kit_mb = measured([sys.executable, "-m", "fusionkit.cli", *hits])
        entry = json.loads(text)["patterns"]["rms_norm"]
        rows.append(
            {
                "whole": entry["hits"] == entry["expected_sites"] == 152,
                "bare_s": bare_s,
                "kit_s": kit_s,
                "bare_mb": bare_mb,
                "kit_mb": kit_mb,
                "added": kit_s / bare_s - 1,
            }
        )
        told = f"{entry['hits']} of {entry['expected_sites']} sites, {nodes.strip()} nodes"
        print(
            f"bare {bare_s:.1f} s {bare_mb:.0f} MB; kit {kit_s:.1f} s {kit_mb:.0f} MB; +{rows[-1]['added']:.0%}; {told}"
        )
    middle = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
    print(
        f"median: bare {middle['bare_s']:.1f} s, kit {middle['kit_s']:.1f} s (+{middle['added']:.0%}),"
        f" {middle['kit_mb']:.0f} MB resident"
    )
    within = middle["added"] <= LIMIT_ADDED and middle["kit_s"] < LIMIT_S and middle["kit_mb"] < LIMIT_MB
    return 0 if within and all(row["whole"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
