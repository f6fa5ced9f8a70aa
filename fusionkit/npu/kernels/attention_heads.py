"""Conversion between every input_layout and blocks [B, N, S, D]."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fusionkit.errors import MisuseError

Tensor = torch.Tensor


def to_heads(x: Tensor, layout: str, heads: int, ends: Sequence[int] = ()) -> list[Tensor]:
    """float32 [B, N, S, D]: one block, or with TND one of B = 1 per sequence; ends are the sequences' ends in T."""
    wide = x.float()
    if layout == "TND":
        return [part.transpose(0, 1).unsqueeze(0) for part in wide.tensor_split(list(ends[:-1]))]
    if layout in ("BSH", "SBH"):
        wide = wide.unflatten(-1, (heads, -1))
    order = {"BNSD": (0, 1, 2, 3), "BSND": (0, 2, 1, 3), "BSH": (0, 2, 1, 3), "SBH": (1, 2, 0, 3)}[layout]
    return [wide.permute(order)]


def from_heads(blocks: Sequence[Tensor], layout: str, dtype: torch.dtype) -> Tensor:
    """The blocks in layout, rounded to dtype, contiguous."""
    if layout == "TND":
        return torch.cat([block.squeeze(0).transpose(0, 1) for block in blocks]).to(dtype).contiguous()
    (block,) = blocks
    order = {"BNSD": (0, 1, 2, 3), "BSND": (0, 2, 1, 3), "BSH": (0, 2, 1, 3), "SBH": (2, 0, 1, 3)}[layout]
    arranged = block.permute(order)
    return (arranged.flatten(2) if layout in ("BSH", "SBH") else arranged).to(dtype).contiguous()


def statistics(blocks: Sequence[Tensor], layout: str) -> Tensor:
    """Row statistics [B, N, S, 1] of the blocks, each value repeated eight times: [B, N, S, 8], with TND [T, N, 8]."""
    whole = from_heads(blocks, layout, torch.float32) if layout == "TND" else blocks[0]
    return whole.expand(*whole.shape[:-1], 8).contiguous()


def from_statistics(repeated: Tensor, layout: str, ends: Sequence[int] = ()) -> list[Tensor]:
    """The inverse of `statistics`: blocks [B, N, S, 1]."""
    return to_heads(repeated[..., :1], "TND" if layout == "TND" else "BNSD", repeated.shape[1], ends)


def check_ends(name: str, ends: Sequence[int], total: int) -> None:
    """Raise MisuseError unless the sequences' ends increase to total, the T of the tensor."""
    rising = all(low <= high for low, high in zip([0, *ends], ends, strict=False))
    if not rising or ends[-1] != total:
        raise MisuseError(
            f"npu_fusion_attention: {name} must hold the running sums of the lengths and end at T {total}"
            f" (no leading 0), got {list(ends)}"
        )
