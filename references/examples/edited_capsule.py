"""Write a capsule of small_models:norm as somebody's own pass would leave its graph.

`python edited_capsule.py mutation_region FILE.json`; the edits are the functions below.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import torch

from fusionkit import capture_graphs, load_subject, use_target
from fusionkit.capture.capsule import write_capsule
from fusionkit.capture.counted import by_first_path
from fusionkit.subjects.site_counts import expected_counts


def mutation_region(graph: torch.fx.Graph) -> None:
    """0 hits at a site where everything fits, and torch does not even log it.

    An op that writes in place stands between the matched nodes. AOT autograd leaves none there; somebody's own pass behind it put
    it there. The matcher takes no nodes from both sides of one.

    Move the mutation out of the chain, or end the pattern before it. No pattern file mends that, so `repair` offers nothing.
    """
    (rsqrt,) = graph.find_nodes(op="call_function", target=torch.ops.aten.rsqrt.default)
    x = graph.find_nodes(op="placeholder")[-1]
    with graph.inserting_before(rsqrt):
        buffer = graph.call_function(torch.ops.aten.clone.default, (x,))
        written = graph.call_function(torch.ops.aten.mul_.Scalar, (buffer, 2.0))
    buffer.meta = written.meta = dict(x.meta)


def missing_meta(graph: torch.fx.Graph) -> None:
    """0 hits at a site where everything fits: a node that an argument of the pattern meets has no `meta["val"]`.

    Without it the shape is not known, and the matcher cannot trace the pattern again. Somebody's own pass made the node and
    gave it none.

    Mend that pass: `node.meta["val"]` has to be the fake tensor of the result. No pattern file mends that, so `repair`
    offers nothing.
    """
    weight = graph.find_nodes(op="placeholder")[0]
    del weight.meta["val"]


def main(edit: str, out: str) -> None:
    """Capture, edit, write."""
    use_target("cpu")
    subject = load_subject("small_models:norm")
    capture = by_first_path(capture_graphs(subject), subject.model)
    (graph,) = capture.in_window("before-freezing")
    {"mutation_region": mutation_region, "missing_meta": missing_meta}[edit](graph.module.graph)
    write_capsule(replace(capture, counts=expected_counts(subject)), Path(out))


if __name__ == "__main__":
    main(*sys.argv[1:])
