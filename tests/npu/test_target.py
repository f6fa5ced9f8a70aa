"""Choosing a target, the facade, and the module that stands in for torch_npu."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import types
from typing import Any

import pytest
import torch

import fusionkit.npu
from fusionkit.config import TARGETS
from fusionkit.errors import MisuseError
from fusionkit.npu import facade as facade_module
from fusionkit.npu.facade import FACADE_OPS, TorchNpu, standing_in, torch_npu_module
from fusionkit.npu.target import (
    DEVICES,
    current_device,
    current_facade,
    current_target,
    shows_values,
    use_target,
)

FRESH_PROCESS = """
import json, sys
import fusionkit.npu
seen = {"torch": "torch" in sys.modules}
import torch, fusionkit.npu.constraints
from fusionkit.errors import MisuseError
from fusionkit.npu.target import current_device, current_target, shows_values, use_target

def choose(name):
    try:
        facade = use_target(name) if name else fusionkit.npu.torch_npu
        return list(facade.npu_swiglu(torch.zeros(2, 4)).shape)
    except MisuseError as error:
        return [str(error), current_target(), hasattr(torch.ops.npu, "npu_rms_norm")]

seen["early"] = choose(None)
seen["device"] = [current_device(), shows_values(current_target())]
other = torch.library.Library("npu", "FRAGMENT")
other.define("npu_swiglu(Tensor self, int dim=-1) -> Tensor")
seen["taken"] = [choose(name) for name in ("cpu", "npu-dry", "npu")]
seen["schema"] = str(torch.ops.npu.npu_swiglu.default._schema)
other._destroy()
late = torch.library.Library("fusionkit", "FRAGMENT")
late.define("layer_norm_scale_shift(Tensor x) -> Tensor")
seen["halfway"] = choose("cpu")
late._destroy()
graph = torch.library.Library("npu", "FRAGMENT")
graph.define("npu_fusion_attention_v3(Tensor query) -> Tensor")
seen["beside"] = choose("cpu")
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def fresh() -> dict[str, Any]:
    """What a process of its own sees, step by step."""
    command = [sys.executable, "-c", FRESH_PROCESS]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def test_the_same_target_again_gives_the_same_facade(npu: TorchNpu) -> None:
    assert use_target("cpu") is npu
    assert current_target() == "cpu"
    assert fusionkit.npu.torch_npu is npu


@pytest.mark.parametrize("name", ["npu-dry", "npu"])
def test_a_second_target_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(MisuseError) as caught:
        use_target(name)
    text = f"target {name}: this process runs target cpu already; one target per process, start another one"
    assert str(caught.value) == text
    assert current_target() == "cpu"


def test_the_device_of_target_cpu(npu: TorchNpu) -> None:
    assert current_facade() is npu
    assert current_device() == "cpu"


@pytest.mark.parametrize(
    ("target", "values"), [("cpu", True), (None, True), ("npu-dry", False), ("npu", True)]
)
def test_which_targets_show_values(target: str | None, values: bool) -> None:
    assert shows_values(target) is values
    assert set(DEVICES) == set(TARGETS)


def test_an_unknown_target_names_the_known_ones() -> None:
    with pytest.raises(MisuseError, match=r"target 'gpu' is unknown; choose one of cpu, npu-dry, npu"):
        use_target("gpu")


def test_nothing_is_defined_before_a_target_is_chosen(fresh: dict[str, Any]) -> None:
    assert fresh["torch"] is False
    text = "no target is chosen in this process; call fusionkit.use_target('cpu') first"
    assert fresh["early"] == [text, None, False]
    assert fresh["device"] == ["cpu", True]


def test_ops_that_exist_already_are_refused_and_left_alone(fresh: dict[str, Any]) -> None:
    assert [said[1:] for said in fresh["taken"]] == [[None, False]] * 3
    assert [said[0] for said in fresh["taken"]] == [
        "target cpu: npu::npu_swiglu exists already in this process (another package defined it); start a new"
        " process and choose the target before anything else",
        *(
            f"target {name}: npu::npu_swiglu is defined in this process already, and torch_npu cannot be imported"
            " beside it; start a new process and choose the target first"
            for name in ("npu-dry", "npu")
        ),
    ]
    assert fresh["schema"] == "npu::npu_swiglu(Tensor self, int dim=-1) -> Tensor"


def test_a_failure_halfway_leaves_nothing_defined(fresh: dict[str, Any]) -> None:
    text, target, defined = fresh["halfway"]
    assert text.startswith("target cpu: the dispatcher refuses an op (")
    assert text.endswith("; start a new process")
    assert "\n" not in text
    assert (target, defined) == (None, False)


