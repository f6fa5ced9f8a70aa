"""fusionkit compare, and the graph options, as scripts use them."""

import json
from pathlib import Path

import pytest
from made_capsules import dry_capsule

from fusionkit.cli import main
from fusionkit.store import write_json

SUBJECT = "small_models:build"


@pytest.fixture(autouse=True)
def in_this_folder(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def run(capsys, *words):
    try:
        code = main(list(words))
    except SystemExit as exit_:  # argparse
        code = exit_.code
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def dry(tmp_path):
    return write_json(tmp_path / "dry.json", dry_capsule())


@pytest.fixture
def matched(tmp_path):
    """The made capsule with its own norm spoilt: one op other, one hit less."""
    data = dry_capsule()
    node = next(node for node in data["graphs"][0]["nodes"] if node["name"] == "rsqrt")
    node["target"] = "aten.sqrt.default"
    return write_json(tmp_path / "other.json", data)


def test_a_report_in_lines(capsys, dry, matched):
    code, out, _ = run(capsys, "compare", str(dry), str(matched))
    assert code == 0
    lines = out.splitlines()
    assert lines[0].startswith("A: made tiny on npu-dry, bfloat16, before-freezing, torch 2.13.0, 28 nodes")
    assert "aten.rsqrt.default       1       0" in lines
    assert any(
        line.strip().startswith("1 x  aten.rsqrt.default -> aten.sqrt.default  at made/model.py:12")
        for line in lines
    )
    (site,) = [line for line in lines if line.startswith("rms_norm: hit -> miss  own  (B: ")]
    assert "aten.sqrt.default" in site
    assert lines[-1] == "sites: 2 already fused in both; 1 hit in A, missed in B; 1 hit in both"


def test_the_report_as_json(capsys, dry, matched):
    code, out, _ = run(capsys, "compare", str(dry), str(matched), "--patterns", "rms_norm", "--json")
    told = json.loads(out)
    assert (code, told["schema"], told["same"]) == (0, "fusionkit.compare/1", False)
    assert told["ops"] == [
        {"op": "aten.rsqrt.default", "a": 1, "b": 0},
        {"op": "aten.sqrt.default", "a": 0, "b": 1},
    ]
    assert told["devices"] == told["dtypes"] == []
    assert {(s["pattern"], s["module"], s["a"], s["b"]) for s in told["sites"]} == {
        ("rms_norm", "norm", "already_fused", "already_fused"),
        ("rms_norm", "own", "hit", "miss"),
        ("geglu", "ff", "already_fused", "already_fused"),
    }
    assert set(told["sites"][0]) == {"pattern", "module", "source", "a", "b", "note"}
    assert set(told["a"]) >= {"subject", "target", "dtype", "window", "torch"}


def test_equal_capsules_are_said_to_be_the_same(capsys, dry):
    code, out, _ = run(capsys, "compare", str(dry), str(dry))
    assert code == 0
    assert "the same graphs" in out.splitlines()


def test_what_cannot_be_compared_is_one_line_and_exit_2(capsys, dry, tmp_path):
    other = write_json(tmp_path / "o.json", dry_capsule() | {"subject": "flux"})
    for words, told in (
        ((str(dry), str(other)), "A is of subject made, B of subject flux"),
        ((str(dry), "flux"), "flux: not a capsule file; write one with `fusionkit capture flux --out ...`"),
        ((str(dry), "nowhere.json"), "nowhere.json"),
        ((str(dry), str(dry), "--patterns", "gellu"), "unknown pattern 'gellu'"),
        ((str(dry), str(dry), "--window", "after-freezing"), "A has no graph in window after-freezing"),
    ):
        code, out, err = run(capsys, "compare", *words)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert told in err


def test_hits_and_explain_of_a_dry_capsule(capsys, dry):
    code, out, _ = run(capsys, "hits", str(dry))
    assert code == 0
    assert "rms_norm  PASS  1 hits of 2 sites, 1 already fused by the library (diffusers/" in out
    code, out, _ = run(capsys, "explain", str(dry), "--pattern", "rms_norm")
    assert code == 0
    assert out.splitlines()[0] == "rms_norm: 1 hits, 1 already fused, 0 skipped, 0 missed"
    assert (
        "already fused norm (npu_rms_norm): diffusers/models/normalization.py:550 calls npu_rms_norm" in out
    )


def test_a_capsule_and_its_subject_give_one_json(capsys, tmp_path):
    capsule = tmp_path / "small.json"
    assert run(capsys, "capture", SUBJECT, "--out", str(capsule))[0] == 0
    for words in (("hits", "--json"), ("explain", "--pattern", "rms_norm", "--json")):
        direct = run(capsys, words[0], SUBJECT, *words[1:])
        assert run(capsys, words[0], str(capsule), *words[1:]) == direct
        assert direct[0] == 0


class HandedOnError(Exception):
    """Carries what a command handed on."""


@pytest.mark.parametrize(
    ("words", "target"),
    [
        (("hits", SUBJECT), "fusionkit.match.matching.compile_subject"),
        (("explain", SUBJECT, "--pattern", "rms_norm"), "fusionkit.capture.capturing.capture_graphs"),
        (("capture", SUBJECT, "--out", "x.json"), "fusionkit.capture.capturing.capture_graphs"),
    ],
)
def test_train_and_dynamic_are_handed_on(capsys, monkeypatch, words, target):
    def receive(*_, **options):
        raise HandedOnError({key: options.get(key) for key in ("train", "dynamic")})

    monkeypatch.setattr(target, receive)
    with pytest.raises(HandedOnError) as plain:
        main(list(words))
    assert plain.value.args[0] == {"train": False, "dynamic": None}
    with pytest.raises(HandedOnError) as asked:
        main([*words, "--train", "--dynamic", "x:1", "--dynamic", "0"])
    assert asked.value.args[0] == {"train": True, "dynamic": ("x:1", "0")}


@pytest.mark.parametrize("dim", ["x", "x:", ":1", "-1", "x:-1", "1.5", "a b:1", ""])
def test_a_dynamic_dim_of_another_form_is_refused(capsys, dim):
    code, _, err = run(capsys, "hits", SUBJECT, f"--dynamic={dim}")
    assert code == 2
    assert "is not of the form INPUT:DIM or DIM" in err


def test_a_capsule_takes_no_graph_options(capsys, dry):
    for option in (("--train",), ("--dynamic", "1")):
        code, _, err = run(capsys, "hits", str(dry), *option)
        assert code == 2
        assert "give --train and --dynamic to `fusionkit capture`" in err


def test_hits_in_training_graphs(capsys):
    """A norm's inner values are kept for its backward: users that keep the pattern away."""
    code, out, _ = run(capsys, "hits", SUBJECT, "--train", "--patterns", "gelu")
    assert code == 0
    assert "2 graph(s)" in out
    code, out, _ = run(capsys, "explain", SUBJECT, "--train", "--pattern", "rms_norm", "--json")
    assert code == 1
    assert "extra_user" in {cause["type"] for cause in json.loads(out)["sites"][0]["causes"]}
