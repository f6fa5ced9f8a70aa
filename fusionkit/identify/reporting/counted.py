"""What a proof counted, in words: op calls and bytes of both sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fusionkit.identify.proving.traffic import BOTH_WAYS, Traffic, Work
from fusionkit.identify.reporting.fences import span
from fusionkit.identify.reporting.words import Lang, say


def counted_traffic(proof: Mapping[str, Any] | None) -> list[Traffic]:
    """The traffic in the JSON form of a proof, forward first; none where nothing was counted."""
    return [] if proof is None else [Traffic.from_dict(told) for told in proof.get("traffic", ())]


def counted_ceiling(forward: Traffic, lang: Lang) -> str:
    """What the bytes of a forward call leave to gain where memory is the bound."""
    before, after = forward.original.bytes, forward.replaced.bytes
    if not forward.saves or not after:
        return say(lang, "no_ceiling", factor=after / max(before, 1))
    return say(lang, "ceiling", factor=before / after)


def traffic_lines(counted: Sequence[Traffic], lang: Lang) -> list[str]:
    """One line for each direction."""
    return [
        say(
            lang, "traffic", direction=say(lang, "training" if item.direction == BOTH_WAYS else "inference"),
            dtype=item.dtype, before=_ops(item.original), after=_ops(item.replaced), calls=item.original.calls,
            fewer=item.replaced.calls, bytes=item.original.bytes, least=item.replaced.bytes,
        )
        for item in counted
    ]  # fmt: skip


def _ops(work: Work) -> str:
    told = ", ".join(name if count == 1 else f"{count} {name}" for name, count in work.ops)
    return span(told or "-")
