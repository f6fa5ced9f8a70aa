"""Which scores npu_fusion_attention drops: sparse modes 0 to 4. Source: op-plugin docs npu_fusion_attention."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fusionkit.errors import MisuseError
from fusionkit.npu.attention_constraints import TEMPLATE_MODES

Tensor = torch.Tensor

_FULL, _ALL, _TOP_LEFT, _BOTTOM_RIGHT, _BAND = range(5)


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
