"""Blocks [B, N, S, D] of npu_fusion_attention: from and to every input_layout, and the scores that it drops.

Source: op-plugin docs npu_fusion_attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from fusionkit.errors import MisuseError
from fusionkit.npu.attention_constraints import TEMPLATE_MODES

Tensor = torch.Tensor

_FULL, _ALL, _TOP_LEFT, _BOTTOM_RIGHT, _BAND = range(5)


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
    whole = from_heads(blocks, "TND" if layout == "TND" else "BNSD", torch.float32)
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


@dataclass(frozen=True, slots=True)
class Masking:
    """The mask arguments of one call. True (or 1) in atten_mask drops a score, in every mode.

    Modes 0 and 1 take a full mask; in mode 0 pre_tockens and next_tockens must not drop more than the mask. Modes 2
    to 4 take a template of [2048, 2048] for any S: 2 is causal from the top left corner, 3 causal from the bottom
    right one, 4 the band from pre_tockens before to next_tockens after the diagonal through the bottom right.
    Without atten_mask nothing is dropped in any mode.
    """

    atten_mask: Tensor | None
    sparse_mode: int
    pre_tockens: int
    next_tockens: int
    inner_precise: int

    @property
    def zeroes_masked_rows(self) -> bool:
        """Whether a row with all scores dropped gives 0; else all its scores are equal, and it gives the mean of value."""
        return self.inner_precise == 2 or self.sparse_mode in (_BOTTOM_RIGHT, _BAND)

    def dropped(self, queries: int, keys: int) -> Tensor | None:
        """True for dropped scores, broadcastable to [B, N, queries, keys]; None if none is dropped.

        Raises MisuseError for modes 5 to 8, for a template with wrong values, for a mask smaller than a packed
        sequence, and for tokens that drop scores which the mask keeps.
        """
        if self.atten_mask is None:
            return None
        if self.sparse_mode > _BAND:
            raise MisuseError(
                f"npu_fusion_attention: target cpu computes sparse modes 0 to 4, not {self.sparse_mode};"
                " pass the whole mask with sparse_mode=1"
            )
        if self.sparse_mode in TEMPLATE_MODES:
            self._check_template(self.atten_mask)
            return self._outside(queries, keys, keys - queries)
        mask = self.atten_mask[..., :queries, :keys] != 0
        if mask.shape[-2:] != (queries, keys):
            raise MisuseError(
                f"npu_fusion_attention: atten_mask {list(self.atten_mask.shape)} is too small for a sequence of"
                f" {queries} queries and {keys} keys"
            )
        self._check_tokens(mask, queries, keys)
        return mask

    def _outside(self, queries: int, keys: int, corner: int) -> Tensor:
        """True outside the mode's band; corner moves its origin from the top left to the bottom right."""
        ahead = torch.arange(keys) - torch.arange(queries).unsqueeze(-1)  # of the key before the query
        if self.sparse_mode == _TOP_LEFT:
            return ahead > 0
        if self.sparse_mode == _BOTTOM_RIGHT:
            return ahead > corner
        return (ahead > corner + self.next_tockens) | (ahead < corner - self.pre_tockens)

    def _check_template(self, template: Tensor) -> None:
        if not torch.equal(template != 0, torch.ones_like(template, dtype=torch.bool).triu(1)):
            raise MisuseError(
                f"npu_fusion_attention: atten_mask of sparse_mode {self.sparse_mode} must be"
                " torch.triu(torch.ones(2048, 2048), 1): True, which drops, above the diagonal only"
            )

    def _check_tokens(self, mask: Tensor, queries: int, keys: int) -> None:
        narrow = self.pre_tockens < queries or self.next_tockens < keys
        if self.sparse_mode == _FULL and narrow and bool((self._outside(queries, keys, 0) & ~mask).any()):
            raise MisuseError(
                f"npu_fusion_attention: pre_tockens {self.pre_tockens} and next_tockens {self.next_tockens}"
                " cut off scores that atten_mask keeps; leave them at their defaults or use sparse_mode=1"
            )
