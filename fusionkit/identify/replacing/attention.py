"""npu_fusion_attention in place of attention, written out or called."""

from __future__ import annotations

from fusionkit.identify.replacing.eager_attention import replace_eager_attention
from fusionkit.identify.replacing.library_attention import replace_library_attention
from fusionkit.identify.replacing.place import Place
from fusionkit.identify.replacing.replacement import Change


def replace_attention(place: Place) -> list[Change]:
    """The change for one attention. Raises Unfit where it does what the op does not."""
    if place.value.op in ("scaled_dot_product_attention", "call"):
        return [replace_library_attention(place)]
    return [replace_eager_attention(place)]
