"""How long explain takes on full FLUX.1 for one pattern that misses every site, and how that grows with the blocks.

The model is captured whole and with half its blocks, from fake tensors, once; the capsules are kept. Explaining
is timed after they are read, in processor time: the shortest of a few runs, since a busy machine only ever adds.

    python benchmarks/explain_speed.py [--runs 3] [--capsules DIR]

Exit 1 when the whole model takes 5 s or more, or 2.3 times as long as half of it; or when no site is explained.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
import time
from pathlib import Path

from mismatches.capsules import default_folder
from mismatches.case import file_text

from fusionkit.capture.capsule import write_capsule
from fusionkit.capture.capturing import capture_graphs
from fusionkit.capture.counted import with_counts
from fusionkit.capture.reading import read_capsule
from fusionkit.match.explanation.missing import explain_capture
from fusionkit.npu.target import use_target
from fusionkit.subjects.build import build_subject, new_fake_mode
from fusionkit.subjects.site_counts import expected_counts
from fusionkit.subjects.table import SUBJECTS

LIMIT_S, LIMIT_GROWTH = 5.0, 2.3
WHOLE, HALF = (19, 38), (9, 19)  # double and single blocks
# torch.nn.RMSNorm's chain with its two last factors in the other order.
PATTERN = file_text("RmsNormPatternGroup", 'mutated(Originals[0], change("swap_operands", at=5, seed=0))')


def capsule_with(blocks: tuple[int, int], folder: Path) -> Path:
    """The capsule of full-width FLUX with so many blocks; captured where it is not there yet."""
    path = folder / f"flux-full-{blocks[0]}-{blocks[1]}.json"
    if path.is_file():
        return path
    print(f"capturing {blocks[0]} double and {blocks[1]} single blocks", file=sys.stderr)
    spec = SUBJECTS["flux"]
    sizes = {**spec.sizes, "num_layers": (2, blocks[0]), "num_single_layers": (2, blocks[1])}
    spec = dataclasses.replace(spec, sizes=sizes)
    fixed = {"size": "full", "dtype": "bfloat16", "seed": 0, "train": False, "device": "cpu"}
    subject = build_subject(spec, **fixed, fake=new_fake_mode())
    counts = expected_counts(subject)
    folder.mkdir(parents=True, exist_ok=True)
    return write_capsule(with_counts(capture_graphs(subject), subject.model, counts), path)


def explain_s(capsule: Path, runs: int) -> tuple[float, int, int]:
    """Shortest processor time of `runs`, the nodes of the graph, and the sites that were explained."""
    capture = read_capsule(capsule)
    nodes = sum(len(graph.nodes) for graph in capture.graphs)
    taken, sites = [], 0
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "swapped_rms_norm_pattern.py"
        path.write_text(PATTERN, "utf-8")
        for _ in range(runs):
            start = time.process_time()
            reports = explain_capture(capture, path)
            taken.append(time.process_time() - start)
            sites = sum(len(report.missed) for report in reports)
    return min(taken), nodes, sites


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--capsules", type=Path, default=default_folder())
    chosen = parser.parse_args()
    use_target("cpu")
    found = {}
    for blocks in (HALF, WHOLE):
        found[blocks] = explain_s(capsule_with(blocks, chosen.capsules), max(1, chosen.runs))
        seconds, nodes, sites = found[blocks]
        print(f"{sum(blocks)} blocks, {nodes} nodes: {sites} missed sites explained in {seconds:.2f} s")
    growth = found[WHOLE][0] / found[HALF][0]
    print(
        f"{sum(WHOLE) / sum(HALF):.2f} times the blocks take {growth:.2f} times as long, limit {LIMIT_GROWTH}"
    )
    explained = all(sites == 2 * (2 * b[0] + b[1]) for b, (_, _, sites) in found.items())
    return 0 if explained and found[WHOLE][0] < LIMIT_S and growth <= LIMIT_GROWTH else 1


if __name__ == "__main__":
    sys.exit(main())
