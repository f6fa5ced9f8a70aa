"""What a function computes: its statements run over values instead of tensors, every branch taken."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fusionkit.identify.source.expressions import Environment, Expressions, bind_loop, index_text
from fusionkit.identify.source.values import Value

_TWICE = 2  # loops in loops whose body is read a second time
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Flow:
    """Every value that a function makes, in order, what it returns, and what it leaves in attributes ("self.x").

    `names`: every name, attribute and keyword of its body; `loops`: its `for` statements.
    """

    values: Sequence[Value]
    returns: Sequence[Value]
    parameters: Mapping[str, Value]
    attributes: Mapping[str, Value]
    names: frozenset[str]
    loops: Sequence[ast.For | ast.AsyncFor]


def evaluate(function: FunctionNode, modules: Mapping[str, str]) -> Flow:
    """Run `function` over values; `modules` maps its file's names to what they were imported from."""
    run = _Run(modules)
    every = (
        *function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs,
        *([function.args.vararg] if function.args.vararg else []),
        *([function.args.kwarg] if function.args.kwarg else []),
    )  # fmt: skip
    parameters = {item.arg: Value("param", name=item.arg, node=item) for item in every}
    env = dict(parameters)
    run.block(function.body, env)
    left = {name: value for name, value in env.items() if "." in name}
    names = frozenset(run.expressions.names)
    return Flow(run.expressions.made, run.returns, parameters, left, names, run.seen)


class _Run:
    def __init__(self, modules: Mapping[str, str]) -> None:
        self.expressions = Expressions(modules)
        self.returns: list[Value] = []
        self.loops = 0  # how deep in loops
        self.seen: list[ast.For | ast.AsyncFor] = []

    def value(self, node: ast.expr, env: Environment) -> Value:
        return self.expressions.value(node, env)

    def block(self, body: Sequence[ast.stmt], env: Environment) -> None:
        for statement in body:
            self.statement(statement, env)

    def statement(self, node: ast.stmt, env: Environment) -> None:
        match node:
            case ast.Assign():
                value = self.value(node.value, env)
                for target in node.targets:
                    self.assign(target, value, env)
            case ast.AnnAssign() if node.value is not None:
                self.assign(node.target, self.value(node.value, env), env)
            case ast.AugAssign():
                self.augmented(node, env)
            case ast.Return() if node.value is not None:
                self.returns.append(self.value(node.value, env))
            case ast.Expr():
                self.in_place(node.value, self.value(node.value, env), env)
            case _:
                self.compound(node, env)

    def compound(self, node: ast.stmt, env: Environment) -> None:
        """Statements that hold others."""
        match node:
            case ast.If():
                self.value(node.test, env)
                self.branches([node.body, node.orelse], env, node.test)
            case ast.For() | ast.AsyncFor():
                self.loop(node, env)
            case ast.While():
                self.value(node.test, env)
                self.branches([node.body, []], env)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    held = self.value(item.context_expr, env)
                    if item.optional_vars is not None:
                        self.assign(item.optional_vars, held, env)
                self.block(node.body, env)
            case ast.Try():
                self.block(node.body, env)
                self.branches([[], *(handler.body for handler in node.handlers)], env)
                self.block([*node.orelse, *node.finalbody], env)
            case ast.FunctionDef():
                inner = dict(env) | {a.arg: Value("param", name=a.arg, node=a) for a in node.args.args}
                self.block(node.body, inner)
            case ast.Match():
                self.value(node.subject, env)
                self.branches([case.body for case in node.cases], env)
            case _:
                pass

    def loop(self, node: ast.For | ast.AsyncFor, env: Environment) -> None:
        source = self.value(node.iter, env)
        self.loops += 1
        self.seen += [] if any(node is known for known in self.seen) else [node]
        for _ in range(2 if self.loops <= _TWICE else 1):  # what one turn leaves is what the next one finds
            turn = dict(env)
            bind_loop(node.target, source, turn)
            self.block(node.body, turn)
            self.join([env, turn], env)
        self.loops -= 1
        self.block(node.orelse, env)

    def in_place(self, node: ast.expr, value: Value, env: Environment) -> None:
        """x.masked_fill_(...) as a statement leaves its result in x."""
        called = node.func if isinstance(node, ast.Call) else None
        if (
            isinstance(called, ast.Attribute)
            and called.attr.endswith("_")
            and isinstance(called.value, ast.Name)
        ):
            env[called.value.id] = value

    def branches(
        self, bodies: Sequence[Sequence[ast.stmt]], env: Environment, test: ast.expr | None = None
    ) -> None:
        ends = []
        for body in bodies:
            branch = dict(env)
            self.block(body, branch)
            if not _leaves(body):
                ends.append(branch)
        self.join(ends or [env], env, test if len(ends) == len(bodies) else None)

    def join(self, ends: Sequence[Environment], env: Environment, test: ast.expr | None = None) -> None:
        """After branches a name holds either branch's value; `test` decides for the first, where an `if` does."""
        names = {name for end in ends for name in end}
        for name in names:
            told = list(dict.fromkeys(end[name] for end in ends if name in end))
            if len(told) == 1:
                env[name] = told[0]
            else:
                merged = Value("either", tuple(told), name, node=told[0].node if test is None else test)
                self.expressions.made.append(merged)
                env[name] = merged

    def assign(self, target: ast.expr, value: Value, env: Environment) -> None:
        if isinstance(target, ast.Name):
            value.label = value.label or target.id
            env[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            for index, item in enumerate(target.elts):
                self.assign(item, self.element(value, index, len(target.elts), item), env)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, value, env)
        elif isinstance(target, ast.Attribute):
            dotted = self.expressions.dotted(target)
            if dotted is not None:
                env[dotted] = value
        elif isinstance(target, ast.Subscript):
            self.assign_item(target, value, env)

    def assign_item(self, target: ast.Subscript, value: Value, env: Environment) -> None:
        """x[i] = v leaves in x a value of its own."""
        base, index = self.value(target.value, env), self.value(target.slice, env)
        made = Value("setitem", (base, index, value), index_text(target.slice), node=target)
        self.expressions.made.append(made)
        held = target.value
        name = held.id if isinstance(held, ast.Name) else self.expressions.dotted(held)
        if name is not None:
            env[name] = made

    def element(self, value: Value, index: int, count: int, node: ast.expr) -> Value:
        """One part of what is unpacked; a tuple's own element where it is one."""
        if value.op == "tuple" and len(value.args) == count:
            return value.args[index]
        if value.op == "each" and count > 1:  # (f(x) for x in (a, b)): the same for every part
            return value.args[0]
        made = Value("part", (value,), str(index), node=node)
        self.expressions.made.append(made)
        return made

    def augmented(self, node: ast.AugAssign, env: Environment) -> None:
        read = ast.BinOp(
            left=node.target, op=node.op, right=node.value
        )  # in either context it reads the same
        ast.copy_location(read, node)
        self.assign(node.target, self.value(read, env), env)


def _leaves(body: Sequence[ast.stmt]) -> bool:
    """Whether nothing after this block runs once it was entered."""
    return bool(body) and isinstance(body[-1], (ast.Return, ast.Raise, ast.Continue, ast.Break))
