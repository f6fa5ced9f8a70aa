"""A norm's chain with one thing changed, tried on a tiny subject's real compile graph."""

import torch
from shared_models import compiled

from fusionkit.capture.aot import decomposition_table
from fusionkit.capture.graphs import copy_graph_module
from fusionkit.match.matching import Matching
from fusionkit.passes.match_pass import PatternMatchPass
from fusionkit.patterns import PatternBase

A = torch.ops.aten
EPS = 9.999999974752427e-07  # float32(1e-6), as torch.nn.RMSNorm's decomposition has it


def chain(*, cast=True, eps=EPS, dim=None, add=A.add.Scalar, swap=False, power=2, before_gain=False):
    """torch.nn.RMSNorm as it stands in the graph, with one thing changed."""

    def pattern(x, weight):
        h = x.to(torch.float32) if cast else x
        mean = A.mean.dim(h.pow(power), [x.dim() - 1] if dim is None else dim, True)
        scale = torch.rsqrt(add(mean, eps))
        normed = scale * h if swap else h * scale
        return normed.to(x.dtype) * weight if before_gain else normed * weight

    return pattern


def pattern_class(fn):
    class Pattern(PatternBase):
        name = staticmethod(lambda: "Trial")
        pattern = staticmethod(fn)

        @staticmethod
        def inputs():
            shape = torch.empty(2, 4, 8, 16, dtype=torch.bfloat16, device="meta")
            return [shape, torch.empty(16, dtype=torch.bfloat16, device="meta")]

        @staticmethod
        def replacement(x, weight):
            return torch.ops.npu.npu_rms_norm(x, weight, 1e-6)[0]

    return Pattern


def matching(fn, name="flux"):
    """The pattern tried on the tiny subject's real compile graph."""
    plain = compiled(name, plain=True)
    groups = {"rms_norm": [pattern_class(fn)]}
    module = copy_graph_module(plain.before[0].module)
    matches = PatternMatchPass(groups, decomposition_table("none")).apply(module)
    return Matching(plain.capture(), "before-freezing", groups, matches)
