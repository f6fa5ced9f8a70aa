"""Explanations of missed sites, made by hand."""

from __future__ import annotations

from dataclasses import replace

from fusionkit.match.explanation.causes import Cause
from fusionkit.match.explanation.explain import SiteExplanation
from fusionkit.match.explanation.rows import AlignedRow

DIM = Cause(
    "dim_literal", "mean", "mean_7", "[-1]", "[3]", "my_norm_pattern.py:14", "lib/model.py:102",
    "write the dim as it stands in the graph",
    "- mean = aten.mean.dim(x, [-1], True)\n+ mean = aten.mean.dim(x, [3], True)",
)  # fmt: skip
ORDER = Cause(
    "argument_order", "mul", "mul_16", "(aten.mean.dim, x)", "(x, aten.mean.dim)", "my_norm_pattern.py:15",
    "lib/model.py:103", "swap the operands in the pattern",
    "- mul = aten.mul.Tensor(mean, x)\n+ mul = aten.mul.Tensor(x, mean)",
)  # fmt: skip
CAST = Cause(
    "dtype_path", "mul", "to_copy_3", "no cast", "aten._to_copy.default(float32)", "my_norm_pattern.py:15",
    "lib/model.py:101", "make the casts equal", None,
)  # fmt: skip
ROWS = (
    AlignedRow("same", "x", "x", "", "view_25", "aten.view.default(view_14, [1, 16])", "lib/model.py:98"),
    AlignedRow(
        "differs", "mean", "aten.mean.dim(x, [-1], True)", "my_norm_pattern.py:14", "mean_7",
        "aten.mean.dim(view_25, [3], True)", "lib/model.py:102", ("dim_literal",), "dim", "[-1]", "[3]",
    ),
    AlignedRow("graph only", "", "", "", "to_copy_3", "aten._to_copy.default(mean_7, dtype=float32)", "lib/model.py:101"),
    AlignedRow(
        "differs", "mul", "aten.mul.Tensor(mean, x)", "my_norm_pattern.py:15", "mul_16",
        "aten.mul.Tensor(view_25, to_copy_3)", "lib/model.py:103", ("argument_order",), "op",
    ),
    AlignedRow("pattern only", "neg", "aten.neg.default(mul)", "my_norm_pattern.py:16", "", "", ""),
)  # fmt: skip
SITE = SiteExplanation(
    "mul_16", "blocks.0.norm", "lib/model.py:103", "miss", "MyNorm_bfloat16", (ORDER, DIM, CAST),
    "structure", "CONSTANT_MISMATCH [-1] != [3]", ("mul_16", "mean_7"), ROWS,
)  # fmt: skip
BARE = SiteExplanation(
    "", "blocks.9.norm", "", "miss", "MyNorm_bfloat16",
    (Cause("root_not_indexed", "", "", "aten.mul.Tensor", "no node of this module", "", "", "dump the graph"),),
)  # fmt: skip


def site_of(number: int, **changes: object) -> SiteExplanation:
    """The same miss in another block: its names are numbered otherwise."""
    causes = tuple(replace(cause, graph_node=f"{cause.graph_node}{number}") for cause in SITE.causes)
    fields = {"anchor": f"mul_{number}", "module": f"blocks.{number}.norm", "causes": causes}
    return replace(SITE, **(fields | changes))
