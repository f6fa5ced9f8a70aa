"""The affinity replacements, run: the same numbers in place, whichever way the mask is written."""

import types
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fusionkit.identify.replacing import Refused, outlined, replace_site
from fusionkit.identify.scan_file import Site, sites_of_file
from fusionkit.identify.source.files import SourceFile


class Ops(TorchDispatchMode):
    """Writes down the ops that run."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.name())
        return func(*args, **(kwargs or {}))


CODE = "import torch\n\n\ndef clear(x, mask, other):\n    x[{index}] = {value}\n    return x\n"


def run_text(text: str) -> types.ModuleType:
    module = types.ModuleType("masked")
    exec(compile(text, "masked.py", "exec"), module.__dict__)  # noqa: S102 - the text is this test's own
    return module


def masked(tmp_path: Path, index: str, value: str) -> tuple[SourceFile, Site]:
    path = tmp_path / "masked.py"
    path.write_text(CODE.format(index=index, value=value))
    file = SourceFile(path, path.read_text())
    return file, next(site for site in sites_of_file(file) if site.op == "affinity_index_put")


def replaced(tmp_path: Path, index: str, value: str) -> object:
    return replace_site(*masked(tmp_path, index, value))


@pytest.mark.parametrize("value", ["0", "-2.5"])
@pytest.mark.parametrize("index", ["mask", "~mask"])
@pytest.mark.parametrize("dims", [2, 3])
def test_assignment_at_a_mask_is_a_product(index, value, dims, tmp_path):
    told = replaced(tmp_path, index, value)
    texts = (CODE.format(index=index, value=value), told.new_text.replace("torch_npu is not None", "True"))
    original, fused = (run_text(text) for text in texts)
    mask = torch.rand((2, 3, 4)[:dims], generator=torch.Generator().manual_seed(0)) < 0.5
    drawn = torch.randn((2, 3, 4), generator=torch.Generator().manual_seed(1))
    with Ops() as ops:
        assert torch.equal(fused.clear(drawn.clone(), mask, None), original.clear(drawn.clone(), mask, None))
    assert ops.names.count("aten::mul_.Tensor") == 1
    assert sum(name.startswith("aten::index_put_") for name in ops.names) == 1


@pytest.mark.parametrize(
    ("index", "value", "reason"),
    [
        ("mask & other", "0", "no plain name"),
        ("~mask[0]", "0", "no plain name"),
        ("mask", "-other", "no number"),
    ],
)
def test_what_cannot_be_asked_is_refused(index, value, reason, tmp_path):
    told = replaced(tmp_path, index, value)
    assert isinstance(told, Refused)
    assert reason in told.reason


@pytest.mark.parametrize(("index", "value"), [("~mask", "0"), ("mask & other", "0"), ("mask", "-other")])
def test_a_refusal_is_the_same_without_the_text(index, value, tmp_path):
    file, site = masked(tmp_path, index, value)
    written = replace_site(file, site)
    assert outlined(file, site) == (written if isinstance(written, Refused) else written.notes)
