"""What a call was seen to do: which ops of torch_npu it called, and whether what they gave reaches its outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map

from fusionkit.identify.proving.traffic import Ledger

WITNESSES: dict[str, tuple[str, ...]] = {
    "npu_rms_norm": ("npu_rms_norm", "npu_gemma_rms_norm"),
    "npu_add_rms_norm": ("npu_add_rms_norm", "npu_add_rms_norm_cast"),
    "npu_swiglu": ("npu_swiglu", "npu_clipped_swiglu"),
    "npu_geglu": ("npu_geglu", "npu_gelu_mul"),
    "npu_rotary_mul": ("npu_rotary_mul", "npu_interleave_rope", "npu_apply_rotary_pos_emb"),
    "npu_fusion_attention": ("npu_fusion_attention", "npu_fusion_attention_v2", "npu_fusion_attention_v3"),
    "npu_grouped_matmul": ("npu_grouped_matmul",),
    "npu_gelu": ("npu_gelu", "npu_fast_gelu", "fast_gelu"),
    "npu_scaled_masked_softmax": ("npu_scaled_masked_softmax",),
    "NpuFusedAdamW": ("npu_apply_adam_w",),
}
"""Op of a candidate -> the ops of namespace npu of which a call says that the replacement ran. Source: the op's own
documentation, and its relatives in it (facades without one of them cannot call it). An op that is not here is replaced
by plain torch: its branch is seen by itself, as BRANCH is called there."""

BRANCH = "__fusionkit_branch__"
"""Name under which a replaced module finds what counts the runs of its new branches."""


class Branches:
    """Counts the runs of new branches of a replaced module; see BRANCH."""

    def __init__(self) -> None:
        """Start with none."""
        self.runs = 0

    def __call__(self) -> None:
        """One branch is entered."""
        self.runs += 1


class Witness(Ledger):
    """A ledger within which calls of ops of namespace npu are counted: whatever name they were called by.

    `spoil`: whether the floating results of the op's calls are changed, so that an output which they reach changes.
    """

    def __init__(self, op: str, branches: Branches, *, spoil: bool = False) -> None:
        """Watch for the replacement by `op`, whose new branches `branches` counts."""
        super().__init__()
        self.op = op
        self.calls: Counter[str] = Counter()
        self._branches, self._before, self._after = branches, 0, 0
        self._spoil = spoil

    def __enter__(self) -> Witness:
        """Watch from here on."""
        self._before = self._branches.runs
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        """Watch no longer."""
        super().__exit__(exc_type, exc_value, traceback)  # type: ignore[no-untyped-call]
        self._after = self._branches.runs

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run one operator, and note it where it is one of npu."""
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if getattr(func, "namespace", "") != "npu":
            return result
        name = func._schema.name.partition("::")[2]
        self.calls[name] += 1
        return tree_map(_spoiled, result) if self._spoil and name in WITNESSES.get(self.op, ()) else result

    @property
    def seen(self) -> int:
        """So many calls, or runs of a new branch where no op is called, say that the replacement ran."""
        if self.op in WITNESSES:
            return sum(self.calls[name] for name in WITNESSES[self.op])
        return self._after - self._before


def _spoiled(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value * -1.5 + 0.5
    return value
