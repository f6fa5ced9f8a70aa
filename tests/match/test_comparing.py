"""Two captures of one model side by side: ops, devices, rewrites, sites."""

import dataclasses
import json
from collections import Counter

import pytest
import torch
from made_capsules import NORM, OWN, dry_capsule, meta, ref
from shared_models import compiled, counts_of, small_subject

from fusionkit.capture.capturing import capture_graphs
from fusionkit.capture.counted import with_counts
from fusionkit.capture.reading import read_capsule
from fusionkit.errors import MisuseError
from fusionkit.match.comparing import compare_capsules, compare_captures
from fusionkit.store import write_json
from fusionkit.subjects.site_counts import expected_counts


def cpu_twin():
    """The made capsule as a cpu would have it: the first norm written out by the library."""
    data = json.loads(json.dumps(dry_capsule()).replace("npu:0", "cpu"))
    data["target"] = "cpu"
    nodes = data["graphs"][0]["nodes"]
    form, chain = {"device": "cpu"}, []
    wide, one, f32 = (
        meta(2, 8, 16) | form,
        meta(2, 8, 1, dtype="float32") | form,
        meta(2, 8, 16, dtype="float32") | form,
    )
    back = {"device": form, "dtype": {"dtype": "bfloat16"}, "layout": {"layout": "strided"}}
    rows = [
        ("l_f32", "aten._to_copy.default", [ref("x")], f32, {"dtype": {"dtype": "float32"}}),
        ("l_pow", "aten.pow.Tensor_Scalar", [ref("l_f32"), 2], f32, {}),
        ("l_mean", "aten.mean.dim", [ref("l_pow"), [2], True], one, {}),
        ("l_add", "aten.add.Scalar", [ref("l_mean"), 9.999999974752427e-07], one, {}),
        ("l_rsqrt", "aten.rsqrt.default", [ref("l_add")], one, {}),
        ("l_mul", "aten.mul.Tensor", [ref("l_f32"), ref("l_rsqrt")], f32, {}),
        ("l_gain", "aten.mul.Tensor", [ref("l_mul"), ref("g1")], f32, {}),
        ("getitem", "aten._to_copy.default", [ref("l_gain")], wide, back),
    ]
    for name, target, args, value, kwargs in rows:
        place = {"module": "norm", "source": "diffusers/models/normalization.py:554", "text": "written out"}
        call = {"name": name, "op": "call_function", "target": target, "args": args, "kwargs": kwargs}
        chain.append(call | place | {"meta": value, "users": []})
    at = [node["name"] for node in nodes].index("npu_rms_norm")
    data["graphs"][0]["nodes"] = [*nodes[:at], *chain, *nodes[at + 2 :]]
    return data


@pytest.fixture
def pair(tmp_path):
    return write_json(tmp_path / "a.json", cpu_twin()), write_json(tmp_path / "b.json", dry_capsule())


def test_ops_and_devices_that_differ_are_counted(pair):
    told = compare_capsules(*pair).to_dict()
    assert told["schema"] == "fusionkit.compare/1"
    assert (told["a"]["target"], told["b"]["target"], told["a"]["torch"]) == ("cpu", "npu-dry", "2.13.0")
    ops = {row["op"]: (row["a"], row["b"]) for row in told["ops"]}
    assert ops == {
        "aten._to_copy.default": (4, 2),
        "aten.mul.Tensor": (5, 3),
        "operator.getitem": (2, 3),
        "aten.pow.Tensor_Scalar": (2, 1),
        "aten.mean.dim": (2, 1),
        "aten.rsqrt.default": (2, 1),
        "aten.add.Scalar": (2, 1),
        "npu.npu_rms_norm.default": (0, 1),
    }
    assert [row["device"] for row in told["devices"]] == ["cpu", "npu:0"]
    assert told["graphs"] == [
        {"kind": "inference", "number": 0, "a": 34, "b": 28, "same": False, "difference": ""}
    ]
    assert told["a"]["nodes"] == 34
    json.dumps(told)


def test_what_the_library_fused_on_one_side_is_told_by_site_and_by_op(pair):
    comparison = compare_capsules(*pair)
    sites = {(site.pattern, site.module): (site.a, site.b) for site in comparison.sites}
    assert sites == {
        ("rms_norm", "norm"): ("hit", "already_fused"),
        ("rms_norm", "own"): ("hit", "hit"),
        ("swiglu", "mlp"): ("miss", "hit"),
        ("geglu", "ff"): ("already_fused", "already_fused"),
    }
    by_module = {row["module"]: row for row in comparison.site_rows()}
    assert set(by_module) == {"norm", "mlp"}
    assert by_module["norm"]["note"] == f"B: already fused by the library: {NORM[0]} calls npu_rms_norm"
    assert by_module["mlp"]["note"].endswith("graph has aten.matmul.default")
    assert comparison.sum_line() == (
        "sites: 1 hit in A, already fused in B; 1 hit in both; 1 missed in A, hit in B; 1 already fused in both"
    )
    (rewrite,) = comparison.rewrites
    assert dict(rewrite.b) == {"npu.npu_rms_norm.default": 1, "operator.getitem": 1}
    assert dict(rewrite.a)["aten.rsqrt.default"] == 1
    assert rewrite.modules == ("norm",)
    assert NORM[0] in rewrite.sources


