"""The commands over a subject, as scripts use them: JSON shapes, exit codes, one line per error."""

import json
from pathlib import Path

import pytest
from trial_files import write_trial

from fusionkit.cli import main

SUBJECT = "small_models:build"


@pytest.fixture(autouse=True)
def in_this_folder(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def run(capsys, *words):
    code = main(list(words))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_hits_json_has_the_shape_others_rely_on(capsys):
    code, out, _ = run(capsys, "hits", "flux", "--json")
    report = json.loads(out)
    assert code == 0
    assert {report[key] for key in ("subject", "target", "window", "dtype")} == {
        "flux",
        "cpu",
        "before-freezing",
        "bfloat16",
    }
    assert (report["graphs"], report["breaks"]) == (1, [])
    counted = {name: (e["hits"], e["expected_sites"], e["verdict"]) for name, e in report["patterns"].items()}
    assert counted == {
        "rms_norm": (12, 12, "PASS"),
        "rope": (8, 8, "PASS"),
        "ada_layer_norm": (11, 11, "PASS"),
        "gelu": (6, 6, "PASS"),
    }
    site = report["patterns"]["rms_norm"]["sites"][0]
    assert site["module"] == "transformer_blocks.0.attn.norm_q"
    assert site["source"].startswith("diffusers/")
    assert site["reason"] is None
    assert report["patterns"]["rms_norm"]["already_fused"] == report["patterns"]["rms_norm"]["skipped"] == []


def test_a_models_own_factory_and_a_lock(capsys, tmp_path):
    code, out, _ = run(capsys, "hits", SUBJECT, "--json")
    assert code == 0
    report = json.loads(out)
    assert {name: e["hits"] for name, e in report["patterns"].items()} == {"rms_norm": 1, "gelu": 1}
    lock = tmp_path / "lock.json"
    lock.write_text(out)
    assert run(capsys, "hits", SUBJECT, "--check", str(lock))[0] == 0
    report["patterns"]["rms_norm"]["sites"].append({"module": "norm2"})
    report["patterns"]["rms_norm"]["hits"] = 2
    lock.write_text(json.dumps(report))
    code, out, _ = run(capsys, "hits", SUBJECT, "--check", str(lock))
    assert code == 1
    assert "changed: rms_norm: 2 hits then, 1 now; lost norm2" in out


@pytest.mark.parametrize(
    ("patterns", "place"),
    [
        (None, "$.patterns"),
        ({"rms_norm": None}, "$.patterns['rms_norm']"),
        ({"rms_norm": {"hits": "1", "sites": []}}, "$.patterns['rms_norm'].hits"),
        ({"rms_norm": {"hits": 1, "sites": [{}]}}, "$.patterns['rms_norm'].sites[0].module"),
    ],
)
def test_a_damaged_lock_is_one_line_and_exit_2(capsys, tmp_path, patterns, place):
    lock = tmp_path / "lock.json"
    lock.write_text(json.dumps({"schema": "fusionkit.hits/1", "patterns": patterns}))
    code, out, err = run(capsys, "hits", SUBJECT, "--check", str(lock))
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert f"{lock}: not a hits JSON of schema fusionkit.hits/1; write one with" in err
    assert f"@ {place}" in err


def test_no_site_at_all_is_no_pass(capsys):
    code, out, _ = run(capsys, "hits", SUBJECT, "--patterns", "swiglu")
    assert code == 1
    assert "INCONCLUSIVE" in out


def test_hits_names_what_was_not_counted(capsys):
    code, out, _ = run(capsys, "hits", "small_models:beside_uncounted")
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert code == 0
    assert "PASS" in lines["gelu"]
    assert "INCONCLUSIVE" in lines["rms_norm"]
    assert "1 near misses where no site was counted: 1 (" in lines["rms_norm"]
    assert out.splitlines()[-1].endswith("; inconclusive: rms_norm")
    assert run(capsys, "hits", "small_models:beside_uncounted", "--strict")[0] == 1
    code, out, _ = run(capsys, "hits", "small_models:without_sites")
    assert code == 1
    assert "no site count, no match and no near miss: rms_norm, rope, swiglu, ada_layer_norm, gelu" in out


def test_capture_then_hits_and_explain_from_the_capsule(capsys, tmp_path):
    capsule = tmp_path / "small.json"
    code, out, _ = run(capsys, "capture", SUBJECT, "--out", str(capsule), "--text")
    assert code == 0
    assert "graph 0 (inference), before-freezing" in out
    assert (tmp_path / "small.0.before-freezing.txt").read_text().count("\n") > 10
    code, out, _ = run(capsys, "hits", str(capsule), "--json")
    report = json.loads(out)
    assert {name: e["hits"] for name, e in report["patterns"].items()} == {"rms_norm": 1, "gelu": 1}
    assert {e["expected_sites"] for e in report["patterns"].values()} == {
        1
    }  # the count came with the capsule
    assert code == 0
    data = json.loads(capsule.read_text())
    del data["sites"]
    (tmp_path / "old.json").write_text(json.dumps(data))
    code, out, _ = run(capsys, "hits", str(tmp_path / "old.json"), "--patterns", "rms_norm,gelu")
    assert (code, out.count("INCONCLUSIVE")) == (1, 2)  # a capsule without a count cannot pass
    code, out, _ = run(capsys, "explain", str(capsule), "--pattern", "rms_norm", "--json")
    assert [site["status"] for site in json.loads(out)["sites"]] == ["hit"]


@pytest.mark.parametrize(
    "words", [("--dtype", "float32"), ("--size", "full"), ("--decompositions", "inductor")]
)
def test_a_capsule_is_not_built_anew(capsys, tmp_path, words):
    """What a capsule was made with may be said again; anything else is refused, not ignored."""
    capsule = tmp_path / "small.json"
    assert run(capsys, "capture", SUBJECT, "--out", str(capsule))[0] == 0
    for command in (("hits",), ("explain", "--pattern", "rms_norm")):
        code, _, err = run(capsys, command[0], str(capsule), *command[1:], *words)
        assert code == 2
        assert f"give {' '.join(words)} to `fusionkit capture`" in err
        assert run(capsys, command[0], str(capsule), *command[1:], "--dtype", "bfloat16")[0] == 0


def test_explain_a_file_that_misses(capsys, tmp_path):
    trial = write_trial(tmp_path, eps="2e-6")
    code, out, _ = run(capsys, "explain", SUBJECT, "--pattern", str(trial), "--json")
    assert code == 1
    report = json.loads(out)
    assert report["answer"] == "sites"
    cause = report["sites"][0]["causes"][0]
    assert (cause["type"], cause["expected"], cause["actual"]) == (
        "scalar_literal",
        "2e-06",
        "9.999999974752427e-07",
    )
    assert set(cause) == {
        "type", "pattern_node", "graph_node", "expected", "actual", "pattern_source", "graph_source", "fix", "edit",
    }  # fmt: skip
    assert "trial_rms_norm_pattern.py:" in cause["pattern_source"]
    code, out, _ = run(capsys, "explain", SUBJECT, "--pattern", str(trial))
    assert "pattern has 2e-06, graph has 9.999999974752427e-07" in out


def test_explain_says_when_there_is_no_such_primitive(capsys):
    code, out, _ = run(capsys, "explain", SUBJECT, "--pattern", "rope", "--json")
    assert json.loads(out) == {
        "schema": "fusionkit.explain/1",
        "pattern": "rope",
        "answer": "no_such_primitive",
        "expected_sites": None,
        "verdict": "INCONCLUSIVE",
        "reason": "0 hits, but no independent site count to compare with",
        "sites": [],
        "idle": {},
    }
    assert code == 1


def test_explain_names_what_was_not_counted(capsys):
    code, out, _ = run(capsys, "explain", "small_models:hand_normed", "--pattern", "rms_norm")
    assert code == 0
    assert out.splitlines()[-1].startswith("inconclusive: rms_norm: 1 hits, but no independent site count")
    assert run(capsys, "explain", "small_models:hand_normed", "--pattern", "rms_norm", "--strict")[0] == 1
    code, out, _ = run(capsys, "explain", "small_models:beside_uncounted", "--pattern", "rms_norm", "--json")
    (near,) = [site for site in json.loads(out)["sites"] if site["status"] == "miss"]
    assert (code, near["module"], near["causes"][0]["type"]) == (1, "1", "dtype_path")


def test_numeric(capsys):
    code, out, _ = run(capsys, "numeric", SUBJECT, "--json")
    report = json.loads(out)
    assert (code, report["verdict"], len(report["sites"]["sites"])) == (0, "PASS", 2)
    assert {name: entry["verdict"] for name, entry in report["patterns"].items()} == {
        "rms_norm": "PASS",
        "gelu": "PASS",
    }


def test_numeric_replays_and_names_what_was_not_counted(capsys):
    code, out, _ = run(capsys, "numeric", "small_models:hand_normed")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "sites  PASS  1 sites replayed, each within tolerance"
    assert lines[1].startswith("  rms_norm: no counterexample in ")
    assert lines[3] == (
        "note: hits of rms_norm: INCONCLUSIVE  1 hits, but no independent site count to compare with"
    )
    assert lines[-1].endswith("; inconclusive: rms_norm")
    assert run(capsys, "numeric", "small_models:hand_normed", "--strict")[0] == 1
    assert run(capsys, "numeric", "small_models:without_sites")[0] == 1


def test_doctor(capsys):
    assert run(capsys, "doctor", "--target", "cpu")[0] == 0
    code, out, _ = run(capsys, "doctor")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()][:3] == ["cpu", "npu-dry", "npu"]
    assert run(capsys, "doctor", "--target", "npu")[0] == 2


