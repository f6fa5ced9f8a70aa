"""The decision checklist, each box worked out from what was done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fusionkit.identify.ops import OPS
from fusionkit.identify.reporting.fences import span
from fusionkit.identify.reporting.materials import Materials
from fusionkit.identify.reporting.words import Lang
from fusionkit.identify.repository import repository_of
from fusionkit.npu.op_docs.entry import ApiEntry


@dataclass(frozen=True, slots=True)
class Box:
    """One question, whether it is answered, and the evidence for that, or what to do."""

    question: str
    ticked: bool
    evidence: str


@dataclass(frozen=True, slots=True)
class _Question:
    """A question, the evidence that answers it, and what to do as long as there is none; {} are filled in."""

    question: str
    evidence: str
    to_do: str

    def box(self, ticked: bool, facts: Mapping[str, object], joint: str) -> Box:
        told = self.evidence.format(**facts)
        return Box(self.question, ticked, told if ticked else f"{told}{joint}{self.to_do.format(**facts)}")


def checklist(materials: Materials, changed: Sequence[str], lang: Lang) -> tuple[Box, ...]:
    """The boxes. `changed`: files with candidates that are not what they were when the report was begun."""
    texts, joint = (_ZH, "；待办：") if lang == "zh" else (_EN, "; to do: ")
    facts = _facts(materials, changed)
    return tuple(
        question.box(ticks(facts), facts, joint) for question, ticks in zip(texts, _TICKS, strict=True)
    )


def checklist_lines(boxes: Sequence[Box]) -> str:
    """The boxes as a Markdown task list."""
    return "\n".join(f"- [{'x' if box.ticked else ' '}] {box.question} {box.evidence}" for box in boxes)


def _facts(materials: Materials, changed: Sequence[str]) -> dict[str, object]:
    scan, profile = materials.scan, materials.profile
    wanted = {item.op for item in scan.candidates if item.recommend != "no"}
    wanted &= {op.name for op in OPS if op.api}
    read = {op for op in wanted if isinstance(entry := materials.api.get(op), ApiEntry) and entry.package}
    repository = repository_of(Path(scan.root)) if scan.root else None
    return {
        "files": scan.files,
        "failed": len(scan.failed),
        "ops": len(OPS),
        "uses": len(scan.uses),
        "profile": "-" if profile is None else span(profile.source_name),
        "repository": "-" if repository is None else span(repository.name),
        "read": len(read),
        "wanted": len(wanted),
        "missing": ", ".join(span(op) for op in sorted(wanted - read)) or "-",
        "kept": len(materials.hashes) - len(changed),
        "changed": len(changed),
    }


# In the order of the questions; what is False of no evidence stays open.
_TICKS: tuple[Callable[[Mapping[str, object]], bool], ...] = (
    lambda facts: bool(facts["files"]),
    lambda facts: facts["profile"] != "-",
    lambda facts: bool(facts["files"]) and not facts["failed"],
    lambda facts: facts["repository"] != "-",
    lambda facts: bool(facts["wanted"]) and facts["read"] == facts["wanted"],
    lambda facts: bool(facts["kept"]) and not facts["changed"],
    *[lambda _: False] * 3,  # stage two has begun in no report of stage one
)

_EN = (
    _Question("Model code given?", "{files} files", "name files, folders or packages"),
    _Question(
        "A profile from before the replacement given?",
        "profile: {profile}",
        "profile the model as it is and give its kernel_details.csv with --profile",
    ),
    _Question(
        "Every common op scanned for?",
        "{ops} ops; {files} files read, {failed} not",
        "see the files that could not be read",
    ),
    _Question(
        "The repository searched for fused implementations?",
        "{repository}; {uses} uses of torch_npu ops found",
        "no package or checkout lies around the scanned files: scan them where they belong",
    ),
    _Question(
        "Signatures and constraints looked up, not remembered?",
        "{read} of {wanted} ops read from the wheel; not: {missing}",
        "give the torch_npu wheel with --wheel",
    ),
    _Question(
        "Stopped after stage one, no model code changed, no HTML report?",
        "{kept} files with candidates have the bytes they had, {changed} have not; this stage writes Markdown alone, and"
        " stage two refuses without a confirmation of this report",
        "scan again once nobody edits the files",
    ),
    _Question("Stage two: one by one, accuracy first, refused where accuracy fails?", "not begun", "confirm candidates"),
    _Question("Stage two: steps in JSONL, HTML report from the template?", "not begun", "confirm candidates"),
    _Question("Stage two: task record kept?", "not begun", "confirm candidates"),
)  # fmt: skip
_ZH = (
    _Question("给的是模型代码？", "{files} 个文件", "给出文件、目录或包名"),
    _Question(
        "有没有替换前的 profiling 数据？",
        "profile：{profile}",
        "对替换前的模型做 profiling，用 --profile 给出 kernel_details.csv",
    ),
    _Question(
        "常用融合算子清单逐个扫了吗？",
        "{ops} 类算子；已读 {files} 个文件，{failed} 个未能读取",
        "见未能读取的文件",
    ),
    _Question(
        "仓库内已有融合实现搜过了吗？",
        "{repository}；{uses} 处 torch_npu 算子调用",
        "所扫文件之外没有包或 git 仓库：应在其所属仓库内扫描",
    ),
    _Question(
        "API 的签名/约束是查来的而非凭记忆吗？",
        "{wanted} 个算子中 {read} 个取自 wheel；未取到：{missing}",
        "用 --wheel 给出 torch_npu 的 wheel",
    ),
    _Question(
        "阶段一之后停下来了吗（没改代码、没生成 HTML）？",
        "{kept} 个含候选的文件字节未变，{changed} 个有变化；本阶段只写 Markdown；没有对本报告的确认，阶段二拒绝执行",
        "等文件不再被编辑后重新扫描",
    ),
    _Question("阶段二逐个验证，精度优先，精度不过直接否决了吗？", "尚未开始", "确认候选"),
    _Question("阶段二逐 step 数据写进 JSONL、用模板生成 HTML 报告了吗？", "尚未开始", "确认候选"),
    _Question("阶段二过程记录跟上了吗？", "尚未开始", "确认候选"),
)
