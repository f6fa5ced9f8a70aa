"""Code that is shown, and code that counts as the same."""

import ast
import dataclasses

import pytest
from identify_examples import HEAD, MLP, NORM, judged

from fusionkit.identify.reporting.alike import grouped
from fusionkit.identify.reporting.excerpts import LONGEST, excerpt


def shown(code, file="model.py"):
    (candidate,) = judged(code, file)
    text = HEAD + code
    return candidate, excerpt(candidate, text, ast.parse(text))


def test_a_short_symbol_is_shown_whole():
    candidate, found = shown(NORM.format(name="A"))
    assert found.text == NORM.format(name="A").rstrip("\n")
    assert (found.start, found.end) == (candidate.line, candidate.end_line)


def test_of_a_long_class_the_method_is_shown_and_of_a_long_method_what_is_around():
    long = NORM.format(name="A").replace(
        "        self.eps = eps\n", "        self.eps = eps\n" + "        self.a = 1\n" * 70
    )
    _, found = shown(long)
    assert found.text.startswith("    def forward")
    longer = long.replace("        variance", "        y = 1\n" * 200 + "        variance")
    candidate, found = shown(longer)
    assert found.end - found.start <= LONGEST
    assert found.start <= candidate.places[0] <= found.end


def test_a_symbol_that_is_gone_is_not_shown():
    (candidate,) = judged(MLP)
    assert excerpt(candidate, "x = 1\n", ast.parse("x = 1\n")) is None
    moved = "\n" + HEAD + MLP
    assert excerpt(candidate, moved, ast.parse(moved)) is None


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("{name}", "Other", True),
        ('"""A norm of {name}."""', '"""Another text."""', True),
        ("x: torch.Tensor", "x", True),
        ("dim, eps=1e-6", "dim, eps=1e-5", True),  # __init__ is not what is replaced
        ("self.eps)", "1e-8)", False),
        ("self.weight * (", "(1 + self.weight) * (", False),
    ],
)
def test_the_same_code_under_another_name_is_one_decision(before, after, same):
    assert before in NORM
    one, first = shown(NORM.format(name="A"), "a.py")
    other, second = shown(NORM.replace(before, after).format(name="A"), "b.py")
    assert (first.fingerprint == second.fingerprint) is same
    groups = grouped([one, other], {one.id: first.fingerprint, other.id: second.fingerprint})
    assert len(groups) == (1 if same else 2)


def test_groups_part_where_the_judgement_or_a_proof_differs_and_the_recommended_stand_first():
    one, first = shown(NORM.format(name="A"), "a.py")
    other = dataclasses.replace(one, file="b.py", recommend="no", reason="r", priority=3)
    proved = dataclasses.replace(one, file="c.py", proof={"verdict": "PASS"})
    copy = dataclasses.replace(one, file="d.py")
    groups = grouped(
        [other, one, proved, copy], {item.id: first.fingerprint for item in (one, other, proved, copy)}
    )
    assert [[item.file for item in group.members] for group in groups] == [
        ["a.py", "d.py"],
        ["c.py"],
        ["b.py"],
    ]
