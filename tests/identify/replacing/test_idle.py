"""What only the original needs stands in the else branch with it, and what others read stays where it was."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from fusionkit.identify.replacing import Replacement, replace_site
from fusionkit.identify.scan_file import sites_of_file
from fusionkit.identify.source.files import SourceFile

ROTATED = """
import torch


def rotate(x, cos, sin, near, wanted):
    cos, sin = cos[None, None, :, :], sin[None, None, :, :]
    {before}
    a, b = x.chunk(2, dim=-1)
    turned = torch.cat([-b, a], dim=-1)
    {between}
    out = x.float() * cos + turned.float() * sin
    {after}
    return out
"""


def both(tmp_path: Path, text: str) -> tuple[str, str]:
    """(what stands before the branch or in the fused one, what stands in its else branch or after it)."""
    file = SourceFile(tmp_path / "model.py", text)
    (result,) = [replace_site(file, site) for site in sites_of_file(file) if site.op == "npu_rotary_mul"]
    assert isinstance(result, Replacement), result
    first, _, second = result.new_text.partition("    else:\n        ")
    return first, second


def rotated(before: str = "pass", between: str = "pass", after: str = "pass") -> str:
    filled = ROTATED.format(before=before, between=between, after=after)
    return "\n".join(line for line in filled.split("\n") if line.strip() != "pass")


def test_the_turned_copy_is_made_in_the_else_branch_alone(tmp_path: Path):
    first, second = both(tmp_path, rotated())
    assert "torch.cat" not in first
    assert "chunk" not in first
    assert second.startswith(
        "a, b = x.chunk(2, dim=-1)\n        turned = torch.cat([-b, a], dim=-1)\n        out ="
    )
    assert "cos[None, None, :, :]" in first  # the op reads it


@pytest.mark.parametrize(
    "given",
    [
        {"after": "out = out + turned"},
        {"after": "other = lambda: turned"},
        {"between": "print(turned.shape)"},
        {"before": "def later():\n        return turned\n"},
    ],
)
def test_a_copy_that_is_read_elsewhere_stays(given: dict[str, str], tmp_path: Path):
    first, _ = both(tmp_path, rotated(**given))
    assert "turned = torch.cat" in first


def test_a_copy_that_is_read_in_the_next_turn_of_a_loop_stays(tmp_path: Path):
    lines = rotated(before="last = x").split("\n")
    at = next(index for index, line in enumerate(lines) if "last = x" in line)
    body = [line.replace("    ", "        ", 1) for line in lines[at + 1 : -2]]
    text = "\n".join([*lines[: at + 1], "    turned = x", "    for _ in range(2):", "        last = turned", *body,
                      "    return out, last", ""])  # fmt: skip
    first, _ = both(tmp_path, text)
    assert "turned = torch.cat" in first


def test_the_same_name_in_the_other_branch_does_not_hold_it(tmp_path: Path):
    lines = rotated().split("\n")
    at = next(index for index, line in enumerate(lines) if "chunk" in line)
    body = [f"    {line}" for line in lines[at:-2]]
    text = "\n".join([*lines[:at], "    if wanted:", *body, "    else:", "        turned = x * 2",
                      "        out = turned + 1", "    return out", ""])  # fmt: skip
    first = both(tmp_path, text)[0]
    assert "torch.cat" not in first


CHOSEN = """if near == -1:
        a, b = x.reshape(*x.shape[:-1], -1, 2).unbind(-1)
        turned = torch.stack([-b, a], dim=-1).flatten(3)
    elif near == -2:
        a, b = x.reshape(*x.shape[:-1], 2, -1).unbind(-2)
        turned = torch.cat([-b, a], dim=-1)
    else:
        raise ValueError(near)"""


def test_a_choice_that_may_raise_goes_along_and_what_does_not_raise_is_asked(tmp_path: Path):
    text = rotated().replace("a, b = x.chunk(2, dim=-1)\n    turned = torch.cat([-b, a], dim=-1)", CHOSEN)
    first, second = both(tmp_path, text)
    assert "(near == -1 or near == -2)" in first
    assert "unbind" not in first
    assert second.startswith("if near == -1:\n")
    assert ast.parse(first.rstrip() + "\n    return out\n")


def test_a_choice_that_may_raise_by_a_call_stays(tmp_path: Path):
    text = rotated().replace(
        "a, b = x.chunk(2, dim=-1)\n    turned = torch.cat([-b, a], dim=-1)",
        CHOSEN.replace("near == -2", "wanted()"),
    )
    assert "elif wanted():" in both(tmp_path, text)[0]
