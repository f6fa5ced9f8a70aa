"""From a site to a candidate: whether to replace it, how soon, and why in one sentence."""

from __future__ import annotations

import re

from fusionkit.identify.candidates import Candidate
from fusionkit.identify.dispatch import Dispatch, dispatch_of
from fusionkit.identify.head_sizes import head_sizes
from fusionkit.identify.ops import HAZARDS, fused_op
from fusionkit.identify.rulings import AGAINST, FOR, GELU_CALL, HEAD_SIZES, SDPA_CALL, Recommend, Ruling
from fusionkit.identify.scan_file import Site, place_lines
from fusionkit.identify.source.files import SourceFile

_SEVERITY: tuple[Recommend, ...] = ("no", "defer", "yes")
_LOWEST = 3
_GENERATED = re.compile(r"automatically generated from (\S*modular_\w+\.py)")
_HEADER = 1000  # characters in which a generated file names its source


def judge(site: Site, file: SourceFile, shown: str = "") -> Candidate:
    """The candidate that a site of `file` is; `shown`: the file's name in reports, its path where empty."""
    op = fused_op(site.op)
    sizes = head_sizes(site, file) if site.op == "npu_fusion_attention" else None
    also = [] if op.backward else ["training_backward"]
    if sizes is not None and (sizes.query != sizes.value or not sizes.fit):
        also.append("head_sizes")
    dispatch = dispatch_of(site, file)
    ruling = _ruling(site, file, dispatch)
    if sizes is not None and not sizes.fit and ruling.recommend == "yes":
        ruling = HEAD_SIZES
    return Candidate(
        op=site.op,
        file=shown or str(file.path),
        line=site.line,
        end_line=site.end_line,
        symbol=site.symbol,
        places=site.places,
        hazards=_ordered((*site.hazards, *also)),
        recommend=ruling.recommend,
        priority=_priority(op.priority, ruling.recommend),
        reason=ruling.reason,
        reason_zh=ruling.reason_zh,
        dispatch="" if dispatch is None else dispatch.name,
        generated_from=generated_from(file.text),
        head_sizes=() if sizes is None else (sizes.query, sizes.value),
        nth=file.nth(site.symbol.partition(".")[0], site.line),
    )


def generated_from(text: str) -> str:
    """The modular_*.py that the header of a generated file names, as it stands there; "" for other files."""
    named = _GENERATED.search(text[:_HEADER])
    return named[1] if named else ""


def _ruling(site: Site, file: SourceFile, dispatch: Dispatch | None) -> Ruling | Dispatch:
    """The most severe of what applies; among equals a hazard comes first, then who runs, then the op as such."""
    rows = [row for row in AGAINST if _applies(row, site)]
    told: list[Ruling | Dispatch] = [row for row in rows if row.hazard]
    told += [] if dispatch is None or dispatch.recommend == "yes" else [dispatch]
    told += [row for row in rows if not row.hazard]
    if site.op == "npu_gelu" and _calls(site, file, "gelu"):
        told.append(GELU_CALL)
    if site.op == "npu_fusion_attention" and _calls(site, file, "scaled_dot_product_attention("):
        told.append(SDPA_CALL)
    told += [row for row in FOR if site.op in row.ops]
    return min(told, key=lambda row: _SEVERITY.index(row.recommend))


def _applies(row: Ruling, site: Site) -> bool:
    return (not row.ops or site.op in row.ops) and (not row.hazard or row.hazard in site.hazards)


def _calls(site: Site, file: SourceFile, word: str) -> bool:
    """Whether every place is a call or construction of what has `word` in its name, and none is written out."""
    return all(word in line.lower() for line in place_lines(site, file))


def _priority(of_op: int, recommend: Recommend) -> int:
    """1 high to 3 low: what waits comes a step later, what is refused last."""
    later = {"yes": 0, "defer": 1, "no": 2}[recommend]
    return min(of_op + later, _LOWEST)


def _ordered(hazards: tuple[str, ...]) -> tuple[str, ...]:
    order = list(HAZARDS)
    return tuple(sorted(hazards, key=order.index))
