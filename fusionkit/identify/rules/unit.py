"""What a rule looks at, and what it finds: one function or method, with its class and file around it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from fusionkit.identify.source.evaluate import Flow, FunctionNode
from fusionkit.identify.source.files import SourceClass, SourceFile, decorators_of
from fusionkit.identify.source.project import attribute, find_class
from fusionkit.identify.source.values import Value, peel, sides

# Methods that do not run at forward time.
_NOT_FORWARD = (
    "_init_weights",
    "reset_parameters",
    "extra_repr",
    "post_init",
    "init_weights",
    "convert",
    "__repr__",
)
_RUN_AS_CLASS = ("forward", "__call__", "__init__")
_HUB = ("use_kernel", "use_experts_implementation")  # decorators under which other code may run by default
_BRANCHES = (
    "is_torch_npu_available",
    "torch_npu",
    "is_npu_available",
    "is_fast_path",
    "causal_conv1d",
    "selective_",
)


@dataclass(frozen=True, slots=True)
class Found:
    """One place of an op: the value at which its math ends, with the hazards seen there."""

    op: str
    value: Value
    hazards: frozenset[str] = frozenset()


@dataclass(eq=False)
class Unit:
    """One function of a file; `cls` where it is a method."""

    file: SourceFile
    node: FunctionNode
    cls: SourceClass | None = None
    _users: dict[int, list[Value]] = field(default_factory=dict)

    @cached_property
    def flow(self) -> Flow:
        """What it computes."""
        return self.file.flow(self.node)

    @cached_property
    def symbol(self) -> str:
        """The class for `forward` and `__call__` (and what `__init__` builds), Class.method, or the function's name."""
        if self.cls is None:
            return self.node.name
        return self.cls.name if self.node.name in _RUN_AS_CLASS else f"{self.cls.name}.{self.node.name}"

    @property
    def builds(self) -> bool:
        """Whether this is `__init__`, which computes nothing at forward time."""
        return self.cls is not None and self.node.name == "__init__"

    @property
    def runs(self) -> bool:
        """Whether this may run at forward time."""
        return not self.builds and not any(word in self.node.name for word in _NOT_FORWARD)

    def of(self, *ops: str) -> Iterator[Value]:
        """The values of these ops, in order."""
        return (value for value in self.flow.values if value.op in ops)

    def users(self, value: Value) -> list[Value]:
        """The values that take `value` as an argument."""
        if not self._users:
            for item in self.flow.values:
                for arg in (*item.args, *(item.kwargs or {}).values()):
                    self._users.setdefault(id(arg), []).append(item)
        return self._users.get(id(value), [])

    def built(self, name: str) -> Value | None:
        """What attribute `name` of the class is built as, bases included."""
        return None if self.cls is None else attribute(self.cls, name)

    def class_of(self, module: Value) -> Iterator[tuple[str, SourceClass | None]]:
        """The classes that a submodule call may reach: dotted name, and the class where it can be read."""
        held = self._held(module)
        for item in sides(held) if held is not None else ():
            if item.op == "call" and item.name:
                file = self.file if self.cls is None else self.cls.file
                yield item.name, find_class(file, item.name)

    def _held(self, module: Value) -> Value | None:
        if module.op == "module":
            return self.built(module.name)
        target = module.args[0] if module.op == "call" and module.args and not module.name else None
        while target is not None and target.op in ("getitem", "loop", "part", "call"):
            target = target.args[0] if target.args else None
        if target is not None and target.op == "attr" and target.args[0].name == "self":
            built = self.built(target.name)
            return _element(built)
        return None

    @cached_property
    def dispatched(self) -> bool:
        """Whether other code may run in place of this by default."""
        told = decorators_of(self.node) + ([] if self.cls is None else self.cls.decorators)
        if any(word in text for text in told for word in _HUB):
            return True
        return self.mentions(_BRANCHES)

    def mentions(self, words: Iterable[str]) -> bool:
        """Whether a name or attribute in the function's body holds one of `words`."""
        wanted = tuple(words)
        return any(any(word in name for word in wanted) for name in self.flow.names)

    @cached_property
    def depends_on_data(self) -> bool:
        """Whether a shape in it depends on what is in a tensor."""
        for value in self.flow.values:
            if value.op in ("nonzero", "argwhere", "masked_select", "tolist", "item"):
                return True
            if value.op == "where" and len(value.args) == 1 and not value.kwargs:
                return True
            if value.op == "getitem" and any(is_boolean(item) for item in indices(value.args[1])):
                return True
        return False


def _element(built: Value | None) -> Value | None:
    """What a ModuleList is made of."""
    if built is None or built.op != "call" or not built.name.endswith(("ModuleList", "Sequential")):
        return built
    inner = peel(built.args[0]) if built.args else None
    while inner is not None and inner.op in ("each", "tuple") and inner.args:
        inner = inner.args[0]
    return inner


_LOGIC = (
    "compare", "invert", "not", "logic", "logical_not", "logical_and", "logical_or", "and", "or", "eq", "ne", "gt", "lt",
    "ge", "le", "bool",
)  # fmt: skip


def indices(index: Value) -> tuple[Value, ...]:
    """The parts of an index."""
    return index.args if index.op == "tuple" else (index,)


def is_boolean(index: Value) -> bool:
    """Whether an index is a boolean mask: a comparison, or something that is called a mask."""
    if "mask" in named(index) and index.op != "slice":
        return True
    for side in sides(peel(index)):
        if side.op in _LOGIC or ("mask" in named(side) and side.op not in ("slice", "loop")):
            return True
        if side.op == "getitem" and "mask" in named(side.args[0]):
            return True
    return False


def named(value: Value) -> str:
    """The name that a value is known by in the source: of a parameter, attribute, or the variable it was unpacked to."""
    if (
        value.op in ("param", "attr", "global", "loop", "either", "module", "call", "call_method")
        and value.name
    ):
        return value.name
    return value.label
