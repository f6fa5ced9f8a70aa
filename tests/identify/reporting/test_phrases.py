"""What the library says in English, in a Chinese report: every note, refusal and reason of the code has its row."""

import ast
import dataclasses
import re
import string
from pathlib import Path

import pytest
from identify_examples import MLP, NORM, scanned

import fusionkit.identify
from fusionkit.identify.proofs import with_proof
from fusionkit.identify.proving.proof import Proof, Run
from fusionkit.identify.reading import read_source
from fusionkit.identify.report import materials_of, render
from fusionkit.identify.reporting.materials import Rewrite
from fusionkit.identify.reporting.phrases import PHRASES, has_row, in_chinese, in_words
from fusionkit.identify.written import OF_TWO_TENSORS, deferred_by_hand
from fusionkit.verdict import Verdict

IDENTIFY = Path(fusionkit.identify.__file__).parent
MODULES = [
    *sorted(IDENTIFY.glob("replacing/*.py")),
    *sorted(IDENTIFY.glob("proving/*.py")),
    *(IDENTIFY / f"{name}.py" for name in ("reading", "scan_worker", "replacements", "proofs", "written")),
]
CHINESE = re.compile(r"[\u4e00-\u9fff]")
WORD = re.compile(r"[a-z][a-z']*[,:;]?")
CODE = re.compile(r"\bis (not )?None\b|^    ")
SHOWN_ELSEWHERE = {  # not by a report: errors of a caller, words of a judgement that stand beside their Chinese
    "dtype 7: a proof runs in float32, bfloat16 or float16",
    "forward and backward",
    "proving 7, file 7 of 7",
    "wrote the replacements of 7 of 7 files",
    "the proof refuses the replacement: 7",
    "pays in training: forward alone, 7 move 7 times the bytes of the original",
    "as written it saves nothing: 7 move 7 times the bytes of the original",
    "as written it saves no op call 7: the scores are computed all the same",
    OF_TWO_TENSORS[0],
    "no replacement can be written for it: {why}",
}


def template(node):
    """The text of a constant or f-string, a 7 in each hole; a hole right behind a word is an ending that may be absent."""
    if isinstance(node, ast.Constant):
        return node.value
    text = ""
    for part in node.values:
        if isinstance(part, ast.Constant):
            text += part.value
        elif not text[-1:].isalpha():
            text += "7"
    return text


