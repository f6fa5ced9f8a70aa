from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
import torch

os.environ["HF_HUB_OFFLINE"] = "1"

from fusionkit.subjects.build import Subject
from fusionkit.subjects.load import load_subject


@pytest.fixture(scope="session")
def subject() -> Callable[..., Subject]:
    """Load a subject of the table once per test run; tests leave it as it was."""
    loaded: dict[tuple[str, str, int], Subject] = {}

    def load(name: str, dtype: str = "bfloat16", seed: int = 0) -> Subject:
        key = (name, dtype, seed)
        if key not in loaded:
            loaded[key] = load_subject(name, dtype=dtype, seed=seed)
        return loaded[key]

    return load


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """Tiny tensors: more threads than one only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
