"""A file in an encoding and with line ends of its own is proved as any other."""

from __future__ import annotations

from pathlib import Path

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


@pytest.mark.parametrize(("encoding", "words"), [("gbk", "归一化"), ("latin-1", "Größe")])
def test_a_file_in_another_encoding_is_proved(encoding: str, words: str, tmp_path: Path):
    path = tmp_path / f"norm_{encoding.replace('-', '')}.py"
    path.write_bytes(NORM.format(encoding=encoding, words=words).replace("\n", "\r\n").encode(encoding))
    (candidate,) = with_proofs(scan([path], cache=False)).candidates
    assert candidate.proof is not None
    assert candidate.proof["verdict"] == "PASS", candidate.proof["reason"]
