"""The head sizes of an attention, as far as defaults of its configuration tell them."""

from __future__ import annotations

from dataclasses import dataclass

from fusionkit.identify.scan_file import Site
from fusionkit.identify.source.configurations import config_defaults
from fusionkit.identify.source.files import SourceClass, SourceFile

LARGEST = 768  # of query and key; value's may be no larger than theirs (op-plugin docs npu_fusion_attention)


@dataclass(frozen=True, slots=True)
class HeadSizes:
    """Head size of query and key, and of value."""

    query: int
    value: int

    @property
    def fit(self) -> bool:
        """Whether npu_fusion_attention takes them."""
        return 1 <= self.query <= LARGEST and self.value <= self.query


def head_sizes(site: Site, file: SourceFile) -> HeadSizes | None:
    """The sizes that the defaults beside the file give; None where they give none, or more than one."""
    cls = _attention(site, file)
    if cls is None:
        return None
    split = (_number(cls, "qk_nope_head_dim"), _number(cls, "qk_rope_head_dim"))
    latent = _number(cls, "qk_head_dim") or (split[0] + split[1] if all(split) else 0)
    query = latent or _number(cls, "head_dim") or _quotient(cls)
    return HeadSizes(query, _number(cls, "v_head_dim") or query) if query else None


def _attention(site: Site, file: SourceFile) -> SourceClass | None:
    """The class of a site; of a function, the first attention of its file."""
    cls = file.class_at(site.symbol.partition(".")[0], site.line)
    return cls or next((item for item in file.every_class if "Attention" in item.name), None)


def _number(cls: SourceClass, name: str) -> int:
    """The one default of an attribute, 0 where there is none."""
    told = set(config_defaults(cls, name))
    only = told.pop() if len(told) == 1 else ""
    return int(only) if only.isdecimal() else 0


def _quotient(cls: SourceClass) -> int:
    width, heads = _number(cls, "hidden_size"), _number(cls, "num_attention_heads")
    return width // heads if heads and width % heads == 0 else 0
