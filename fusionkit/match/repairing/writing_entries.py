"""Source of a graph entry that ignores sizes which no input explains, and checks everything that must agree."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.fx

from fusionkit.errors import MisuseError
from fusionkit.match.ops import packet
from fusionkit.match.repairing.region import Region, Slot, is_number

Node = torch.fx.Node
_TEMPLATE = '''def _register_{name}(pattern_pass):
    """{docstring}"""
{imports}

{tree}

    def operands_of(root):
        """The replacement's arguments, reached from the site's last node; None if the site has another form."""
{walk}

    def fits(match):
        return operands_of(match.output_node()) is not None

    @register_graph_pattern({root}, extra_check=fits, pass_dict=pattern_pass)
    def {name}(match, *operands):
        match.replace_by_example({replacement}, operands_of(match.output_node()))
'''


def write_entry(
    regions: Sequence[Region],
    arguments: Sequence[int | Slot],
    *,
    name: str,
    docstring: str,
    replacement: str,
) -> str:
    """The function `_register_{name}(pattern_pass)` for regions of one form with a single output.

    `arguments`: those of the call of `replacement`, an expression, in order: an input's index, or the place of a
    number of the graph. Raises MisuseError for several outputs.
    """
    if len(regions[0].outputs) != 1:
        raise MisuseError("a graph entry gives one output; write a pattern for a site with several")
    writer = _Entry(regions)
    names = [writer.inputs[node] for node in regions[0].inputs]
    given = [names[item] if isinstance(item, int) else writer.number(*item) for item in arguments]
    walk = [*writer.walk(), f"return [{', '.join(given)}]"]
    tree = [*writer.tree()]
    return _TEMPLATE.format(
        name=name,
        imports=_imports(tree),
        docstring=docstring,
        tree="\n".join(f"    {line}" for line in tree),
        walk="\n".join(f"        {line}" for line in walk),
        root=f"{writer.local[regions[0].outputs[0]]}_tree",
        replacement=replacement,
    )


class _Entry:
    def __init__(self, regions: Sequence[Region]) -> None:
        self.regions = regions
        first = regions[0]
        self.inputs = {node: f"input_{index}" for index, node in enumerate(first.inputs)}
        stems = {node: packet(node).rpartition(".")[2].strip("_") for node in first.nodes}
        self.local = {node: f"node_{index}_{stems[node]}" for index, node in enumerate(first.nodes)}

    def tree(self) -> Iterator[str]:
        """One pattern object for each node; a node with two users is one object."""
        first = self.regions[0]
        for index, node in enumerate(first.nodes):
            every = zip(*(region.nodes[index].args for region in self.regions), strict=True)
            arguments = [self.leaf(values) for values in every]
            users = "" if len(node.users) == 1 or node in first.outputs else ", _users=MULTIPLE"
            target = f"torch.ops.{node.target}"
            if node.target is operator.getitem:
                target = "getitem"
            elif not isinstance(node.target, torch._ops.OpOverload):
                raise MisuseError(f"node '{node.name}' calls {node.target}, which a pattern cannot hold")
            yield f"{self.local[node]}_tree = CallFunction({', '.join([target, *arguments])}{users})"

    def leaf(self, values: Sequence[Any]) -> str:
        """One argument in the tree; `values`: at each site."""
        item = values[0]
        if isinstance(item, Node):
            if is_number(item):
                return "Ignored()"
            return "Arg()" if item in self.inputs else f"{self.local[item]}_tree"
        if isinstance(item, list | tuple) and any(isinstance(part, Node) for part in item):
            return f"[{', '.join(self.leaf(parts) for parts in zip(*values, strict=True))}]"
        same = len(set(map(str, values))) == 1
        return repr(item) if same and not isinstance(item, torch.device) else "Ignored()"

    def walk(self) -> Iterator[str]:
        """An assignment for every node, from the root on; a check for each shared node and each keyword."""
        first = self.regions[0]
        yield f"{self.local[first.outputs[0]]} = root"
        seen = {first.outputs[0]}
        for node in (n for n in reversed(first.outputs[0].graph.nodes) if n in first.nodes):
            for path, operand in _paths(node):
                name = self.local.get(operand) or self.inputs[operand]
                place = f"{self.local[node]}{path}"
                if operand in seen:
                    yield f"if {place} is not {name}:"
                    yield "    return None"
                else:
                    seen.add(operand)
                    yield f"{name} = {place}"
            for key, value in node.kwargs.items():
                index = first.nodes.index(node)
                values = {str(region.nodes[index].kwargs.get(key)) for region in self.regions}
                if len(values) == 1 and not isinstance(value, torch.device | torch.layout):
                    yield f"if {self.local[node]}.kwargs.get({key!r}) != {value!r}:"
                    yield "    return None"

    def number(self, index: int, label: str) -> str:
        """The expression of a number of the graph."""
        node = self.regions[0].nodes[index]
        if label in node.kwargs:
            return f"{self.local[node]}.kwargs[{label!r}]"
        schema: Any = getattr(node.target, "_schema", None)
        position = [argument.name for argument in schema.arguments].index(label)
        return f"{self.local[node]}.args[{position}]"


def _imports(tree: Sequence[str]) -> str:
    """The import statements of the names that the tree uses."""
    text = "\n".join(tree)
    names = ("MULTIPLE", "Arg", "CallFunction", "Ignored")
    used = [*(name for name in names if re.search(rf"\b{name}\b", text)), "register_graph_pattern"]
    line = f"    from torch._inductor.pattern_matcher import {', '.join(used)}"
    return f"    from operator import getitem\n\n{line}" if "CallFunction(getitem" in text else line


def _paths(node: Node) -> Iterator[tuple[str, Node]]:
    for position, item in enumerate(node.args):
        if isinstance(item, Node) and not is_number(item):
            yield f".args[{position}]", item
        elif isinstance(item, list | tuple):
            for index, part in enumerate(item):
                if isinstance(part, Node) and not is_number(part):
                    yield f".args[{position}][{index}]", part