def skipped(tree):
    """Docstrings, what texts are asked for, and the parts of f-strings, which count as a whole."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Expr, ast.JoinedStr)):
            held = [node.value] if isinstance(node, ast.Expr) else ast.walk(node)
            yield from (id(item) for item in held if item is not node)
        elif isinstance(node, ast.Compare) or ast.unparse(getattr(node, "func", node)).endswith("startswith"):
            yield from map(id, ast.walk(node))


def sentences(path):
    """Texts of at least three plain words in a row: code that is written into a file has fewer."""
    tree = ast.parse(path.read_text("utf-8"))
    passed = set(skipped(tree))
    for node in ast.walk(tree):
        text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if (text or isinstance(node, ast.JoinedStr)) and id(node) not in passed:
            told = template(node).rstrip("\n")
            if sum(bool(WORD.fullmatch(word)) for word in told.split()) >= 3 and not CODE.search(told):
                yield told + "7" * told.endswith(" ")


SENTENCES = sorted({text for path in MODULES for text in sentences(path)} - SHOWN_ELSEWHERE)


def test_the_code_is_read_for_what_it_says():
    assert len(SENTENCES) > 180
    assert {"a soft cap bends the scores", "no recipe for parameter 7 of 7", "the results are kept"} <= set(
        SENTENCES
    )


def test_every_sentence_of_the_code_has_its_row():
    untold = [text for text in SENTENCES if not has_row(text)]
    parts = [part for text in untold for part in text.split("; ") if re.search("[a-z]", part)]
    assert [part for part in parts if not has_row(part)] == []


def holes(text):
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def test_rows_are_chinese_and_fill_in_what_they_were_told():
    assert [row for row, told in PHRASES.items() if holes(told) != holes(row)] == []
    plain = {"{what}, {heads} heads of {width}", "0/1 {what}", "MisuseError: {why}", "LookupError: {why}"}
    assert {row for row, told in PHRASES.items() if not CHINESE.search(told)} <= plain


def test_no_row_hides_behind_another():
    filled = {row: row.format(**dict.fromkeys(holes(row), "q")) for row in PHRASES}
    wrong = [
        row
        for row, text in filled.items()
        if in_chinese(text) != PHRASES[row].format(**dict.fromkeys(holes(row), "q"))
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        (
            "8 of 11 runs pass, 3 say nothing; float32 under autocast, plain, 4/2 heads of 16: 3 outputs pass; the largest"
            " error: gradient of w: mean error 0.48 <= 1 ulp, max error 1.7 <= 3.5 ulp, row cosine 0.9; output[1] is not"
            " returned by the fused branch",
            "11 个用例中 8 个通过，3 个无法说明问题；autocast 下的 float32，基本调用，4/2 个头，每头 16：3 个输出通过；"
            "误差最大者：w 的梯度：平均误差 0.48 ulp（上限 1），最大误差 1.7 ulp（上限 3.5），行余弦 0.9；"
            "融合分支不返回 output[1]",
        ),
        (
            "output: mean error 3 ulp exceeds 2 (2 x the original's, here 1; at least 1); no float64 reference (E: a; b)",
            "output：平均误差 3 ulp 超过上限 2（原代码误差的 2 倍，此处原代码为 1；至少 1）；没有 float64 参考（E: a; b）",
        ),
        (
            "3 of 9 runs fail; bfloat16, additive causal mask, 4/1 heads of 32: the replaced code raises E: a; b, the"
            " original does not",
            "9 个用例中 3 个不通过；bfloat16，加性 causal mask，4/1 个头，每头 32：替换代码抛出 E: a; b，原代码不抛出",
        ),
        ("time limit reached: 9 s while the replaced code runs", "达到时间上限 9 s，当时正在运行替换代码"),
        ("no replacement: the file does not import torch", "无替换代码：文件没有 import torch"),
        (
            "asks the existing switch config.x (a.py:3; no torch_npu call stands under it yet)",
            "沿用已有开关 config.x（a.py:3；其下尚无 torch_npu 调用）",
        ),
        ("q and k changes before the fused op is called", "q、k 在调用融合算子之前有变化"),
        ("no such words; nothing to call", "no such words; 没有可调用的对象"),
    ],
)
def test_parts_and_holes_are_translated_each(english, chinese):
    assert in_chinese(english) == chinese
    assert in_words("en", english) == english


def test_the_chinese_report_tells_notes_refusals_and_proofs_in_chinese(tmp_path):
    scan = scanned(tmp_path, {"a.py": NORM.format(name="A") + "\n\n" + MLP})
    here = "the replaced code makes no call of npu_rms_norm here"
    run = Run(
        Verdict.INCONCLUSIVE, here, "float32", False, False, "with gate, 4/2 heads of 16", {"x": [2, 3]}
    )
    proof = Proof("o", "a.py", "A", Verdict.INCONCLUSIVE, f"no run in float32 passes: {here}", (run,))
    proved = dataclasses.replace(scan, candidates=tuple(with_proof(item, proof) for item in scan.candidates))
    materials = materials_of(proved)
    gate = next(item.id for item in scan.candidates if item.op == "npu_swiglu")
    refused = Rewrite(refused="the activation stands nowhere")
    text = render(dataclasses.replace(materials, rewrites={**materials.rewrites, gate: refused}), lang="zh")
    assert "- 核对要点: 算子只舍入一次" in text
    assert "无：代码中找不到激活函数的位置" in text
    assert "**INCONCLUSIVE**: 没有 float32 用例通过：此用例中替换代码没有调用 npu_rms_norm" in text
    assert (
        "| float32; 带 gate，4/2 个头，每头 16; 前向; x (2, 3) | - / - | INCONCLUSIVE | 此用例中替换代码没有调用"
        in text
    )
    assert [line for line in text.splitlines() if "rounds once" in line or here in line] == []


def test_a_judgement_gives_its_chinese_reason_in_chinese_throughout(tmp_path):
    norm = scanned(tmp_path, {"a.py": NORM.format(name="A")}).candidates[0]
    failed = with_proof(
        norm, Proof("o", "a.py", "A", Verdict.FAIL, "output: cosine 0.1 of row 3 is below 0.9")
    )
    assert failed.reason_zh == "验证不通过：output：第 3 行的余弦 0.1 低于 0.9"
    assert failed.reason.endswith("cosine 0.1 of row 3 is below 0.9")
    source = "class A:\n    def forward(self, x):\n        return x\n"
    (tmp_path / "b.py").write_text(source, "utf-8")
    by_hand = deferred_by_hand(norm, read_source(tmp_path / "b.py"))
    assert by_hand.reason_zh == "写不出替换代码：没有再次找到该处代码"
