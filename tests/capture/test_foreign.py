"""Reading a capsule of npu-dry in a process without torch_npu."""

import pytest
import torch
import torch.nn.functional as F
from made_capsules import OPS, dry_capsule
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from fusionkit.capture.capsule import write_capsule
from fusionkit.capture.foreign import NPU_SLOT, define_missing_ops, device_name, keep_composites, npu_device
from fusionkit.capture.reading import read_capsule
from fusionkit.errors import MisuseError
from fusionkit.npu.target import current_target, use_target
from fusionkit.store import read_json, write_json


@pytest.fixture
def capsule(tmp_path):
    return write_json(tmp_path / "dry.json", dry_capsule())


def test_every_node_is_a_fake_tensor_on_the_npus_slot(capsule):
    capture = read_capsule(capsule)
    values = [node.meta["val"] for node in capture.graphs[0].nodes]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    assert len(tensors) > 20
    assert all(isinstance(value, torch._subclasses.FakeTensor) for value in tensors)
    assert {value.device for value in tensors} == {npu_device("npu:0")}
    assert capture.target == "npu-dry"
    assert any(NPU_SLOT in note for note in capture.reading)


def test_a_dry_capsule_comes_back_as_it_was(capsule, tmp_path):
    written, again = (
        read_json(capsule),
        read_json(write_capsule(read_capsule(capsule), tmp_path / "again.json")),
    )
    assert again == written


def test_ops_come_from_the_target_where_it_has_them_and_from_their_schema_elsewhere(capsule):
    capture = read_capsule(capsule)
    assert current_target() is not None
    targets = {
        str(node.target): node.target for node in capture.graphs[0].nodes if node.op == "call_function"
    }
    assert set(OPS) <= set(targets)
    x = torch.ones(2, 4)
    assert torch.ops.npu.npu_rms_norm(x, torch.ones(4))[0].shape == (2, 4)
    with pytest.raises(NotImplementedError):
        targets["npu.npu_fusion_attention_v3.default"](x, x, x, 1, "BSH")


def test_an_op_with_another_schema_here_is_told():
    use_target("cpu")
    other = "npu::npu_rms_norm(Tensor input, Tensor gamma, float epsilon=1e-05) -> (Tensor, Tensor)"
    (note,) = define_missing_ops({"npu.npu_rms_norm.default": other})
    assert "npu.npu_rms_norm.default has another schema here" in note
    assert define_missing_ops({"npu.npu_rms_norm.default": OPS["npu.npu_rms_norm.default"]}) == []


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("capsule_test.odd.default", "capsule_test::odd(Tensr x) -> Tensor"),
        ("capsule_test.odd.default", "no schema at all"),
        ("capsule_test.odd", "capsule_test::odd(Tensor x) -> Tensor"),
        ("aten.no_such_op.default", "aten::no_such_op(Tensor x) -> Tensor"),
    ],
)
def test_an_op_that_cannot_be_defined_is_one_line(tmp_path, name, schema):
    data = dry_capsule()
    data["ops"][name] = schema
    with pytest.raises(MisuseError, match=r"^\S+bad\.json: ") as caught:
        read_capsule(write_json(tmp_path / "bad.json", data))
    assert "\n" not in str(caught.value)


def traced(fn, device):
    with FakeTensorMode(allow_non_fake_inputs=True):
        x = torch.empty(2, 4, 4, device=device)
        return {str(node.target) for node in make_fx(fn)(x).graph.nodes if node.op == "call_function"}


def nodes_of(device, *targets):
    """Nodes with a tensor on the device."""
    graph = torch.fx.Graph()
    for target in targets:
        node = graph.call_function(target) if callable(target) else graph.placeholder(target)
        with FakeTensorMode():
            node.meta["val"] = torch.empty(2, device=device)
    return graph.nodes


def test_a_composite_op_that_the_device_left_whole_is_traced_whole_on_its_slot_only():
    def linear(x):
        return F.linear(x[..., :4], x[0])

    slot, aten = npu_device("npu"), torch.ops.aten
    keep_composites(nodes_of(slot, "x", aten.matmul.default, aten.mul.Tensor, aten.matmul.default))
    assert "aten.matmul.default" in traced(linear, slot)
    keep_composites(nodes_of(slot, "x", aten.linear.default))
    assert "aten.linear.default" in traced(linear, slot)
    keep_composites(nodes_of("cpu", "x", aten.matmul.default))
    assert "aten.mm.default" in traced(linear, slot)
    keep_composites(nodes_of(slot, "x", aten.matmul.default))
    assert "aten.matmul.default" in traced(linear, slot)
    assert "aten.mm.default" in traced(linear, "cpu")
    assert torch.equal(F.linear(torch.eye(3)[None], torch.eye(3)), torch.eye(3)[None])


def test_device_names():
    assert [str(npu_device(text)) for text in ("npu", "npu:0", "npu:3")] == [
        f"{NPU_SLOT}:{i}" for i in (0, 0, 3)
    ]
    assert [device_name(torch.device(d)) for d in (f"{NPU_SLOT}:3", "cpu", "meta")] == [
        "npu:3",
        "cpu",
        "meta",
    ]
