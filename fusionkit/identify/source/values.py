"""What an expression of the source computes: a graph of values, spelled the same way however the source spells it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator


class Value:
    """One value: `op` applied to `args`.

    `op` is a tensor op in torch's own word ("mul", "rsqrt", "softmax", ...) or one of: "param", "const", "attr",
    "getitem", "setitem", "call", "module" (a call of a submodule, `name` says which), "either" (a value that depends
    on a branch; with two arguments and an expression as `node`, that expression chooses the first), "tuple", "loop"
    (what a loop variable holds), "opaque". `name` holds what the op alone does not say: the name of a parameter,
    attribute or callee, the text of a constant or of an index. `node`: where it stands.
    """

    __slots__ = ("args", "kwargs", "label", "name", "node", "op")

    def __init__(
        self,
        op: str,
        args: tuple[Value, ...] = (),
        name: str = "",
        kwargs: dict[str, Value] | None = None,
        node: ast.AST | None = None,
    ) -> None:
        self.op = op
        self.args = args
        self.name = name
        self.kwargs = kwargs
        self.node = node
        self.label = ""  # the variable that it was first bound to

    def __repr__(self) -> str:
        return self.told(3)

    def told(self, depth: int) -> str:
        """The value as text, `depth` levels of arguments deep: values are shared, so that the whole has no end."""
        name = f"{self.op}:{self.name}" if self.name else self.op
        if not self.args:
            return name
        return f"{name}({', '.join(arg.told(depth - 1) for arg in self.args) if depth else '...'})"

    def arg(self, index: int, keyword: str = "") -> Value | None:
        """The positional argument at `index`, or the one named `keyword`; None where neither was given."""
        if index < len(self.args):
            return self.args[index]
        return (self.kwargs or {}).get(keyword)

    @property
    def line(self) -> int:
        """The line that it stands in; 0 where it stands nowhere."""
        return getattr(self.node, "lineno", 0)

    def number(self) -> float | None:
        """The value of a numeric constant, else None."""
        if self.op == "neg" and self.args:
            inner = self.args[0].number()
            return None if inner is None else -inner
        if self.op != "const":
            return None
        value = getattr(self.node, "value", None)
        return None if isinstance(value, (bool, str)) or not isinstance(value, (int, float)) else value


# Ops that change the form or the dtype of a tensor, and no number of it (up to rounding).
CASTS = frozenset({"to", "float", "half", "bfloat16", "type", "type_as", "double"})
FORMS = frozenset(
    {
        "view", "reshape", "contiguous", "unsqueeze", "squeeze", "expand", "expand_as", "flatten", "unflatten",
        "transpose", "permute", "movedim", "clone", "detach", "view_as", "reshape_as", "swapaxes", "broadcast_to", "t",
    }
)  # fmt: skip
PASSED = CASTS | FORMS


def peel(value: Value, ops: frozenset[str] = PASSED) -> Value:
    """What stands behind casts and changes of form."""
    while value.op in ops and value.args:
        value = value.args[0]
    return value


def sides(value: Value) -> Iterator[Value]:
    """The value, or where it depends on branches, what each branch gives; each once."""
    front, seen = [value], {id(value)}
    while front:
        item = front.pop(0)
        if item.op != "either":
            yield item
            continue
        fresh = [arg for arg in item.args if id(arg) not in seen]
        seen.update(id(arg) for arg in fresh)
        front = fresh + front


def factors(value: Value, ops: frozenset[str] = PASSED) -> list[Value]:
    """The factors of a product, each once, casts and changes of form between them passed over."""
    front, seen, found = [value], set[int](), []
    while front:
        item = peel(front.pop(0), ops)
        if id(item) in seen:
            continue
        seen.add(id(item))
        if item.op == "mul":
            front = [*item.args, *front]
        else:
            found.append(item)
    return found


def behind(
    value: Value, depth: int, enters: Callable[[Value], bool] = lambda _: True, *, keywords: bool = False
) -> Iterator[Value]:
    """`value` and what it is made of, nearest first, each once, fewer than `depth` steps away.

    `enters` says whether what an item is made of is looked at; `keywords`: its keyword arguments as well.
    """
    front, seen = [value], {id(value)}
    for _ in range(depth):
        below: list[Value] = []
        for item in front:
            yield item
            if enters(item):
                operands = (*item.args, *item.kwargs.values()) if keywords and item.kwargs else item.args
                fresh = [operand for operand in dict.fromkeys(operands) if id(operand) not in seen]
                seen.update(map(id, fresh))
                below += fresh
        front = below


def find(value: Value, wanted: Callable[[Value], bool], depth: int = 12) -> Value | None:
    """The nearest of `value` and what it is made of that is `wanted`, fewer than `depth` steps away."""
    return next((item for item in behind(value, depth, keywords=True) if wanted(item)), None)
