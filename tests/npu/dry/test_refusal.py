"""The dry device computes nothing: whatever would need a value raises DryRunError, and no zero comes back."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from dry_processes import run_dry_script

from fusionkit.npu.dry.behaviours import BEHAVIOURS, REFUSAL, REFUSED

pytestmark = pytest.mark.dry

# What launches, computes, sets memory, talks to other devices or measures.
ACTING = re.compile(
    r"aclop(Compile|Execute)\w*|aclmdl\w*Execute\w*|aclrtLaunch\w*|rt\w*Launch\w*|aclnn\w*|Hccl\w*"
    r"|aclrtMemset\w*|aclrtMemcpy\w+2d\w*|aclrtMem\w*(Export|Import)\w*|aclrt\w*Elapsed\w*|aclprof\w*|Msprof\w*"
)
LINE = re.compile(r"(\w+::\w+(\.\w+)?) on device npu: " + re.escape(REFUSAL))


@pytest.fixture(scope="module")
def seen() -> Any:
    """What a process on the dry device saw."""
    return run_dry_script(Path(__file__).with_name("device_session.py"))


def test_each_computation_is_one_line_of_dry_run_error(seen: Any) -> None:
    assert len(seen["refused"]) > 100
    others = {
        name: [kind, text]
        for name, (kind, text) in seen["refused"].items()
        if kind != "DryRunError" or not LINE.fullmatch(text)
    }
    assert others == {}


@pytest.mark.parametrize(
    ("call", "op"),
    [
        ("full", "aten::full"),
        ("add", "aten::add.Tensor"),
        ("matmul", "aten::matmul"),
        ("cast", "aten::_to_copy"),
        (".cpu()", "aten::_to_copy"),
        (".item()", "aten::_local_scalar_dense"),
        ("in place", "aten::add_.Tensor"),
        ("out=", "aten::add.out"),
        ("foreach", "aten::_foreach_add.List"),
        ("randn", "aten::normal_"),
        ("autograd", "aten::sum.dim_IntList"),
        ("compiled", "aten::add.Tensor"),
        ("aclnn op", "npu::npu_fusion_attention_v3"),
        ("npu op", "npu::npu_rms_norm"),
        ("all_reduce", "c10d::allreduce_"),
        ("copy_ into a slice", "aten::copy_"),
    ],
)
def test_the_line_names_the_op(seen: Any, call: str, op: str) -> None:
    assert seen["refused"][call] == ["DryRunError", f"{op} on device npu: {REFUSAL}"]


def test_only_printing_is_stopped_by_the_printers_first_op(seen: Any) -> None:
    isfinite = f"aten::isfinite on device npu: {REFUSAL}"
    stopped = {name for name, (_, text) in seen["refused"].items() if text == isfinite}
    assert stopped == {"str()", "assert_close"}


def test_what_is_no_op_raises_as_well(seen: Any) -> None:
    assert {name: text for name, (kind, text) in seen["raises"].items() if kind == "value"} == {}


def test_constants_reach_the_device_whole_and_views_are_free(seen: Any) -> None:
    assert {name: got for name, (got, wanted) in seen["works"].items() if got != ["value", wanted]} == {}


class TestEveryKernel:
    def test_the_kernels_in_force_are_refusals_but_for_the_allowed(self, seen: Any) -> None:
        assert len(seen["names"]) > 1000
        kit = {name for name in seen["names"] if name.startswith("fusionkit::")}
        assert set(seen["kernels of others"]) <= set(seen["allowed"]) | kit
        assert kit, "the kit's ops are compositions: each of their parts is refused"

    def test_each_one_that_can_be_called_refuses(self, seen: Any) -> None:
        called = {name: told for name, told in seen["kernels"].items() if told[0] != "no argument"}
        assert len(called) > 1000
        bring_or_keep_constants = {"aten::_to_copy", "aten::clone", "aten::resize_"}
        assert {name for name, (kind, _) in called.items() if kind == "value"} == bring_or_keep_constants
        others = {name: told for name, told in called.items() if name not in bring_or_keep_constants}
        assert {name: told for name, told in others.items() if told[0] != "DryRunError"} == {}
        assert [name for name, (_, text) in others.items() if not LINE.fullmatch(text)] == []

    def test_only_ops_over_handles_are_left_uncalled(self, seen: Any) -> None:
        uncalled = [name for name, told in seen["kernels"].items() if told[0] == "no argument"]
        others = [name for name in uncalled if name.partition("::")[0] not in ("c10d", "npu_custom_dist")]
        assert others == ["aten::record_stream"]


class TestTheStandIn:
    def test_what_is_not_in_the_table_fails(self, seen: Any) -> None:
        answers = seen["functions"]["answers"]
        assert {"aclopCompileAndExecute", "aclrtMemset", "rtKernelLaunch", "aclrtEventElapsedTime"} <= set(
            answers
        )
        assert set(answers.values()) == {REFUSED}

    def test_nothing_that_acts_is_in_the_table(self, seen: Any) -> None:
        assert [name for name in BEHAVIOURS if ACTING.fullmatch(name)] == []
        assert set(seen["functions"]["behaving"]) <= set(BEHAVIOURS)
        assert any(ACTING.fullmatch(name) for name in seen["functions"]["answers"])

    def test_only_host_to_device_copies_succeed_and_fit(self, seen: Any) -> None:
        expected = [REFUSED, 0, REFUSED, REFUSED, REFUSED, REFUSED]
        assert seen["functions"]["copies"] == {"aclrtMemcpy": expected, "aclrtMemcpyAsync": expected}
        assert seen["functions"]["copied"] == "source"
        assert seen["functions"]["too large"] == REFUSED

    def test_an_aclnn_op_is_not_even_found(self, seen: Any) -> None:
        assert seen["functions"]["unknown"] is False
