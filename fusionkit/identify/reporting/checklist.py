"""The decision checklist, each box worked out from what was done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fusionkit.identify.ops import OPS
from fusionkit.identify.reporting.fences import span
from fusionkit.identify.reporting.materials import Materials
from fusionkit.identify.reporting.words import Lang
from fusionkit.npu.op_docs.entry import ApiEntry


@dataclass(frozen=True, slots=True)
class Box:
    """One question, whether it is answered, and the evidence for that."""

    question: str
    ticked: bool
    evidence: str


def checklist(materials: Materials, changed: Sequence[str], lang: Lang) -> tuple[Box, ...]:
    """The boxes. `changed`: files with candidates that are not what they were when the report was begun."""
    zh = lang == "zh"
    texts = _ZH if zh else _EN
    done = _stage_one(materials, changed)
    boxes = [Box(texts[name][0], ticked, texts[name][1].format(**facts)) for name, ticked, facts in done]
    boxes += [Box(question, False, texts["later"][0]) for question in texts["stage_two"]]
    return tuple(boxes)


def checklist_lines(boxes: Sequence[Box]) -> str:
    """The boxes as a Markdown task list."""
    return "\n".join(f"- [{'x' if box.ticked else ' '}] {box.question} {box.evidence}" for box in boxes)


def _stage_one(materials: Materials, changed: Sequence[str]) -> list[tuple[str, bool, Mapping[str, object]]]:
    scan, profile = materials.scan, materials.profile
    wanted = {item.op for item in scan.candidates if item.recommend != "no"}
    wanted &= {op.name for op in OPS if op.api}
    read = {op for op in wanted if isinstance(entry := materials.api.get(op), ApiEntry) and entry.package}
    missing = ", ".join(span(op) for op in sorted(wanted - read))
    given = "-" if profile is None else span(profile.source_name)
    counts = {"files": scan.files, "failed": len(scan.failed), "ops": len(OPS), "uses": len(scan.uses)}
    return [
        ("given", scan.files > 0, {**counts, "profile": given}),
        ("scanned", scan.files > 0 and not scan.failed, counts),
        ("api", not wanted - read, {"read": len(read), "wanted": len(wanted), "missing": missing or "-"}),
        ("stopped", not changed, {"kept": len(materials.hashes) - len(changed), "changed": len(changed)}),
    ]


_EN: dict[str, tuple[str, ...]] = {
    "given": (
        "Model code given? A profile from before the replacement?",
        "{files} files; profile: {profile}",
    ),
    "scanned": (
        "Every common op scanned for, and the repository for fused implementations?",
        "{ops} ops; {files} files read, {failed} not; {uses} uses of torch_npu ops in the repository",
    ),
    "api": (
        "Signatures and constraints looked up, not remembered?",
        "{read} of {wanted} ops read from the wheel; not: {missing}",
    ),
    "stopped": (
        "Stopped after stage one, no model code changed, no HTML report?",
        "{kept} files with candidates have the bytes they had, {changed} have not; stage two refuses without a"
        " confirmation of this report",
    ),
    "stage_two": (
        "Stage two: one by one, accuracy first, refused where accuracy fails?",
        "Stage two: steps in JSONL, HTML report from the template?",
        "Stage two: task record kept?",
    ),
    "later": ("not begun",),
}
_ZH: dict[str, tuple[str, ...]] = {
    "given": ("给的是模型代码？有没有替换前的 profiling 数据？", "{files} 个文件；profile：{profile}"),
    "scanned": (
        "常用融合算子清单逐个扫了吗？仓库内已有融合实现搜过了吗？",
        "{ops} 类算子；已读 {files} 个文件，{failed} 个未能读取；仓库内 {uses} 处 torch_npu 算子调用",
    ),
    "api": (
        "API 的签名/约束是查来的而非凭记忆吗？",
        "{wanted} 个算子中 {read} 个取自 wheel；未取到：{missing}",
    ),
    "stopped": (
        "阶段一之后停下来了吗（没改代码、没生成 HTML）？",
        "{kept} 个含候选的文件字节未变，{changed} 个有变化；没有对本报告的确认，阶段二拒绝执行",
    ),
    "stage_two": (
        "阶段二逐个验证，精度优先，精度不过直接否决了吗？",
        "阶段二逐 step 数据写进 JSONL、用模板生成 HTML 报告了吗？",
        "阶段二过程记录跟上了吗？",
    ),
    "later": ("尚未开始",),
}