def test_other_npu_ops_in_the_process_do_not_disturb(fresh: dict[str, Any]) -> None:
    assert fresh["beside"] == [2, 2]


def test_the_facade_has_the_ops_and_says_what_it_has(npu: TorchNpu) -> None:
    expected = [
        "npu_rms_norm",
        "npu_add_rms_norm",
        "npu_rotary_mul",
        "npu_swiglu",
        "npu_gelu",
        "npu_fast_gelu",
    ]
    later = [
        "_npu_dtype_cast",
        "npu_geglu",
        "npu_scaled_masked_softmax",
        "npu_fusion_attention",
        "npu_grouped_matmul",
        "npu_moe_token_permute",
        "npu_moe_token_unpermute",
        "_npu_moe_token_unpermute",
    ]
    assert list(FACADE_OPS) == [*expected, *later]
    assert all(getattr(npu, name) is getattr(torch.ops.npu, name) for name in FACADE_OPS)
    assert npu.npu.is_available() is False
    assert dir(npu) == sorted(["npu", *FACADE_OPS])
    with pytest.raises(
        AttributeError, match=r"has no 'npu_clipped_swiglu'; it has npu and npu_rms_norm, .*npu_swiglu"
    ):
        _ = npu.npu_clipped_swiglu


def test_torch_npu_stands_in_only_inside_the_with(npu: TorchNpu) -> None:
    assert sys.modules.get("torch_npu") is None
    assert not hasattr(torch, "npu")
    with standing_in(npu) as module:
        imported = importlib.import_module("torch_npu")
        assert imported is module
        assert imported.npu_rms_norm is torch.ops.npu.npu_rms_norm
        assert imported.npu.is_available() is True
        assert torch.npu.is_available() is True  # type: ignore[attr-defined]
        assert importlib.util.find_spec("torch_npu") is module.__spec__
        with pytest.raises(AttributeError, match="npu_clipped_swiglu"):
            _ = imported.npu_clipped_swiglu
    assert sys.modules.get("torch_npu") is None
    assert not hasattr(torch, "npu")
    assert imported.npu_swiglu(torch.zeros(2, 4)).shape == (2, 2)  # a file that was imported keeps it


def test_what_was_there_comes_back_also_after_an_error(
    npu: TorchNpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, device = types.ModuleType("torch_npu"), object()
    monkeypatch.setitem(sys.modules, "torch_npu", before)
    monkeypatch.setattr(torch, "npu", device, raising=False)

    def fail() -> None:
        with standing_in(npu, available=False) as module:
            assert sys.modules["torch_npu"] is module
            assert torch.npu.is_available() is False  # type: ignore[attr-defined]
            raise OSError("pattern file")

    with pytest.raises(OSError, match="pattern file"):
        fail()
    assert sys.modules["torch_npu"] is before
    assert torch.npu is device  # type: ignore[attr-defined]


def test_the_module_has_a_spec_so_that_libraries_can_look_for_it(npu: TorchNpu) -> None:
    module = torch_npu_module(npu, available=True)
    assert module.__spec__ is not None
    assert module.__spec__.name == "torch_npu"
    assert module.__name__ == "torch_npu"


def test_over_the_real_module_the_facade_has_its_other_attributes(npu: TorchNpu) -> None:
    real = types.ModuleType("torch_npu")
    real.npu_clipped_swiglu = "its own"  # type: ignore[attr-defined]
    facade = TorchNpu(available=True, module=real)
    assert facade.npu_clipped_swiglu == "its own"
    assert facade.npu_swiglu is torch.ops.npu.npu_swiglu
    assert facade.npu.is_available() is True
    with pytest.raises(AttributeError):
        _ = facade.npu_of_tomorrow


def test_an_op_that_an_older_torch_npu_lacks_is_missing_from_its_facade_alone(
    npu: TorchNpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facade_module, "FACADE_OPS", ("npu_swiglu", "npu_of_tomorrow"))
    facade = TorchNpu(available=True, module=types.ModuleType("torch_npu"))
    assert facade.npu_swiglu is torch.ops.npu.npu_swiglu
    with pytest.raises(AttributeError):
        _ = facade.npu_of_tomorrow
    with pytest.raises(AttributeError):
        TorchNpu(available=False)


def test_nothing_stands_in_for_the_real_module(npu: TorchNpu) -> None:
    real = types.ModuleType("torch_npu")
    with standing_in(TorchNpu(available=True, module=real)) as module:
        assert module is real
        assert sys.modules.get("torch_npu") is None  # left as it was found
        assert not hasattr(torch, "npu")
