"""Diffs as they are applied: by patch and by git, to files of any encoding, line end, indentation and name."""

from __future__ import annotations

import ast
import codecs
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusionkit.identify.reading import read_source
from fusionkit.identify.replacing import Replacement, replace_site
from fusionkit.identify.scan_file import sites_of_file

NORM = """{cookie}import torch
from torch import nn


class Norm(nn.Module):
    def __init__(self, size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        # {words}
        dtype = x.dtype
        x = x.float()  # {words}
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * x.to(dtype)"""

TOOLS = {
    "patch": ["patch", "-p1", "--silent", "--no-backup-if-mismatch"],
    "git": ["git", "apply", "--whitespace=nowarn"],
}


def made(path: Path, data: bytes) -> Replacement:
    path.write_bytes(data)
    file = read_source(path)
    (site,) = [site for site in sites_of_file(file) if site.op == "npu_rms_norm"]
    result = replace_site(file, site, path.parent)
    assert isinstance(result, Replacement), result
    return result


def applied(tool: str, path: Path, patch: bytes) -> bytes:
    done = subprocess.run(TOOLS[tool], input=patch, cwd=path.parent, capture_output=True, check=False)
    assert done.returncode == 0, (tool, done.stdout, done.stderr)
    return path.read_bytes()


def check(folder: Path, name: str, data: bytes) -> bytes:
    """Both tools make the same bytes, which Python reads as the new text, and from which the old lines are not gone."""
    path = folder / name
    result = made(path, data)
    results = []
    for tool in TOOLS:
        path.write_bytes(data)
        results.append(applied(tool, path, result.patch.data))
    assert results[0] == results[1]
    assert read_source(path).text == result.new_text
    assert kept(results[0], data)
    return results[0]


def kept(new: bytes, old: bytes) -> bool:
    """Whether the old lines, ends included, stand in the new file in their order, but for blanks in front."""
    found = iter([line.strip(b" \t") for line in split(new)])
    return all(line.strip(b" \t") in found for line in split(old))


def split(data: bytes) -> list[bytes]:
    return re.findall(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", data)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("encoding", "cookie", "words"),
    [
        ("utf-8", "", "归一化"),
        ("utf-8-sig", "", "归一化"),
        ("gbk", "# -*- coding: gbk -*-\n", "归一化"),
        ("shift_jis", "# coding: shift_jis\n", "表示"),  # its second byte is a backslash
        ("latin-1", "# coding: latin-1\n", "Größe \x85"),
    ],
)
def test_encodings_and_line_ends(encoding: str, cookie: str, words: str, end: str, tmp_path: Path):
    text = NORM.format(cookie=cookie, words=words).replace("\n", end)
    new = check(tmp_path, "model.py", text.encode(encoding))
    ends = set(re.findall(rb"\r\n|\r|\n", new))
    assert ends == {end.encode()}
    assert not new.endswith(end.encode())  # the file had no line end at its end
    assert new.startswith(codecs.BOM_UTF8) is (encoding == "utf-8-sig")
    assert new.count(codecs.BOM_UTF8) == (encoding == "utf-8-sig")


@settings(max_examples=25, deadline=None)
@given(ends=st.lists(st.sampled_from(["\n", "\r\n", "\r"]), min_size=17, max_size=17), last=st.booleans())
def test_mixed_line_ends(ends: list[str], last: bool, tmp_path_factory: pytest.TempPathFactory):
    lines = NORM.format(cookie="", words="x").split("\n")
    text = "".join(line + end for line, end in zip(lines, ends, strict=False))
    text = text if last else text.rstrip("\r\n")
    check(tmp_path_factory.mktemp("mixed"), "model.py", text.encode())


@pytest.mark.parametrize("name", ["my model.py", "模型.py", 'a"b\\c.py', "tab\there.py", " first.py"])
def test_names_of_files(name: str, tmp_path: Path):
    check(tmp_path, name, NORM.format(cookie="", words="x").encode())


def test_the_text_of_the_diff_is_the_patch(tmp_path: Path):
    text = NORM.format(cookie="# coding: gbk\n", words="归一化").replace("\n", "\r\n")
    result = made(tmp_path / "model.py", text.encode("gbk"))
    assert result.patch.encoding == "gbk"
    assert result.diff.encode("gbk") == result.patch.data
    assert "\r\n" in result.diff
    assert "归一化" in result.diff


@pytest.mark.parametrize("step", ["\t", "  ", " ", "        "])
def test_a_file_is_written_with_its_own_indentation(step: str, tmp_path: Path):
    text = NORM.format(cookie="", words="x").replace("    ", step)
    new = check(tmp_path, "model.py", text.encode()).decode()
    tree = ast.parse(new)
    added = [node for node in ast.walk(tree) if isinstance(node, ast.If)]
    assert added
    added_lines = set(new.split("\n")) - set(text.split("\n"))
    deepest = max(len(re.match(r"[ \t]*", line)[0]) for line in added_lines) // len(step)
    assert deepest == 3  # class, method, branch
    for line in added_lines:
        blanks = re.match(r"[ \t]*", line)[0]
        assert blanks == step * (len(blanks) // len(step))


def test_a_file_with_another_step_inside_is_written_with_that(tmp_path: Path):
    text = NORM.format(cookie="", words="x").replace(
        "        ", "      "
    )  # 4 for the class, 2 in its methods
    new = check(tmp_path, "model.py", text.encode()).decode()
    assert "\n      else:\n        # x\n" in new or "\n      else:\n        dtype" in new