PATTERN = """import torch
from fusionkit.patterns import PatternBase


class MyGeluPattern(PatternBase):
    name = staticmethod(lambda: "MyGeluPattern")
    inputs = staticmethod(lambda: [torch.empty(2, 8, dtype=torch.bfloat16, device="meta")])
    pattern = staticmethod(lambda x: torch.nn.functional.gelu(x, approximate="tanh"))
    replacement = staticmethod(lambda x: torch.ops.npu.npu_gelu(x, approximate="tanh"))


MyGeluPatternGroup = [MyGeluPattern]
"""


@pytest.mark.parametrize("option", ["--pattern", "--patterns", "--pattern-file"])
def test_one_option_names_patterns_and_pattern_files(capsys, tmp_path, option):
    file = tmp_path / "my_gelu_pattern.py"
    file.write_text(PATTERN)
    own = run(capsys, "hits", SUBJECT, option, str(file), "--json")[1]
    assert list(json.loads(own)["patterns"]) == ["gelu"]
    both = run(capsys, "hits", SUBJECT, option, f"{file},rms_norm", option, "gelu", "--json")[1]
    patterns = json.loads(both)["patterns"]
    assert list(patterns) == ["gelu", "rms_norm"]
    assert {site["variant"] for site in patterns["gelu"]["sites"]} <= {"MyGeluPattern"}


