"""Rotary embeddings written as a product of complex tensors, which share no op with a rotation of real halves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import torch

from fusionkit.match.explanation.moves import Node
from fusionkit.match.explanation.variants import Variant
from fusionkit.match.ops import packet

REAL = "two products and a sum of real halves"
COMPLEX = "one product of complex tensors (aten.view_as_complex, aten.mul, aten.view_as_real)"


def is_rotation(variant: Variant) -> bool:
    """Whether a pattern rotates real halves: two products, a sum or difference of them, and halves joined again."""
    seen = Counter(packet(node) for node in variant.calls)
    sums = seen["aten.add"] + seen["aten.sub"]
    return seen["aten.mul"] >= 2 and sums > 0 and seen["aten.cat"] + seen["aten.stack"] > 0


def complex_rotations(nodes: Iterable[Node]) -> list[Node]:
    """The ends of complex rotations in graph order: view_as_real of a product that starts at view_as_complex."""
    return [
        node
        for node in nodes
        if node.target is torch.ops.aten.view_as_real.default
        and packet(product := node.all_input_nodes[0]) == "aten.mul"
        and any(packet(factor) == "aten.view_as_complex" for factor in product.all_input_nodes)
    ]