def test_the_same_graphs(pair):
    comparison = compare_capsules(pair[0], pair[0])
    assert comparison.same
    assert comparison.ops == comparison.devices == comparison.rewrites == comparison.differing_sites == ()
    assert comparison.op_rows() == comparison.site_rows() == []
    assert len(comparison.site_rows(everything=True)) == 4


def test_names_of_nodes_make_no_difference_but_literals_do(tmp_path):
    data = dry_capsule()
    renamed = json.loads(json.dumps(data).replace('"rsqrt"', '"rsqrt_of_mine"'))
    a, b = (read_capsule(write_json(tmp_path / f"{i}.json", d)) for i, d in enumerate((data, renamed)))
    assert compare_captures(a, b).same
    node = next(node for node in renamed["graphs"][0]["nodes"] if node["name"] == "add")
    node["args"][1] = 1e-5
    comparison = compare_captures(a, read_capsule(write_json(tmp_path / "c.json", renamed)))
    assert not comparison.same
    assert comparison.ops == ()
    (graph,) = comparison.graphs
    assert graph.difference.startswith("add (aten.add.Scalar): arguments ")
    assert "1e-05" in graph.difference


def test_bfloat16_against_float32(tmp_path):
    def capture(dtype):
        subject = small_subject(dtype)
        return with_counts(capture_graphs(subject), subject.model, expected_counts(subject))

    comparison = compare_captures(capture(torch.bfloat16), capture(torch.float32))
    assert (comparison.a.dtype, comparison.b.dtype) == ("bfloat16", "float32")
    assert [row["op"] for row in comparison.op_rows()] == ["aten._to_copy.default"]
    assert {tally.name for tally in comparison.dtypes} == {"bfloat16", "float32"}
    assert Counter((site.pattern, site.a, site.b) for site in comparison.sites)["rms_norm", "hit", "hit"] == 2
    assert {(dict(r.a)["aten._to_copy.default"], r.b) for r in comparison.rewrites} <= {(1, ()), (2, ())}
    assert sum(r.places for r in comparison.rewrites) == 3
    assert {module for r in comparison.rewrites for module in r.modules} == {"norm", ""}


def test_a_whole_model_against_itself_hits_everywhere():
    capture = with_counts(
        compiled("llama", plain=True).capture(), compiled("llama").subject.model, counts_of("llama")
    )
    comparison = compare_captures(capture, capture)
    assert comparison.sum_line() == "sites: 11 hit in both"
    assert comparison.same


def test_a_side_without_a_count_is_held_against_the_others(tmp_path):
    old = dry_capsule()
    del old["sites"]
    a, b = (read_capsule(write_json(tmp_path / f"{i}.json", d)) for i, d in enumerate((dry_capsule(), old)))
    comparison = compare_captures(a, b)
    assert {site.module: (site.a, site.b) for site in comparison.sites}["own"] == ("hit", "hit")
    assert comparison.notes == ("B has no site count of rms_norm, swiglu: that of A is used",)
    next(n for n in old["graphs"][0]["nodes"] if n["name"] == "rsqrt")["target"] = "aten.sqrt.default"
    spoilt = read_capsule(write_json(tmp_path / "spoilt.json", old))
    states = {site.module: (site.a, site.b) for site in compare_captures(a, spoilt).sites}
    assert states["own"] == ("hit", "miss")
    neither = compare_captures(b, b, patterns=["rms_norm"])
    assert {site.module: site.a for site in neither.sites} == {
        "own": "hit",
        "norm": "already_fused",
        "ff": "already_fused",
    }
    assert neither.notes == ("no site count of rms_norm on either side: only matched sites are listed",)


def test_a_site_that_only_one_side_counts_is_absent_on_the_other(tmp_path):
    fewer = dry_capsule()
    fewer["sites"]["rms_norm"]["sites"] = fewer["sites"]["rms_norm"]["sites"][:1]
    a, b = (read_capsule(write_json(tmp_path / f"{i}.json", d)) for i, d in enumerate((dry_capsule(), fewer)))
    states = {site.module: site for site in compare_captures(a, b, patterns=["rms_norm"]).sites}
    assert (states["own"].a, states["own"].b) == ("hit", "hit")
    assert states["own"].note == "B: no site was counted there"
    more = dry_capsule()
    more["sites"]["rms_norm"]["sites"].append({"module": "gone", "source": OWN[0], "caller": OWN[0]})
    b = read_capsule(write_json(tmp_path / "more.json", more))
    states = {site.module: (site.a, site.b) for site in compare_captures(a, b, patterns=["rms_norm"]).sites}
    assert states["gone"] == ("absent", "miss")


def test_graphs_that_only_one_side_has(tmp_path):
    data = dry_capsule()
    data["graphs"].append(data["graphs"][0] | {"index": 1})
    a, b = (read_capsule(write_json(tmp_path / f"{i}.json", d)) for i, d in enumerate((data, dry_capsule())))
    assert [(graph.number, graph.a, graph.b) for graph in compare_captures(a, b).graphs] == [
        (0, 28, 28),
        (1, 28, None),
    ]


def test_what_cannot_be_compared_is_one_line(pair):
    a, b = (read_capsule(path) for path in pair)
    with pytest.raises(MisuseError, match="A is of subject made, B of subject flux"):
        compare_captures(a, dataclasses.replace(b, subject="flux"))
    with pytest.raises(MisuseError, match="A has no graph in window after-freezing"):
        compare_captures(a, b, window="after-freezing")
    with pytest.raises(MisuseError, match="unknown pattern 'nope'"):
        compare_captures(a, b, patterns=["nope"])
