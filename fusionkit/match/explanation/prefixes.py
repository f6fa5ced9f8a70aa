"""The prefixes of a pattern's search function: the function itself, stopped after one of its op calls.

torch traces a prefix again at every site, as it does with the whole pattern, so sizes and dims stay right.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_any, tree_leaves, tree_map

from fusionkit.errors import MisuseError
from fusionkit.match.explanation.variants import Variant
from fusionkit.match.ops import operands, packet
from fusionkit.passes.registering import PatternClass, bind_arguments, example_inputs, fake_like
from fusionkit.passes.tracing import CalledOps, TraceFunction

Decompositions = Mapping[Any, Callable[..., Any]]


class Prefixes:
    """The prefixes of one variant. `calls`: the op calls of its trace, in the order of the function's own calls.

    A function that writes into tensors runs functionalised, and a decomposed op as its decomposition, as in the
    trace. Raises MisuseError when the calls are not those of the trace all the same.
    """

    def __init__(
        self, variant: Variant, trace: TraceFunction, device: str, decompositions: Decompositions
    ) -> None:
        self.calls = tuple(node for node in variant.calls if packet(node) != "operator.getitem")
        self._variant = variant
        self._device = device
        self._decompositions = decompositions
        tensors = [name for name in variant.arguments if name not in variant.scalars]
        self._examples = dict(zip(tensors, example_inputs(variant.pattern), strict=True))
        with FakeTensorMode(allow_non_fake_inputs=True):
            fake = [fake_like(tensor, device) for tensor in self._examples.values()]
            given = [*bind_arguments(variant.pattern, fake, variant.scalars).values()]
            self._search = _functional(variant.pattern.pattern, given)
            self._made, self._places = self._find_calls(trace, given)

    def _find_calls(
        self, trace: TraceFunction, given: Sequence[Any]
    ) -> tuple[list[torch.fx.Node | None], dict[torch.fx.Node, int]]:
        """The trace's node of every dispatched call, those of no effect included; and the place of each of `calls`."""
        end = -1

        def everything(*values: Any) -> list[Any]:
            nonlocal end
            with _Calls(self._decompositions) as calls:
                outputs = tree_leaves(self._search(*values))
            firsts = [_first_tensor(result) for result in calls.results]
            end = len(firsts)
            return [*firsts, *outputs]

        outputs: Any = trace(everything, given).graph.output_node().args[0]
        nodes = list(outputs)
        made = [_call_of(node) for node in nodes[:end]]
        live = set[torch.fx.Node]().union(*(cone(node) for node in nodes[end:] if node is not None))
        # A call that gives back what it was given, as a cast to the same dtype does, has the node of another one.
        places = [place for place, node in enumerate(made) if node in live and node not in made[:place]]
        if [made[place].target for place in places] != [node.target for node in self.calls]:  # type: ignore[union-attr]
            raise MisuseError(
                f"pattern {self._variant.name}: its trace has other ops than its function calls, so the function has"
                " no prefixes; use `fusionkit explain`"
            )
        return made, dict(zip(self.calls, places, strict=True))

    def arguments(self, node: torch.fx.Node) -> list[str]:
        """The arguments of the pattern that a node of a trace depends on; a scalar is known by its stand-in."""
        inside, scalars = cone(node), self._variant.scalars
        values = [
            value for one in inside for value in operands(one).values() if isinstance(value, int | float)
        ]
        places = zip(self._variant.arguments, node.graph.find_nodes(op="placeholder"), strict=True)
        return [name for name, place in places if place in inside or scalars.get(name) in values]

    def up_to(self, node: torch.fx.Node, used: Sequence[torch.fx.Node]) -> PatternClass:
        """The variant cut after the call `node`; it returns the results of this call and of `used`."""
        names = self.arguments(node)
        variant, examples = self._variant, self._examples
        search = _with_arguments(self._stopping(node, used, names), names)

        class Prefix(variant.pattern):  # type: ignore[misc, name-defined]
            name = staticmethod(lambda: f"{variant.name}[:{self.calls.index(node) + 1}]")
            inputs = staticmethod(lambda: [examples[name] for name in names if name in examples])
            scalars = staticmethod(lambda: {k: v for k, v in variant.scalars.items() if k in names})
            pattern = staticmethod(search)
            replacement = staticmethod(search)

        return Prefix

    def _stopping(
        self, node: torch.fx.Node, used: Sequence[torch.fx.Node], names: Sequence[str]
    ) -> Callable[..., Any]:
        """The search function of the arguments `names`, up to the call `node`; the others are examples."""
        last = self._places[node]
        skipped = {
            place: made.meta["val"]
            for place, made in enumerate(self._made[:last])
            if made is not None and not set(names).issuperset(self.arguments(made))
        }

        def search(*given: Any) -> Any:
            device = next((str(item.device) for item in given if isinstance(item, torch.Tensor)), "cpu")
            others = {n: fake_like(t, device) for n, t in self._examples.items() if n not in names}
            values = {**others, **self._variant.scalars, **dict(zip(names, given, strict=True))}
            with (
                _Calls(self._decompositions, last, skipped, device) as calls,
                contextlib.suppress(_StoppedError),
            ):
                self._search(*(values[name] for name in self._variant.arguments))
            return [item for one in (node, *used) for item in _items(calls.results[self._places[one]], one)]

        return search


