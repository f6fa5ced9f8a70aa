"""What tests of replacement code share: torch_npu on target cpu."""

from __future__ import annotations

from types import ModuleType

import pytest

from fusionkit.npu.target import use_target


@pytest.fixture(scope="module")
def facade() -> ModuleType:
    use_target("cpu")
    from fusionkit.npu import torch_npu

    return torch_npu
