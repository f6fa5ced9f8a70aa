"""Nodes as the alignment reads them: op packet, node operands and literals by their schema names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from fusionkit.match.ops import CASTS, operands, packet


class _Anything:
    """The place of an Ignored() in a hand-written entry's tree: it matches any value."""

    def __repr__(self) -> str:
        return "anything"


ANYTHING = _Anything()


@dataclass(frozen=True, slots=True)
class Call:
    """One node. `nodes`: its node operands with their labels; `literals`: its other arguments by label."""

    packet: str
    is_call: bool
    is_cast: bool
    nodes: tuple[tuple[str, torch.fx.Node], ...]
    literals: dict[str, Any]


class Calls(dict[torch.fx.Node, Call]):
    """Reads each node once; `stand_ins`: literals of the pattern's trace that stand for its scalar arguments."""

    def __init__(self, stand_ins: Iterable[float] = ()) -> None:
        super().__init__()
        self._stand_ins = tuple(stand_ins)

    def __missing__(self, node: torch.fx.Node) -> Call:
        name, is_call = packet(node), node.op == "call_function"
        named = operands(node) if is_call else {}
        self[node] = call = Call(
            packet=name,
            is_call=is_call,
            is_cast=is_call and name in CASTS,
            nodes=tuple((label, value) for label, value in named.items() if isinstance(value, torch.fx.Node)),
            literals={label: value for label, value in named.items() if not isinstance(value, torch.fx.Node)},
        )
        return call

    def stands_in(self, value: Any) -> bool:
        """Whether a literal of the pattern matches any value, as a scalar argument's stand-in or an Ignored()."""
        return value is ANYTHING or (type(value) in (int, float) and value in self._stand_ins)
