"""A pattern file drafted from the nodes of one site: the ops and literals as they stand in the graph."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from fusionkit.capture.graphs import CapturedGraph
from fusionkit.capture.sources import module_path, source_line
from fusionkit.errors import MisuseError
from fusionkit.patterns.naming import FusionNames

_TEMPLATE = '''"""{title}.

Drafted from node {anchor} ({module}, {source}). The search part is what stands in the graph; the
replacement repeats it: put the fused op there.
"""

import torch

from fusionkit.patterns import PatternBase


class {cls}:
    """{count} nodes of {module}."""

    @staticmethod
    def create(dtype):
        class Pattern(PatternBase):
            @staticmethod
            def name():
                return f"{cls}_{{dtype}}".replace("torch.", "")

            @staticmethod
            def inputs():
                return [
{inputs}
                ]

            @staticmethod
            def pattern({arguments}):
{body}

            @staticmethod
            def replacement({arguments}):
{body}

        return Pattern


{group} = [{cls}.create({dtype})]
'''


def draft_pattern(graph: CapturedGraph, anchor: str, *, model: str, op: str) -> str:
    """Source of a pattern file for the chain around node `anchor`.

    The chain: every call that the anchor's own module made, from which the anchor is reached, and that is
    reached from it. Values from outside it become arguments. Raises MisuseError for an unknown node.
    """
    by_name = {node.name: node for node in graph.nodes}
    if anchor not in by_name:
        raise MisuseError(f"node '{anchor}' is not in the graph; give a node name of the dump")
    names = FusionNames(f"{model}_{op}".replace("-", "_").lower())
    chain = site_chain(graph, by_name[anchor])
    outside = _outside(chain)
    local = {node: f"a{index}" for index, node in enumerate(outside)} | {node: node.name for node in chain}
    lines = [f"{local[node]} = {_call(node, local)}" for node in chain]
    lines.append(f"return {local[chain[-1]]}")
    first = _tensor(outside[0])
    return _TEMPLATE.format(
        title=f"{op} as it stands in {model}",
        anchor=anchor,
        module=module_path(by_name[anchor]) or "the model",
        source=source_line(by_name[anchor]),
        cls=names.pattern_class,
        group=names.group,
        count=len(chain),
        dtype=first.dtype,
        inputs="\n".join(" " * 20 + _empty(_tensor(node), first.dtype) for node in outside),
        arguments=", ".join(local[node] for node in outside),
        body="\n".join(" " * 16 + line for line in lines),
    )


def site_chain(graph: CapturedGraph, anchor: torch.fx.Node) -> list[torch.fx.Node]:
    """The connected calls of the anchor's module up to and including the last one that depends on the anchor."""
    module = module_path(anchor)
    own = [node for node in graph.nodes if node.op == "call_function" and module_path(node) == module]
    after = {anchor}
    for node in own:
        if any(operand in after for operand in node.all_input_nodes):
            after.add(node)
    ends = [node for node in own if node in after and not any(user in after for user in node.users)]
    before = {ends[0]}
    for node in reversed(own):
        if any(user in before for user in node.users):
            before.add(node)
    return [node for node in own if node in before]


def _outside(chain: list[torch.fx.Node]) -> list[torch.fx.Node]:
    inside = set(chain)
    operands = [operand for node in chain for operand in node.all_input_nodes if operand not in inside]
    return list(dict.fromkeys(operands))


def _call(node: torch.fx.Node, local: dict[torch.fx.Node, str]) -> str:
    arguments = [_literal(item, local) for item in node.args]
    arguments += [f"{key}={_literal(item, local)}" for key, item in node.kwargs.items()]
    if isinstance(node.target, torch._ops.OpOverload):
        return f"torch.ops.{node.target}({', '.join(arguments)})"
    return f"{arguments[0]}[{arguments[1]}]"


def _literal(value: Any, local: dict[torch.fx.Node, str]) -> str:
    if isinstance(value, torch.fx.Node):
        return local[value]
    if isinstance(value, list | tuple):
        return f"[{', '.join(_literal(item, local) for item in value)}]"
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    return repr(value)


def _tensor(node: torch.fx.Node) -> torch.Tensor:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        raise MisuseError(f"node '{node.name}' holds no tensor, so a pattern cannot take it as an argument")
    return value


def _empty(tensor: torch.Tensor, first: torch.dtype) -> str:
    dtype = "dtype" if tensor.dtype == first else repr(tensor.dtype)
    return f'torch.empty({list(tensor.shape)}, dtype={dtype}, device="meta"),'
