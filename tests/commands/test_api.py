"""fusionkit api: what it prints, its JSON, and its exit codes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from op_doc_wheels import TRACE, make_doc_wheel

from fusionkit.cli import main


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    monkeypatch.setenv("FUSIONKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FUSIONKIT_TORCH_NPU_WHEEL", raising=False)
    monkeypatch.setattr(
        sys, "path", [place for place in sys.path if not (Path(place) / "torch_npu").exists()]
    )
    monkeypatch.chdir(tmp_path)
    yield make_doc_wheel(tmp_path)
    assert not list(tmp_path.rglob(TRACE))


def run(capsys, *words):
    code = main(["api", *map(str, words)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_show_prints_schema_notes_rules_and_sections_but_no_examples(capsys, wheel):
    code, out, _ = run(capsys, "show", "npu_toy_scale", "--wheel", wheel)
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "torch_npu.npu_toy_scale"
    assert lines[1].startswith("  read in torch_npu 9.8.7, torch_npu/_op_plugin_docs.py:")
    headings = [line for line in lines[1:] if not line.startswith(" ") and line and ":" not in line]
    assert headings == [
        "Schema",
        "Description",
        "Parameters",
        "Return values",
        "Constraints",
        "Supported products",
    ]
    assert lines[-1].startswith("Online document: https://gitcode.com/Ascend/op-plugin/")
    assert "out = torch_npu" not in out
    assert "out = torch_npu" in run(capsys, "show", "npu_toy_scale", "--wheel", wheel, "--examples")[1]


def test_headings_and_notes_in_chinese(capsys, wheel):
    code, out, _ = run(capsys, "show", "npu_rms_norm", "--wheel", wheel, "--lang", "zh")
    assert code == 0
    for words in (
        "fusionkit 对文档的注记",
        "接口原型",
        "功能描述",
        "恒为 float32",
        "覆盖较早的条目",
        "在线文档: ",
    ):
        assert words in out
    assert "未找到: 参数说明, 返回值说明, 约束说明, 支持的型号\n" in out
    assert "Description" not in out


def test_show_json(capsys, wheel):
    code, out, _ = run(capsys, "show", "npu_rms_norm", "--wheel", wheel, "--json")
    value = json.loads(out)
    assert code == 0
    assert (value["schema"], value["name"], value["version"]) == (
        "fusionkit.api-show/1",
        "npu_rms_norm",
        "9.8.7",
    )
    assert value["kit"]["rules"][0].keys() == {"argument", "rule", "source"}
    assert value["notes"][0].keys() == {"id", "en", "zh", "source"}
    assert value["not_found"] == ["parameters", "returns", "constraints", "products"]


def test_list_and_its_prefix(capsys, wheel):
    code, out, _ = run(capsys, "list", "--wheel", wheel, "--json")
    names = {entry["name"]: entry for entry in json.loads(out)["names"]}
    assert code == 0
    assert {"npu_rms_norm", "npu_library_only", "atb.npu_toy_cache", "optim.ToyAdam"} <= set(names)
    assert names["npu_rms_norm"] == {
        "name": "npu_rms_norm",
        "documented": True,
        "notes": 1,
        "summary": "归一化的新文档。",
    }
    assert not names["npu_library_only"]["documented"]
    code, out, _ = run(capsys, "list", "--wheel", wheel, "--prefix", "npu_toy")
    assert code == 0
    assert out.splitlines()[0].split() == [
        "npu_toy_scale",
        "Scales",
        "a",
        "tensor,",
        r"$\begin{x}$",
        "and",
        r"\begin{y}.",
    ]
    assert out.splitlines()[-1].startswith("1 names, 1 documented; torch_npu 9.8.7, ")


def test_search_and_its_limit(capsys, wheel):
    code, out, _ = run(capsys, "search", "toy", "--wheel", wheel, "--json", "--limit", "2")
    value = json.loads(out)
    assert (code, value["count"], len(value["hits"])) == (0, 4, 2)
    code, out, _ = run(capsys, "search", "toy", "--wheel", wheel, "--limit", "1")
    assert out.splitlines()[-1].startswith("4 names hold toy, 1 shown; ")
    code, out, _ = run(capsys, "search", "nowhere-to-be-found", "--wheel", wheel)
    assert (code, out.splitlines()[0][:7]) == (0, "0 names")
    assert run(capsys, "search", "toy", "--wheel", wheel, "--limit", "0")[0] == 2


def test_an_unknown_name_is_one_line_and_2(capsys, wheel):
    code, out, err = run(capsys, "show", "npu_toy_scal", "--wheel", wheel)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "near names: npu_toy_scale" in err


def test_without_a_wheel_the_kit_answers_and_says_so(capsys, wheel):
    code, out, _ = run(capsys, "show", "npu_swiglu")
    assert code == 0
    assert "npu_swiglu(Tensor input, int dim=-1) -> Tensor\n      fusionkit" in out
    assert "Not found: a torch_npu wheel or installation" in out
    assert run(capsys, "show", "npu_unheard_of")[0] == 2
    code, out, _ = run(capsys, "list", "--prefix", "npu_rms")
    assert code == 0
    assert "no torch_npu wheel or installation here" in out
    assert "https://gitcode.com/Ascend/op-plugin/tree/master/docs/zh/custom_APIs/torch_npu" in out
    assert run(capsys, "search", "swiglu")[0] == 0


@pytest.mark.parametrize("words", [["show", "npu_swiglu"], ["list"], ["search", "x"]])
def test_a_named_wheel_that_is_not_there_is_2(capsys, wheel, words):
    code, _, err = run(capsys, *words, "--wheel", "absent.whl")
    assert code == 2
    assert "absent.whl: no such wheel; --wheel names it" in err
    assert err.count("\n") == 1


def test_help_has_an_example(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["api", "--help"])
    assert caught.value.code == 0
    assert "example: fusionkit api show npu_rotary_mul" in capsys.readouterr().out
