"""A file in an encoding and with line ends of its own is proved as any other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fusionkit.identify.proofs import with_proofs
from fusionkit.identify.scan import scan

NORM = """# coding: {encoding}
import torch
from torch import nn


class Norm(nn.Module):
\tdef __init__(self, size, eps=1e-6):
\t\tsuper().__init__()
\t\tself.weight = nn.Parameter(torch.ones(size))
\t\tself.eps = eps

\tdef forward(self, x):
\t\t# {words}
\t\tdtype = x.dtype
\t\tx = x.float()
\t\tx = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
\t\treturn self.weight * x.to(dtype)
"""


WORDS = {"gbk": "归一化", "latin-1": "Größe"}


@pytest.fixture(scope="module")
def proofs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Mapping[str, Any] | None]:
    """By encoding, the proof of the one candidate of its file."""
    folder = tmp_path_factory.mktemp("encodings")
    for encoding, words in WORDS.items():
        text = NORM.format(encoding=encoding, words=words).replace("\n", "\r\n")
        (folder / f"norm_{encoding.replace('-', '')}.py").write_bytes(text.encode(encoding))
    candidates = with_proofs(scan([folder], cache=False)).candidates
    assert len(candidates) == len(WORDS)
    by_file = {Path(item.file).stem: item.proof for item in candidates}
    return {encoding: by_file[f"norm_{encoding.replace('-', '')}"] for encoding in WORDS}


@pytest.mark.parametrize("encoding", WORDS)
def test_a_file_in_another_encoding_is_proved(encoding: str, proofs: dict[str, Mapping[str, Any] | None]):
    proof = proofs[encoding]
    assert proof is not None
    assert proof["verdict"] == "PASS", proof["reason"]
