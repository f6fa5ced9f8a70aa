"""Keywords of a call come back in the order of the op's schema, which torch's matcher compares."""

import torch
from shared_models import compiled

from fusionkit.capture.capsule import write_capsule
from fusionkit.capture.reading import read_capsule


def test_a_capsule_keeps_the_order_of_a_traces_keywords(tmp_path):
    capture = compiled("flux", plain=True).capture()
    read = read_capsule(write_capsule(capture, tmp_path / "flux.json"))

    def orders(graph):
        casts = graph.module.graph.find_nodes(op="call_function", target=torch.ops.aten._to_copy.default)
        return [list(node.kwargs) for node in casts]

    assert ["dtype", "layout", "device"] in orders(capture.graphs[0])
    assert orders(read.graphs[0]) == orders(capture.graphs[0])
