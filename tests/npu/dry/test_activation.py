"""Activation comes first in a process or is refused; after it the real torch_npu answers, and no other target."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from dry_processes import run_dry_script, run_script

from fusionkit.npu.schemas import SCHEMAS, parsed_schema

HERE = Path(__file__).parent


@pytest.fixture(scope="module", params=["diffusers", "transformers"])
def order(request: pytest.FixtureRequest) -> tuple[str, Any]:
    """A library, and what a process saw that imported it before it asked for the targets."""
    pytest.importorskip(request.param)
    return request.param, run_script(HERE / "order_session.py", request.param)


class TestOrder:
    def test_a_library_that_looks_for_an_npu_comes_too_early(self, order: tuple[str, Any]) -> None:
        library, seen = order
        for target in ("npu-dry", "npu"):
            text = (
                f"target {target}: {library} was imported before it and has decided that there is no NPU;"
                " start a new process and choose the target first"
            )
            assert seen["library"][target] == ["MisuseError", text]

    def test_a_torch_npu_that_is_there_already(self, order: tuple[str, Any]) -> None:
        text = (
            "target npu-dry: torch_npu is imported in this process already; start a new one with"
            " TORCH_DEVICE_BACKEND_AUTOLOAD=0"
        )
        assert order[1]["torch_npu"] == ["MisuseError", text]

    def test_an_npu_op_that_is_there_already(self, order: tuple[str, Any]) -> None:
        for target in ("npu-dry", "npu"):
            text = (
                f"target {target}: npu::npu_of_mine is defined in this process already, and torch_npu cannot be"
                " imported beside it; start a new process and choose the target first"
            )
            assert order[1]["op"][target] == ["MisuseError", text]

    def test_a_refusal_leaves_the_process_to_another_target(self, order: tuple[str, Any]) -> None:
        assert order[1]["target"] is None
        assert order[1]["left"] == [False, False]
        assert order[1]["cpu"] is False

    def test_after_target_cpu_it_is_too_late(self, order: tuple[str, Any]) -> None:
        for target in ("npu-dry", "npu"):
            text = (
                f"target {target}: this process runs target cpu already; one target per process,"
                " start another one"
            )
            assert order[1]["after cpu"][target] == ["MisuseError", text]


@pytest.fixture(scope="module")
def seen() -> Any:
    """What a process saw that activated npu-dry first and then built a model of diffusers."""
    pytest.importorskip("diffusers")
    return run_dry_script(HERE / "model_session.py")


@pytest.mark.dry
class TestActivated:
    def test_the_target_belongs_to_the_process(self, seen: Any) -> None:
        assert seen["again"] is True
        assert seen["now"] == ["npu-dry", "npu", False]
        text = "this process runs target npu-dry already; one target per process, start another one"
        assert seen["others"] == {name: ["MisuseError", f"target {name}: {text}"] for name in ("cpu", "npu")}

    def test_the_stand_in_is_never_taken_for_an_npu(self, seen: Any) -> None:
        assert seen["stand-in"] is True
        text = "target npu: the stand-in of npu-dry is loaded in this process; start a new process"
        assert seen["real"] == ["MisuseError", text]

    def test_the_facade_is_the_real_torch_npu(self, seen: Any) -> None:
        assert seen["available"] == [True, True]
        assert seen["own attribute"] is True
        assert seen["quiet"] == ""

    def test_schemas_of_target_cpu_are_those_of_torch_npu(self, seen: Any) -> None:
        assert len(SCHEMAS) > 10
        assert seen["schemas"] == {name: str(parsed_schema(name)) for name in SCHEMAS}

    def test_qwen_image_calls_the_fused_op_itself(self, seen: Any) -> None:
        assert seen["devices"] == ["npu:0"]
        ops = seen["ops"]
        assert ops.get("npu.npu_rms_norm.default") == 9
        assert [op for op in ops if "rsqrt" in op] == []
        assert "npu.npu_fusion_attention_v3.default" in ops

    def test_fake_tensors_keep_no_values(self, seen: Any) -> None:
        kind, text = seen["fake item"]
        assert kind == "value"
        assert re.fullmatch(r"[a-z]+[0-9]+", text), "a symbol, not what the host put in"
        assert seen["fake item on the host"] == ["value", "3.0"]
