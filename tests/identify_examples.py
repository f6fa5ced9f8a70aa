"""Sources and candidates that tests of the identification share; nothing here is run."""

from __future__ import annotations

from pathlib import Path

from fusionkit.identify.candidates import Candidate, ScanReport
from fusionkit.identify.existing import uses_of_file, with_existing
from fusionkit.identify.judgement import judge
from fusionkit.identify.scan_file import sites_of_file
from fusionkit.identify.source.files import SourceFile

HEAD = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n\n\n"

NORM = '''class {name}RMSNorm(nn.Module):
    """A norm of {name}."""

    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x: torch.Tensor):
        variance = x.pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + self.eps))
'''

MLP = """class MLP(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))
"""

SOFTCAP = """class Capped(nn.Module):
    def forward(self, q, k, v):
        scores = torch.tanh(torch.matmul(q, k.transpose(-1, -2)) / 30.0) * 30.0
        return torch.matmul(torch.softmax(scores, dim=-1), v)
"""

BRANCHED = """class Branched(nn.Module):
    def forward(self, x):
        if is_torch_npu_available() and self.fused:
            return torch_npu.npu_rms_norm(x, self.weight, epsilon=1e-6)[0]
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight
"""


def judged(code: str, file: str = "model.py", head: str = HEAD) -> tuple[Candidate, ...]:
    """The candidates of a source text."""
    source = SourceFile(Path(file), head + code)
    return tuple(judge(site, source, file) for site in sites_of_file(source))


def scanned(folder: Path, files: dict[str, str]) -> ScanReport:
    """Write the files below `folder` and scan them, their names relative to it."""
    candidates, uses = [], []
    for name, code in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(HEAD + code, "utf-8")
        source = SourceFile(path, HEAD + code)
        candidates += [judge(site, source, name) for site in sites_of_file(source)]
        uses += uses_of_file(source, name)
    return ScanReport(
        paths=("models",),
        files=len(files),
        candidates=with_existing(candidates, uses),
        uses=tuple(uses),
        root=str(folder),
    )
