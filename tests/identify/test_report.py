"""The report of a scan: every part that is promised, in both languages, whatever the code holds."""

import dataclasses
import re

import mistune
import pytest
from identify_examples import BRANCHED, MLP, NORM, SOFTCAP, scanned

from fusionkit.errors import MisuseError
from fusionkit.identify.candidates import Failed
from fusionkit.identify.ops import OP_NAMES
from fusionkit.identify.profiled.findings import KernelSequence, ProfileFindings
from fusionkit.identify.report import language, render, report_text
from fusionkit.identify.reporting.checklist import checklist
from fusionkit.identify.reporting.materials import Rewrite, changed_files, gather_materials
from fusionkit.identify.reporting.ordering import ordered

FILES = {
    "a.py": NORM.format(name="A") + "\n\n" + MLP,
    "b.py": NORM.format(name="B"),
    "c.py": SOFTCAP + "\n\n" + BRANCHED,
}
DIFF = "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x\n+```y\n"


def rewrite(candidate):
    if candidate.op == "npu_swiglu":
        return Rewrite(refused="it is written in no form that can be replaced")
    return Rewrite(DIFF, "is_torch_npu_available()", ("one rounding step may differ",))


@pytest.fixture
def scan(tmp_path):
    return scanned(tmp_path, FILES)


def text_of(scan, lang="en", **given):
    materials = gather_materials(scan, rewrite=rewrite, **given)
    return render(materials, lang=lang, changed=changed_files(materials))


