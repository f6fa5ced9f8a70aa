"""Script: marked dimensions on npu-dry, where attention takes the sequence length as a constant."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from dry_processes import activate_dry, answer
from torch import nn

activate_dry()

from fusionkit.capture.capturing import capture_graphs  # noqa: E402
from fusionkit.subjects.load import load_subject  # noqa: E402


class Attention(nn.Module):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x) + 1


def attention(size, dtype):
    return Attention(), {"x": torch.randn(2, 4, 6, 16, dtype=dtype)}


def norm(size, dtype):
    return nn.RMSNorm(16, dtype=dtype), {"x": torch.randn(2, 6, 16, dtype=dtype)}


def captured(factory, dims):
    capture = capture_graphs(load_subject(factory), dynamic=dims)
    nodes = [node for graph in capture.graphs for node in graph.nodes]
    return {"notes": capture.notes, "breaks": capture.breaks, "ops": [str(node.target) for node in nodes]}


answer({"attention": captured(attention, ("x:2",)), "norm": captured(norm, ("1",)), "file": __file__})
