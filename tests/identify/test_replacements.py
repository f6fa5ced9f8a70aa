"""Every candidate of a scan with the diff of its own file and class, in the scan's JSON and as files that apply."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from fusionkit.cli import main
from fusionkit.identify.replacements import replacements
from fusionkit.identify.report import report_text
from fusionkit.identify.scan import scan

NORM = """import torch
from torch import nn


class {name}(nn.Module):
    def __init__(self, size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        dtype = x.dtype
        x = x.float()
        x = x * torch.rsqrt(x.pow(2).mean({dim}, keepdim=True) + self.eps)
        return self.weight * x.to(dtype)
"""


def written(folder: Path) -> Path:
    folder = folder / "models"
    folder.mkdir()
    (folder / "one.py").write_text(NORM.format(name="OneNorm", dim=-1))
    second = NORM.format(name="TwoNorm", dim=-1).replace("import torch\nfrom torch import nn\n", "", 1)
    (folder / "two.py").write_text("# 归一化\n" + NORM.format(name="FirstNorm", dim=-1) + second)
    (folder / "channels.py").write_text(NORM.format(name="ChannelNorm", dim=1))
    return folder


def told(capsys, *arguments: str) -> dict:
    capsys.readouterr()
    assert main(["scan", *arguments, "--no-cache", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_json_holds_a_diff_or_the_reason(tmp_path: Path, capsys):
    found = {item["symbol"]: item for item in told(capsys, str(written(tmp_path)))["candidates"]}
    assert set(found) == {"OneNorm", "FirstNorm", "TwoNorm", "ChannelNorm"}
    for symbol, item in found.items():
        replacement = item["replacement"]
        assert set(replacement) == {"diff", "encoding", "condition", "notes", "refused"}
        if symbol == "ChannelNorm":
            assert replacement["diff"] is None
            assert "last dimension" in replacement["refused"]
        else:
            assert replacement["refused"] is None
            assert f"+++ b/{item['file']}\n" in replacement["diff"]
            assert replacement["condition"].startswith("torch_npu is not None")


def test_alike_code_has_a_diff_for_each_file_and_class(tmp_path: Path):
    """Applied one by one, each changes the class that it names and no other."""
    folder = written(tmp_path)
    report = scan([folder], cache=False)
    made = replacements(report)
    patches = {item.symbol: made[item.id].patch for item in report.candidates if made[item.id].patch}
    assert len(set(patches.values())) == len(patches) == 3
    for symbol, patch in patches.items():
        before = {path.name: path.read_text() for path in folder.iterdir()}
        subprocess.run(["git", "apply"], input=patch, cwd=report.root, check=True)
        after = {path.name: path.read_text() for path in folder.iterdir()}
        (changed,) = [name for name in before if before[name] != after[name]]
        holder = [part for part in after[changed].split("\nclass ") if "npu_rms_norm" in part]
        assert [part.partition("(")[0] for part in holder] == [symbol]
        for name, text in before.items():
            (folder / name).write_text(text)


def test_two_definitions_of_one_name_each_have_their_diff(tmp_path: Path):
    classes = NORM.format(name="Norm", dim=-1).partition("\n\n\n")
    inner = "\n".join(f"    {line}" if line else "" for line in classes[2].rstrip("\n").split("\n"))
    text = f"{classes[0]}\n\nFAST = False\nif FAST:\n{inner}\nelse:\n{inner}\n"
    (tmp_path / "twin.py").write_text(text)
    report = scan([tmp_path / "twin.py"], cache=False)
    made = replacements(report)
    diffs = [made[item.id].diff for item in report.candidates]
    assert len(diffs) == 2
    assert diffs[0] != diffs[1]
    assert all(diff.count("+") and diff.count("torch_npu.npu_rms_norm") == 1 for diff in diffs)


def test_diffs_are_files_that_apply(tmp_path: Path, capsys):
    folder, out = written(tmp_path), tmp_path / "out"
    assert main(["scan", str(folder), "--no-cache", "--diffs", str(out)]) == 0
    files = sorted(out.iterdir())
    assert [path.name.split("-", 1)[1] for path in files] == [
        "npu_rms_norm-one-OneNorm.diff",
        "npu_rms_norm-two-FirstNorm.diff",
        "npu_rms_norm-two-TwoNorm.diff",
    ]
    root = scan([folder], cache=False).root
    for path in files:
        subprocess.run(["git", "apply", "--check", str(path)], cwd=root, check=True)


def test_diffs_go_into_a_folder(tmp_path: Path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["scan", str(written(tmp_path)), "--diffs", str(tmp_path / "file")]) == 2
    assert "no folder" in capsys.readouterr().err


def test_the_report_says_whose_diff_it_shows(tmp_path: Path):
    text = report_text(scan([written(tmp_path)], cache=False), lang="en")
    assert "Each of the 2 other places has a diff of its own" in text
    assert "was proved by itself" not in text  # none was proved
