"""Expressions as values: one spelling for `x ** 2`, `x.pow(2)` and `torch.square(x)`'s kin."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from fusionkit.identify.source.names import MODULE_LIKE, canonical
from fusionkit.identify.source.values import Value

_HUGE = 4000  # bits
Environment = dict[str, Value]

_BINARY = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow", ast.MatMult: "matmul",
    ast.FloorDiv: "floordiv", ast.Mod: "mod", ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor",
}  # fmt: skip
_UNARY = {ast.USub: "neg", ast.Not: "not", ast.Invert: "invert", ast.UAdd: "pos"}


class Expressions:
    """Turns expressions into values under an environment; every value made is kept in `made`, in order."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        self._modules = modules  # local name -> dotted name of what was imported
        self.made: list[Value] = []
        self.names: set[str] = set()  # every name, attribute and keyword that was met
        self.dispatch: dict[type, Callable[..., Value]] = {
            ast.Name: self._name,
            ast.Constant: self._constant,
            ast.Attribute: self._attribute,
            ast.BinOp: self._binary,
            ast.UnaryOp: self._unary,
            ast.BoolOp: self._bool,
            ast.Compare: self._compare,
            ast.Call: self._call,
            ast.Subscript: self._subscript,
            ast.IfExp: self._if,
            ast.Tuple: self._tuple,
            ast.List: self._tuple,
            ast.Starred: self._starred,
            ast.NamedExpr: self._named,
            ast.ListComp: self._comprehension,
            ast.GeneratorExp: self._comprehension,
            ast.SetComp: self._comprehension,
            ast.Slice: self._slice,
        }

    def value(self, node: ast.expr, env: Environment) -> Value:
        """The value of an expression."""
        read = self.dispatch.get(type(node))
        return self._keep(Value("opaque", node=node)) if read is None else read(node, env)

    def _keep(self, value: Value) -> Value:
        self.made.append(value)
        return value

    def _name(self, node: ast.Name, env: Environment) -> Value:
        self.names.add(node.id)
        known = env.get(node.id)
        if known is None:
            known = Value("global", name=self._modules.get(node.id, node.id), node=node)
        return known

    def _constant(self, node: ast.Constant, _: Environment) -> Value:
        is_huge = (
            type(node.value) is int and node.value.bit_length() > _HUGE
        )  # Python refuses to write it out
        return Value("const", name="huge" if is_huge else repr(node.value), node=node)

    def _attribute(self, node: ast.Attribute, env: Environment) -> Value:
        self.names.add(node.attr)
        dotted = self.dotted(node)
        if dotted is not None and (known := env.get(dotted)) is not None:
            return known
        base = self.value(node.value, env)
        if base.op == "global":
            return Value("global", name=f"{base.name}.{node.attr}", node=node)
        return self._keep(Value("attr", (base,), node.attr, node=node))

    def dotted(self, node: ast.expr) -> str | None:
        """`self.x` for an attribute of a plain name, else None."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return f"{node.value.id}.{node.attr}"
        return None

    def _binary(self, node: ast.BinOp, env: Environment) -> Value:
        op = _BINARY.get(type(node.op), "opaque")
        return self._keep(Value(op, (self.value(node.left, env), self.value(node.right, env)), node=node))

    def _unary(self, node: ast.UnaryOp, env: Environment) -> Value:
        return self._keep(Value(_UNARY[type(node.op)], (self.value(node.operand, env),), node=node))

    def _bool(self, node: ast.BoolOp, env: Environment) -> Value:
        return self._keep(Value("logic", tuple(self.value(item, env) for item in node.values), node=node))

    def _compare(self, node: ast.Compare, env: Environment) -> Value:
        sides = (self.value(node.left, env), *(self.value(item, env) for item in node.comparators))
        return self._keep(Value("compare", sides, type(node.ops[0]).__name__, node=node))

    def _if(self, node: ast.IfExp, env: Environment) -> Value:
        self.value(node.test, env)
        return self._keep(
            Value("either", (self.value(node.body, env), self.value(node.orelse, env)), node=node)
        )

    def _tuple(self, node: ast.Tuple | ast.List, env: Environment) -> Value:
        return self._keep(Value("tuple", tuple(self.value(item, env) for item in node.elts), node=node))

    def _starred(self, node: ast.Starred, env: Environment) -> Value:
        return self._keep(Value("starred", (self.value(node.value, env),), node=node))

    def _named(self, node: ast.NamedExpr, env: Environment) -> Value:
        value = self.value(node.value, env)
        env[node.target.id] = value
        return value

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp, env: Environment) -> Value:
        inner = dict(env)
        for part in node.generators:
            source = self.value(part.iter, inner)
            bind_loop(part.target, source, inner)
            for test in part.ifs:
                self.value(test, inner)
        return self._keep(Value("each", (self.value(node.elt, inner),), node=node))

    def _slice(self, node: ast.Slice, env: Environment) -> Value:
        parts = (node.lower, node.upper, node.step)
        return Value(
            "slice",
            tuple(Value("const", name="None") if p is None else self.value(p, env) for p in parts),
            node=node,
        )

    def _subscript(self, node: ast.Subscript, env: Environment) -> Value:
        base = self.value(node.value, env)
        index = self.value(node.slice, env)
        if base.op == "tuple" and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, int):
            place = node.slice.value
            if -len(base.args) <= place < len(base.args):
                return base.args[place]
        return self._keep(Value("getitem", (base, index), index_text(node.slice), node=node))

    def _call(self, node: ast.Call, env: Environment) -> Value:
        args = tuple(self.value(item, env) for item in node.args)
        kwargs = {item.arg: self.value(item.value, env) for item in node.keywords if item.arg} or None
        self.names.update(kwargs or ())
        for item in node.keywords:
            if item.arg is None:
                self.value(item.value, env)
        callee = node.func
        if isinstance(callee, ast.Attribute):
            return self._keep(self._call_of_attribute(node, callee, args, kwargs, env))
        target = self.value(callee, env)
        if target.op == "global":
            return self._keep(self._named_call(target.name, args, kwargs, node))
        return self._keep(Value("call", (target, *args), "", kwargs, node))

    def _call_of_attribute(
        self,
        node: ast.Call,
        callee: ast.Attribute,
        args: tuple[Value, ...],
        kwargs: dict[str, Value] | None,
        env: Environment,
    ) -> Value:
        base = self.value(callee.value, env)
        self.names.add(callee.attr)
        if base.op == "global":
            return self._named_call(f"{base.name}.{callee.attr}", args, kwargs, node)
        op = canonical(callee.attr)
        is_self = base.op == "param" and base.name == "self"
        if op is not None and not is_self and not _looks_like_module(callee.attr, args):
            return Value(op, (base, *args), "method", kwargs, node)
        if is_self:
            return Value("module", args, callee.attr, kwargs, node)
        return Value("call_method", (base, *args), callee.attr, kwargs, node)

    def _named_call(
        self, name: str, args: tuple[Value, ...], kwargs: dict[str, Value] | None, node: ast.Call
    ) -> Value:
        last = name.rpartition(".")[2]
        if name.startswith(("torch.", "einops.")) and (op := canonical(last)) is not None:
            return Value(op, args, "", kwargs, node)
        return Value("call", args, name, kwargs, node)


def index_text(index: ast.expr) -> str:
    """An index as text; "" for one that Python refuses to write out, such as a number of thousands of digits."""
    try:
        return ast.unparse(index)
    except ValueError:
        return ""


def _looks_like_module(name: str, args: tuple[Value, ...]) -> bool:
    """Whether `x.norm(y)` calls a submodule rather than a method of a tensor."""
    return name in MODULE_LIKE and bool(args) and args[0].op not in ("const", "neg", "global")


def bind_loop(target: ast.expr, source: Value, env: Environment) -> None:
    """Give a loop's variables the value of one element of what is looped over."""
    if isinstance(target, ast.Name):
        env[target.id] = Value("loop", (source,), target.id, node=target)
    elif isinstance(target, (ast.Tuple, ast.List)):
        is_zip = source.op == "call" and source.name == "zip" and len(source.args) == len(target.elts)
        is_numbered = source.op == "call" and source.name == "enumerate" and len(target.elts) == 2
        for place, item in enumerate(target.elts):
            of = source.args[place] if is_zip else source.args[0] if is_numbered and place else source
            bind_loop(item, of, env)
