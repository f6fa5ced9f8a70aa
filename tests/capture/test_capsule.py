import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from shared_models import ALL, compiled, small_subject

from fusionkit.capture.capsule import capsule_dict, graph_text, write_capsule
from fusionkit.capture.literals import decode, encode
from fusionkit.capture.reading import parse_size, read_capsule
from fusionkit.errors import MisuseError
from fusionkit.match.matching import match_subject
from fusionkit.passes.compiled import compile_subject
from fusionkit.store import write_json


@pytest.fixture(scope="module")
def capsule(tmp_path_factory):
    return write_capsule(compiled("flux").capture(), tmp_path_factory.mktemp("capsule") / "flux.json")


def test_round_trip_gives_the_same_bytes(capsule, tmp_path):
    again = write_capsule(read_capsule(capsule), tmp_path / "again.json")
    assert again.read_bytes() == capsule.read_bytes()


def test_matching_in_the_capsule_finds_the_same_sites(capsule):
    config = compiled("flux").config
    matches = match_subject(read_capsule(capsule), config).matches
    assert [match.to_dict() for match in matches] == [match.to_dict() for match in compiled("flux").matches]
    assert matches == compiled("flux").matches


def test_metadata_is_fake_and_complete(capsule):
    for node in read_capsule(capsule).graphs[0].nodes:
        if node.op != "output":
            assert node.meta["val"] is not None
        if isinstance(node.meta["val"], torch.Tensor):
            assert isinstance(node.meta["val"], torch._subclasses.FakeTensor)


def test_no_weight_is_written(capsule):
    assert "Parameter" not in capsule.read_text()
    assert capsule.stat().st_size < 1_000_000


def test_symbolic_sizes_travel(tmp_path):
    subject = small_subject()
    torch._dynamo.mark_dynamic(subject.inputs[0], 1)
    capture = compile_subject(subject, ALL).capture()
    path = write_capsule(capture, tmp_path / "dynamic.json")
    data = json.loads(path.read_text())
    assert list(data["symbols"].values()) == [6]
    reread = read_capsule(path)
    sizes = [n.meta["val"] for n in reread.graphs[0].nodes if isinstance(n.meta.get("val"), torch.SymInt)]
    assert sizes
    assert sizes[0].node.hint == 6
    assert {m.pattern for m in match_subject(reread, ALL).matches} == {"rms_norm", "gelu"}


def test_a_capsule_runs_nothing_and_resolves_only_ops(tmp_path, capsule):
    data = json.loads(capsule.read_text())
    call = next(node for node in data["graphs"][0]["nodes"] if node["op"] == "call_function")
    for target in ("os.system", "builtins.eval", "torch.load", "aten.mul.NoSuch", "operator.attrgetter"):
        call["target"] = target
        path = write_json(tmp_path / "bad.json", data)
        with pytest.raises(MisuseError, match=r"bad\.json"):
            read_capsule(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.pop("graphs"),
        lambda d: d.update(schema="other/1"),
        lambda d: d["graphs"][0]["nodes"][5].pop("args"),
        lambda d: d["graphs"][0]["nodes"][200].update(args=[{"node": "nobody"}]),
        lambda d: d["graphs"][0]["nodes"][0]["meta"].update(dtype="import os"),
        lambda d: d["graphs"][0]["nodes"][0]["meta"].update(shape=[{"size": "__import__('os')"}]),
    ],
)
def test_a_damaged_capsule_is_one_line(tmp_path, capsule, change):
    data = json.loads(capsule.read_text())
    change(data)
    path = write_json(tmp_path / "damaged.json", data)
    with pytest.raises(MisuseError) as caught:
        read_capsule(path)
    assert "damaged.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_op_is_defined_from_its_schema(tmp_path):
    data = capsule_dict(compile_subject(small_subject(), ALL).capture())
    node = next(n for n in data["graphs"][0]["nodes"] if n["target"] == "aten.gelu.default")
    node["target"] = "capsule_test.my_gelu.default"
    data["ops"]["capsule_test.my_gelu.default"] = (
        "capsule_test::my_gelu(Tensor x, *, str approximate='none') -> Tensor"
    )
    capture = read_capsule(write_json(tmp_path / "foreign.json", data))
    assert any("capsule_test.my_gelu.default defined from its schema" in note for note in capture.reading)


def test_text_dump_names_form_module_and_source():
    line = next(x for x in graph_text(compiled("flux").before[0]).splitlines() if x.startswith("%rsqrt "))
    assert "aten.rsqrt.default" in line
    assert "float32[1, 16, 2, 1]" in line
    assert "transformer_blocks.0.attn.norm_q diffusers/" in line


literals = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.strided, torch.device("cpu")])
    | st.complex_numbers(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(literals)
def test_literals_come_back_as_they_were(value):
    told = json.loads(json.dumps(encode(value)))
    back = decode(told, lambda name: pytest.fail(name), lambda text: pytest.fail(text))
    assert back == value
    assert type(back) is type(value)


def test_what_json_cannot_hold_is_refused():
    with pytest.raises(MisuseError, match="cannot hold an argument of type object"):
        encode(object())


@pytest.mark.parametrize(("text", "value"), [("s0", 6), ("2*s0 + 1", 13), ("(s0//4) - 1", 0), ("-s0 % 4", 2)])
def test_size_expressions(text, value):
    assert parse_size(text, {"s0": 6}) == value


@pytest.mark.parametrize("text", ["s1", "s0.real", "s0**99", "f(s0)", "[s0]", "s0 if s0 else 1", ""])
def test_size_expressions_are_not_evaluated_as_python(text):
    with pytest.raises(MisuseError):
        parse_size(text, {"s0": 6})