@pytest.mark.parametrize("alias", ["bf16", "bfloat16"])
def test_a_dtype_goes_by_its_short_name_too(capsys, alias):
    assert json.loads(run(capsys, "hits", SUBJECT, "--dtype", alias, "--json")[1])["dtype"] == "bfloat16"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["hits", "fluxx"], "fluxx"),
        (["hits", "small_models:nothing"], "nothing"),
        (["hits", "small_models:broken"], "no such size"),
        (["hits", "no_such_module:build"], "no_such_module"),
        (["hits", "nowhere.json"], "nowhere.json"),
        (["hits", SUBJECT, "--patterns", "gellu"], "unknown pattern 'gellu'"),
        (["hits", SUBJECT, "--dtype", "int4"], "int4"),
        (["hits", SUBJECT, "--target", "npu"], "target npu"),
        (["hits", SUBJECT, "--check", "nowhere.json"], "nowhere.json"),
        (["explain", SUBJECT, "--pattern", "nowhere.py"], "nowhere.py"),
        (["kernels", "load", "nowhere.csv"], "nowhere.csv"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(capsys, words, told):
    code, out, err = run(capsys, *words)
    assert code == 2
    assert out == ""
    assert len(err.splitlines()) == 1
    assert told in err


HEAD = "Device_id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us)\n"
ROWS = "0,aclnnRsqrt_Rsqrt_Rsqrt,Rsqrt,AI_VECTOR_CORE,1,2,0\n0,aclnnAdd_Add_Add,Add,AI_VECTOR_CORE,4,2,0\n"
FUSED = "0,aclnnRmsNorm_RmsNorm_RmsNorm,RmsNorm,AI_VECTOR_CORE,1,3,0\n"


def test_kernels(capsys, tmp_path):
    eager, fused = tmp_path / "eager.csv", tmp_path / "fused.csv"
    eager.write_text(HEAD + ROWS)
    fused.write_text(HEAD + FUSED)
    code, out, _ = run(capsys, "kernels", "load", str(eager), "--json")
    assert (code, json.loads(out)["rows"]) == (0, 2)
    code, out, _ = run(capsys, "kernels", "diff", str(eager), str(fused), "--json")
    diff = json.loads(out)
    assert (code, diff["new"], sorted(diff["vanished"])) == (0, ["RmsNorm"], ["Add", "Rsqrt"])
    hit = ["kernels", "hit", str(fused), "--kernel", "rms_norm", "--baseline", str(eager)]
    assert run(capsys, *hit, "--expected", "1")[0] == 0
    assert run(capsys, *hit, "--expected", "2")[0] == 1
    assert run(capsys, *hit)[0] == 1  # nothing to compare with
    assert run(capsys, "kernels", "copies", str(fused))[0] == 1
    assert run(capsys, "kernels", "copies", str(fused), "--baseline", str(eager))[0] == 0


def test_kernels_of_the_kits_own_cpu_profiles_have_counts_and_no_durations(capsys, tmp_path):
    row = "0,{0},{1},CPU,{2},{2}.5,0\n"
    eager = [
        ("aten::rsqrt", "Rsqrt"),
        ("aten::add", "Add"),
        ("aten::add", "Add"),
        ("aten::copy_", "ViewCopy"),
    ]
    fused = [("npu::npu_rms_norm", "RmsNorm"), ("aten::copy_", "ViewCopy")]
    paths = []
    for name, kernels in (("eager.csv", eager), ("fused.csv", fused)):
        paths.append(str(tmp_path / name))
        rows = [row.format(*kernel, start) for start, kernel in enumerate(kernels, 1)]
        (tmp_path / name).write_text(HEAD + "".join(rows))
    note = "note: measured on CPU: kernel counts are valid, durations are not NPU times"
    assert run(capsys, "kernels", "load", paths[0])[1].splitlines() == [
        "      2  Add", "      1  Rsqrt", "      1  ViewCopy", "4 rows, 0 unreadable rows", note,
    ]  # fmt: skip
    assert run(capsys, "kernels", "diff", *paths)[1].splitlines() == [
        "     2 -> 0            -2  aten::add",
        "     1 -> 0            -1  aten::rsqrt",
        "     0 -> 1            +1  npu::npu_rms_norm",
        "     1 -> 1            +0  aten::copy_",
        "4 kernels -> 2 kernels",
        "vanished: aten::add, aten::rsqrt; new: npu::npu_rms_norm",
        note,
    ]
    out = run(capsys, "kernels", "copies", paths[1], "--baseline", paths[0])[1]
    assert " us" not in out
    assert "     1  npu::npu_rms_norm -> ViewCopy -> " in out
    assert note in out


def test_kernels_of_an_npu_have_durations(capsys, tmp_path):
    eager, fused = tmp_path / "eager.csv", tmp_path / "fused.csv"
    eager.write_text(HEAD + ROWS)
    fused.write_text(HEAD + FUSED)
    out = run(capsys, "kernels", "diff", str(eager), str(fused))[1]
    assert "     1 -> 0                -2.00 us  Add" in out
    assert "4.00 us -> 3.00 us" in out
    assert "note:" not in out
    assert "2.00 us  Add" in run(capsys, "kernels", "load", str(eager))[1]


def test_capture_of_training_graphs(capsys, tmp_path):
    path = tmp_path / "train.json"
    code, out, _ = run(capsys, "capture", "llama", "--train", "--out", str(path))
    assert code == 0
    assert "graph 0 (forward)" in out
    assert "graph 1 (backward)" in out
