"""Hand-written GraphPatternEntry objects of a file, and the check of a graph after each rewrite of any entry."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import getitem
from typing import Any, overload

import torch
import torch.fx
from torch._guards import detect_fake_mode
from torch._inductor.pattern_matcher import Match, PatternEntry, PatternMatcherPass, ReplacementPatternEntry

from fusionkit.errors import MisuseError
from fusionkit.passes.cycles import sort_if_misplaced
from fusionkit.passes.registering import PatternClass, entries_of
from fusionkit.pattern_files.time_limit import own_code

Register = Callable[[Any], Any]
Check = Callable[[Match], Any]
EntryCheck = Callable[[str, Match, Check, Check | None], bool]


class FileGroup(Sequence[PatternClass]):
    """A pattern group of a file: a sequence of pattern classes, with the functions that register graph entries.

    A group with entries only is an empty sequence. `name`: the fusion that the group implements.
    """

    def __init__(self, name: str, patterns: Sequence[PatternClass], entries: Sequence[Register]) -> None:
        self.name = name
        self.patterns = tuple(patterns)
        self.entries = tuple(entries)

    @overload
    def __getitem__(self, index: int) -> PatternClass: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[PatternClass]: ...
    def __getitem__(self, index: int | slice) -> PatternClass | Sequence[PatternClass]:
        """The class or classes at `index`."""
        return self.patterns[index]

    def __len__(self) -> int:
        """Number of classes, entries excluded."""
        return len(self.patterns)


def register_entries(register: Register, into: PatternMatcherPass, check: EntryCheck) -> int:
    """Call a file's `register` on the pass `into`; returns the number of entries.

    Each entry is replaced by a copy (the file's own objects stay unchanged) whose extra_check is
    `check(entry name, match, the entry's check, the file's part of it)`. An entry's name is that of its handler, or of
    the search function that torch's register_replacement traced: such an entry compares literals in its check, which
    calls the file's own one; of another entry there is no such part.
    Raises MisuseError when the function raises, exceeds the time limit, or registers nothing.
    """
    name = getattr(register, "__name__", "register_graph_entries")
    known = {id(entry) for entry in entries_of(into)}
    with own_code(f"{name}(pattern_pass)"):
        register(into)
    own: dict[int, PatternEntry] = {}
    for indexed in into.patterns.values():
        for index, entry in enumerate(indexed):
            if id(entry) in known:
                continue
            if not isinstance(entry, PatternEntry):
                raise MisuseError(
                    f"{name}(pattern_pass) registers {entry!r:.60}; register GraphPatternEntry objects"
                )
            if id(entry) not in own:
                own[id(entry)] = _checked_copy(entry, check)
            indexed[index] = own[id(entry)]
    if not own:
        raise MisuseError(
            f"{name}(pattern_pass) registers nothing in the pass that it is given; use"
            " GraphPatternEntry(...).register(pattern_pass)"
        )
    return len(own)


def _checked_copy(entry: PatternEntry, check: EntryCheck) -> PatternEntry:
    name = entry_name(entry)
    handler = getattr(entry, "handler", None)
    own, allowed = copy.copy(entry), entry.extra_check
    check_of_file = registered(entry).get("extra_check")
    own.extra_check = lambda match: check(name, match, allowed, check_of_file)
    if handler is not None:
        own.handler = _guarded(handler, name)  # type: ignore[attr-defined]
    return own


def entry_name(entry: PatternEntry) -> str:
    """The name of an entry's handler or search function, else of its kind."""
    function = getattr(entry, "handler", None) or registered(entry).get("search_fn")
    return str(getattr(function, "__name__", type(entry).__name__))


def registered(entry: PatternEntry) -> dict[str, Any]:
    """What torch's register_replacement made an entry of, by its names; empty for any other entry."""
    if not isinstance(entry, ReplacementPatternEntry) or not inspect.isfunction(entry.extra_check):
        return {}
    own: dict[str, Any] = dict(inspect.getclosurevars(entry.extra_check).nonlocals)
    within = own.get("allowed")  # of the copy that register_entries makes
    return dict(inspect.getclosurevars(within).nonlocals) if inspect.isfunction(within) else own


def _guarded(handler: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(handler)
    def handle(match: Match, *args: Any, **kwargs: Any) -> Any:
        with own_code(f"handler {name}"):
            return handler(match, *args, **kwargs)

    return handle


def watch_rewrites(
    matcher: PatternMatcherPass, names: dict[int, str], inserted: Callable[[Sequence[torch.fx.Node]], None]
) -> None:
    """Lint every rewrite of every entry of `matcher`; `names` maps the id of an entry to its pattern's name.

    Before that, a new node without meta["val"] gets it, where it can be computed, and the graph is sorted if torch
    inserted a replacement before its operands. `inserted` is called with the new nodes.
    """
    for entry in {id(entry): entry for entry in entries_of(matcher)}.values():
        name = names.get(id(entry), entry_name(entry))
        vars(entry)["apply"] = _linted(entry, name, inserted)


def _linted(
    entry: PatternEntry, name: str, inserted: Callable[[Sequence[torch.fx.Node]], None]
) -> Callable[..., None]:
    apply, is_replacement = entry.apply, isinstance(entry, ReplacementPatternEntry)

    def linted(match: Match, graph: torch.fx.Graph, node: torch.fx.Node) -> None:
        matched = list(match.nodes)
        with new_nodes(graph) as made:
            apply(match, graph, node)
        complete_metadata(made)
        if is_replacement:
            sort_if_misplaced(graph, made)
        inserted(made)
        lint_rewrite(graph, name, made, matched)

    return linted


def complete_metadata(nodes: Sequence[torch.fx.Node]) -> None:
    """Compute meta["val"] of the calls among `nodes` that lack it, from their operands' fake tensors.

    A handler inserts calls without metadata, at which no later pattern could match. A call whose operands lack
    metadata stays as it is.
    """
    for node in nodes:
        if node._erased or node.op != "call_function" or "val" in node.meta:
            continue
        operands = node.all_input_nodes
        if not all("val" in operand.meta for operand in operands):
            continue
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda operand: operand.meta["val"])
        mode = detect_fake_mode([operand.meta["val"] for operand in operands])
        if mode is None or not callable(node.target):
            continue
        with mode, torch.no_grad(), own_code(f"inserted node {node.name} ({node.target})"):
            node.meta["val"] = node.target(*args, **kwargs)


@contextmanager
def new_nodes(graph: torch.fx.Graph) -> Iterator[list[torch.fx.Node]]:
    """Yields a list that collects the nodes created in `graph` within the block."""
    made: list[torch.fx.Node] = []
    module = graph.owning_module
    if module is None:
        raise MisuseError(
            "a graph without a module cannot be rewritten by patterns; wrap it in a GraphModule"
        )
    module._register_create_node_hook(made.append)
    try:
        yield made
    finally:
        module._unregister_create_node_hook(made.append)


def lint_rewrite(
    graph: torch.fx.Graph, pattern: str, made: Sequence[torch.fx.Node], matched: Sequence[torch.fx.Node]
) -> None:
    """Check one rewrite: the nodes that it made and matched, with their operands and users.

    The time depends on the size of the rewrite, not of the graph. Raises MisuseError naming pattern and node when a
    node is used before its definition, reads a node that is erased or of another graph, lacks meta["val"], or has
    no users.
    """
    for node in made:
        if node._erased:
            continue
        problem = _misplaced(node, graph) or _unfinished(node)
        if problem is not None:
            raise _breach(pattern, node, problem)
    for node in matched:
        if not node._erased and _is_dead(node):
            raise _breach(pattern, node, "of the replaced chain is left without users; erase it")


def lint_graph(module: torch.fx.GraphModule, patterns: Sequence[str]) -> None:
    """torch's own lint of a whole graph, after all patterns.

    Raises MisuseError with the patterns that rewrote the graph and torch's message, which names the node.
    """
    try:
        module.graph.lint()
    except (RuntimeError, AttributeError, TypeError) as error:
        what = str(error).partition("\n")[0]
        raise MisuseError(
            f"the graph is broken after {', '.join(patterns)} rewrote it: {what}; mend what the handler inserts"
        ) from error


def _breach(pattern: str, node: torch.fx.Node, what: str) -> MisuseError:
    return MisuseError(f"pattern {pattern}: after its rewrite, node {node.name} ({node.target}) {what}")


def _misplaced(node: torch.fx.Node, graph: torch.fx.Graph) -> str | None:
    for operand in node.all_input_nodes:
        if operand.graph is not graph:
            return f"reads node {operand.name} of another graph; take the nodes from the match"
        if operand._erased:
            return f"reads node {operand.name}, which is erased; replace its uses before erasing it"
        if not operand < node:
            return f"stands before node {operand.name}, which it reads; insert it behind its operands"
    for user in node.users:
        if user._erased:
            return f"has the user {user.name}, which is erased; erase nodes with graph.erase_node"
        if not node < user:
            return f"stands behind node {user.name}, which reads it; insert it before its users"
    return None


def _unfinished(node: torch.fx.Node) -> str | None:
    if node.op != "call_function":
        return None
    if "val" not in node.meta:
        return 'has no meta["val"] (missing_meta); set it, or later patterns cannot match there'
    if _is_dead(node):
        return "has no users; let it take the place of the chain's last node (replace_all_uses_with)"
    return None


def _is_dead(node: torch.fx.Node) -> bool:
    """Whether a node is a call without users and side effects; an unused getitem is no fault."""
    return (
        node.op == "call_function"
        and not node.users
        and node.target is not getitem
        and not node.is_impure(impure_random=False)
    )