def cone(node: torch.fx.Node | None) -> set[torch.fx.Node]:
    """The node and everything that it depends on."""
    reached = set() if node is None else {node}
    front = list(reached)
    while front:
        for operand in front.pop().all_input_nodes:
            if operand not in reached:
                reached.add(operand)
                front.append(operand)
    return reached


class _StoppedError(RuntimeError):
    """Ends a pattern's function after the wanted call."""


class _Calls(TorchDispatchMode):
    """Records the result of every call in `results`, and raises _StoppedError after the one at place `last`.

    A call of `skipped` (place -> example of its result) is not run, since its arguments are examples whose sizes need
    not fit the site: it returns empty tensors like the example. Calls on device meta are those by which torch's
    functionalisation computes sizes; they are no calls of the function.
    """

    def __init__(
        self,
        decompositions: Decompositions,
        last: int = -1,
        skipped: Mapping[int, Any] | None = None,
        device: str = "",
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._decompositions = decompositions
        self._last = last
        self._skipped = skipped or {}
        self._device = device
        self.results: list[Any] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        keywords = kwargs or {}
        if not _gives_tensors(func) or tree_any(_is_meta, (args, keywords)):
            return func(*args, **keywords)
        if func in self._decompositions:
            with self:
                result = self._decompositions[func](*args, **keywords)
            if result is not NotImplemented:
                return result
        place = len(self.results)
        skip = place in self._skipped
        result = tree_map(self._empty, self._skipped[place]) if skip else func(*args, **keywords)
        self.results.append(result)
        if place == self._last:
            raise _StoppedError
        return result

    def _empty(self, value: Any) -> Any:
        return fake_like(value, self._device) if isinstance(value, torch.Tensor) else value


def _gives_tensors(op: Any) -> bool:
    """Whether an op is no query, such as that for a tensor's device or a symbolic size."""
    return any("Tensor" in str(result.type) for result in op._schema.returns)


def _is_meta(value: Any) -> bool:
    device = value.device if isinstance(value, torch.Tensor) else value
    return isinstance(device, torch.device) and device.type == "meta"


def _functional(search: Callable[..., Any], given: Sequence[Any]) -> Callable[..., Any]:
    """The function, functionalised if it calls an op that writes."""
    with torch.no_grad(), CalledOps() as called:
        search(*given)
    writes = any(op._schema.is_mutable for op in called.ops)
    return torch.func.functionalize(search) if writes else search


def _first_tensor(result: Any) -> torch.Tensor | None:
    return next((leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)), None)


def _call_of(node: torch.fx.Node | None) -> torch.fx.Node | None:
    """The call whose result, or whose first result, a node is."""
    if node is None or node.op != "call_function":
        return None
    return node.all_input_nodes[0] if packet(node) == "operator.getitem" else node


def _items(result: Any, node: torch.fx.Node) -> list[Any]:
    """The result of a call; of several results those that the trace uses."""
    if not isinstance(result, tuple | list):
        return [result]
    indexes: list[Any] = [user.args[1] for user in node.users]
    return [result[index] for index in dict.fromkeys(indexes)]


def _with_arguments(function: Callable[..., Any], names: Sequence[str]) -> Any:
    """The function with named arguments, as the matcher reads them from the signature."""

    def named(*given: Any) -> Any:
        return function(*given)

    named.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    )
    return named
