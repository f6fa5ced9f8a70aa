"""Shapes, dtypes and strides of target cpu are those of torch_npu's own meta kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dry_processes import run_dry_script

from fusionkit.npu.schemas import SCHEMAS

HERE = Path(__file__).parent

# Meta kernels of torch_npu 2.13 that are wrong: they give another result than the op itself, or none.
WRONG = {
    "npu_geglu_grad",  # takes no default of dim and approximate, and returns two tensors for one
    "npu_grouped_matmul.List",  # one x and many weights: one tensor, where the op gives one for each weight
}


@pytest.fixture(scope="module")
def seen() -> Any:
    return run_dry_script(HERE / "meta_session.py")


@pytest.mark.dry
class TestMeta:
    def test_every_op_is_compared(self, seen: Any) -> None:
        assert {name for name, _, _ in seen["compared"]} == set(SCHEMAS)

    def test_results_look_as_torch_npu_says(self, seen: Any) -> None:
        differing = [row for row in seen["compared"] if row[0] not in WRONG and row[1] != row[2]]
        assert differing == []

    def test_the_wrong_meta_kernels_are_still_wrong(self, seen: Any) -> None:
        agreeing = {name for name, theirs, ours in seen["compared"] if name in WRONG and theirs == ours}
        assert agreeing == set()

    def test_unpermute_is_traced_as_the_op_that_it_calls(self, seen: Any) -> None:
        assert seen["traced"] == ["npu._npu_moe_token_unpermute.default"]

    def test_attention_has_the_tag_that_it_has_here(self, seen: Any) -> None:
        assert "Tag.nondeterministic_seeded" in seen["tags"]