def section(text, title):
    return text.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def test_the_summary_has_every_common_op_found_or_not(scan):
    rows = [line for line in section(text_of(scan), "Summary").splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == list(OP_NAMES)
    told = {row.split("`")[1]: row for row in rows}
    assert "| recommended | 2 / 0 / 1 |" in told["npu_rms_norm"]
    assert "| not recommended | 0 / 0 / 1 |" in told["npu_fusion_attention"]
    assert "| None | None |" in told["npu_geglu"]


def test_each_candidate_has_all_its_parts(scan):
    body = section(text_of(scan), "Candidates")
    parts = re.split(r"(?m)^### \d+\. ", body)[1:]
    assert len(parts) == 4  # the norm of a.py and b.py is one decision
    for part in parts:
        for title in ("Original code", "Replacement code", "API lookup", "Reference in the repository", "Risks",
                      "Expected benefit", "Proof"):  # fmt: skip
            assert f"**{title}**" in part, (title, part[:60])
    norm = next(part for part in parts if "ARMSNorm" in part)
    assert "`b.py:6` `BRMSNorm`" in norm
    assert "return self.weight * (x * torch.rsqrt(variance + self.eps))" in norm
    assert "- Condition: `is_torch_npu_available()`" in norm
    assert "one rounding step may differ" in norm
    assert "`c.py:" in norm
    assert "under `is_torch_npu_available() and self.fused`" in norm
    assert "not tried" in norm


def test_what_is_refused_has_a_reason_and_no_code(scan):
    body = section(text_of(scan), "Candidates")
    capped = body.split("`npu_fusion_attention`: `Capped`", 1)[1]
    replacement = capped.split("**Replacement code**", 1)[1].split("**API lookup**", 1)[0]
    assert replacement.strip().startswith("None: npu_fusion_attention has no tanh soft cap")
    assert "None: it is written in no form that can be replaced" in body


def test_the_order_has_the_recommended_only_and_says_what_is_left_to_the_hand(scan):
    order = section(text_of(scan), "Suggested order")
    lines = [line for line in order.splitlines() if re.match(r"\d+\. ", line)]
    assert len(lines) == 2
    assert "(2 places)" in lines[0]  # one decision for more places stands first
    assert "by hand" not in lines[0]
    assert "`MLP`" in lines[1]
    assert "to be written by hand" in lines[1]
    assert "Capped" not in order


def test_a_profile_and_a_proof_change_the_order(scan):
    costly = KernelSequence("npu_rms_norm", ("Pows", "ReduceMean"), 9, 900.0, 0.5, "memory", "g", 450.0, 2)
    profile = ProfileFindings("k.csv", "npu", "", 1800.0, (costly,), (), {"npu_swiglu": 3})
    first = ordered((m := gather_materials(scan, profile=profile)).groups, m)[0][1].first
    assert first.op == "npu_rms_norm"
    text = text_of(scan, profile=profile)
    assert "| Pows, ReduceMean | 9 | 900.0 | 50.0% | memory (g) | 450.0 us | `npu_rms_norm`:" in text
    assert "at most about 2x" in text
    assert "`npu_swiglu` 3" in text
    assert "- the profile shows no such sequence of kernels" in text


def test_cpu_times_are_never_a_benefit(scan):
    seen = KernelSequence("npu_rms_norm", ("Pows", "ReduceMean"), 9, None, None, "unknown", "CPU", None, 2)
    profile = ProfileFindings("k.csv", "cpu", "measured on CPU", None, (seen,), (), {})
    text = text_of(scan, profile=profile)
    assert "| Pows, ReduceMean | 9 | - | - | not told (CPU) | - |" in text
    assert not re.search(r"\d us\b", text)


def test_chinese_and_english_tell_the_same_candidates(scan):
    english, chinese = (text_of(scan, lang) for lang in ("en", "zh"))
    assert chinese.startswith("# 融合算子识别报告")
    assert re.findall(r"(?m)^### .*", english) == re.findall(r"(?m)^### .*", chinese)
    assert english.split("```candidates")[1] == chinese.split("```candidates")[1]


def test_files_that_failed_are_listed_and_untick_their_box(scan):
    broken = dataclasses.replace(scan, failed=(Failed("x|y.py", "no Python:\nline 2"),))
    text = text_of(broken)
    assert "- `x|y.py`: no Python: line 2" in section(text, "Files that could not be read")
    assert [box.ticked for box in boxes(scan)][:3:2] == [True, True]
    assert [box.ticked for box in boxes(broken)][:3:2] == [True, False]


def boxes(scan, changed=(), **given):
    return checklist(gather_materials(scan, **given), changed, "en")


def test_the_checklist_is_worked_out_from_what_was_done(scan, tmp_path):
    code, profile, scanned_, repository, _, stopped, *later = boxes(scan)
    assert len(later) == 3
    assert not re.search("[\u4e00-\u9fff]", "".join(box.question + box.evidence for box in boxes(scan)))
    assert (code.ticked, scanned_.ticked, stopped.ticked) == (True, True, True)
    assert [box.ticked for box in later] == [False, False, False]
    assert not boxes(scan, ["a.py"])[5].ticked
    assert not boxes(dataclasses.replace(scan, files=0))[0].ticked
    assert not profile.ticked
    assert profile.evidence.endswith("with --profile")
    findings = ProfileFindings("kernel_details.csv", "npu", "", 1.0, (), (), {})
    given = boxes(scan, profile=findings)[1]
    assert (given.ticked, given.evidence) == (True, "profile: `kernel_details.csv`")
    assert not repository.ticked
    (tmp_path / ".git").mkdir()
    found = boxes(scan)[3]
    assert found.ticked
    assert found.evidence == f"`{tmp_path.name}`; 1 uses of torch_npu ops found"


def test_no_box_is_ticked_without_evidence_and_an_open_one_says_what_to_do(tmp_path):
    for told in (boxes(scanned(tmp_path, {})), checklist(gather_materials(scanned(tmp_path, {})), (), "zh")):
        assert not any(box.ticked for box in told)
        assert all("to do: " in box.evidence or "待办：" in box.evidence for box in told)


def test_a_file_that_changes_meanwhile_is_noticed(scan, tmp_path):
    materials = gather_materials(scan)
    assert changed_files(materials) == ()
    (tmp_path / "b.py").write_text("x = 1\n", "utf-8")
    assert changed_files(materials) == ("b.py",)
    assert "the file has changed since the scan" in text_of(scan)
    (tmp_path / "b.py").unlink()
    assert "the file cannot be read any more" in text_of(scan)


def test_code_that_holds_fences_breaks_nothing(tmp_path):
    evil = MLP.replace("        return", '        """\n```\n## Summary\n````python\n"""\n        return')
    text = text_of(scanned(tmp_path, {"a.py": evil}))
    tokens = mistune.create_markdown(renderer="ast", plugins=["table"])(text)
    titles = [
        token["children"][0]["raw"]
        for token in tokens
        if token["type"] == "heading" and token["attrs"]["level"] == 2
    ]
    assert titles == ["Summary", "Candidates", "High-frequency kernel sequences", "Suggested order",
                      "Files that could not be read", "Decision checklist", "List of candidates"]  # fmt: skip


def test_nothing_found_is_a_whole_report(tmp_path):
    text = text_of(scanned(tmp_path, {"a.py": "x = 1\n"}), "zh")
    assert "## 逐个候选分析\n\n无" in text
    assert "1. " not in text.split("## 建议顺序")[1].split("##")[0]


def test_other_languages_are_refused():
    assert language("zh") == "zh"
    with pytest.raises(MisuseError, match="reports are written in zh or en"):
        language("de")


def test_the_whole_report_writes_the_replacement_itself(tmp_path):
    text = report_text(scanned(tmp_path, {"a.py": NORM.format(name="A")}), lang="en")
    assert "npu_rms_norm(" in text
    assert "+++ b/a.py" in text
