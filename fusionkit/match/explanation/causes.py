"""Causes of a miss: the literal table of types with their fixes, and the Cause record."""

from __future__ import annotations

from dataclasses import dataclass

from fusionkit.capture.sources import source_line
from fusionkit.encoding import Result
from fusionkit.match.explanation.differences import Difference
from fusionkit.match.ops import packet

# Type -> fix, addressed to the pattern's author. The seven classical types first.
FIXES: dict[str, str] = {
    "decomposition": "write the pattern with the ops that stand in the graph, traced with the model's decomposition table",
    "argument_order": "swap the operands in the pattern; the matcher does not know that the op commutes",
    "dtype_path": "make the casts of pattern and graph equal: add, move or remove the cast in the pattern",
    "missing_node": "bring the nodes between pattern and graph in line: add what the graph has, drop what it lacks",
    "dim_literal": "write the dim as it stands in the graph, computed from x.dim() where the graph's is positive",
    "scalar_literal": "take the literal from the graph: make it an argument with a default and name it in scalars()",
    "parameter_source": "make the weight an argument of pattern and replacement instead of holding it in the pattern",
    "overload": "call the overload that stands in the graph (torch.ops.aten.<op>.<overload>)",
    "higher_order_form": "write the functional form that stands in the graph, or call the mutating op itself: the trace gives it"
    " the graph's form",
    "kwargs_structure": "give the call in the pattern the same keyword arguments as the graph's",
    "dynamic_shape": "let the size vary: compute it from the inputs' shape, or use a GraphPatternEntry with Ignored() sizes",
    "extra_user": "the node is also used outside the pattern: end the pattern before it, or give the value back as an output",
    "shared_node": "use one node where the graph has one, and two where it has two",
    "cycle": "an argument is computed from an output of the match, so that the fused op would wait for itself: end the"
    " pattern before the node that needs the argument, or leave the output out",
    "graph_break": "the site's nodes stand in two graphs, and the matcher sees one at a time: take what breaks the graph out of"
    " the site's code, or move it before or behind the site",
    "unsupported_dtype": "torch's matcher passes by every node that reads or makes a tensor of this dtype: end the pattern at"
    " a node behind it, or hand the tensor over in another dtype (view(torch.uint8), view_as_real)",
    "mutation_region": "a mutating op stands between these nodes: take the mutation out of the model's chain, or end the"
    " pattern before it; the matcher never takes nodes from both sides",
    "missing_meta": "the node that this argument meets has no fake value: give it meta['val'] where the pass that made it runs",
    "unused_argument": "take the argument out of inputs(), pattern() and replacement(); the matcher cannot bind it",
    "duplicate": "the same pattern is registered already: take one of the two out",
    "wrong_window": "apply the pattern in the window in which it matches",
    "not_registered": "put the class into the file's ...PatternGroup list, or name the file in the config's pattern_files",
    "retrace_error": "the pattern cannot be traced at this site's shapes; make it rank- and size-agnostic",
    "consumed_earlier": "another pattern took or inserted these nodes first; register the longer fusion before the shorter one",
    "flag_off": "switch the fusion on in config.FusionPatterns",
    "root_not_indexed": "the op that ends the pattern does not occur in this graph; dump the graph and start from it",
    "extra_check": "the pattern matches, but its replacement does not fit here: mend the replacement as the reason says",
    "unexplained": "torch's matcher refuses this site and no difference was found; please report it with the capsule",
}


# The types of differences between two aligned graphs; where nothing comes near, they say nothing.
ALIGNED = frozenset(
    {
        "decomposition", "argument_order", "dtype_path", "missing_node", "dim_literal", "scalar_literal",
        "parameter_source", "overload", "higher_order_form", "kwargs_structure", "dynamic_shape", "extra_user",
        "shared_node", "root_not_indexed", "unexplained",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cause(Result):
    """Why one site was missed: the CAUSE of the JSON interface."""

    type: str
    pattern_node: str
    graph_node: str
    expected: str
    actual: str
    pattern_source: str
    graph_source: str
    fix: str
    edit: str | None = None


def cause_of(difference: Difference, edit: str | None = None) -> Cause:
    """A difference of the alignment as a cause, with sources, fix and edit."""
    p, g = difference.pattern_node, difference.graph_node
    return Cause(
        type=difference.type,
        pattern_node="" if p is None else p.name,
        graph_node="" if g is None else g.name,
        expected=difference.expected,
        actual=difference.actual,
        pattern_source="" if p is None else source_line(p),
        graph_source="" if g is None else source_line(g),
        fix=_fix_of(difference),
        edit=edit,
    )


# Ops whose operands commute.
_COMMUTATIVE = [f"aten.{op}" for op in ("add", "mul", "maximum", "minimum", "logical_and", "bitwise_and")]


def _fix_of(difference: Difference) -> str:
    node = difference.pattern_node
    name = "" if node is None or node.op != "call_function" else packet(node)
    if difference.type == "argument_order" and name not in _COMMUTATIVE:
        return "put the operands in the graph's order; for this op the order matters, so check what the pattern computes"
    if difference.type == "scalar_literal" and name == "operator.getitem":
        return "take the output of the op that the graph takes; another one is another value"
    if difference.type == "scalar_literal" and difference.graph_node is None:
        return "give the scalar a stand-in in scalars() that stands nowhere else in the trace"
    return FIXES[difference.type]


def plain_cause(kind: str, expected: str, actual: str, graph_node: str = "", pattern_node: str = "") -> Cause:
    """A cause without an alignment, such as a flag or an earlier pattern."""
    return Cause(kind, pattern_node, graph_node, expected, actual, "", "", FIXES[kind])
