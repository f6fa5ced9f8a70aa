"""The chooser: what is picked comes back as ids; without ipywidgets the given choice holds."""

import sys

from fusionkit.widgets.chooser import candidate_chooser, chosen_ids

CHOICES = {"1. norm x2": ("n:a", "n:b"), "2. swiglu": ("s:a",)}


def test_a_choice_given_before_is_chosen_at_the_start():
    chooser = candidate_chooser(CHOICES, ["s:a"])
    assert chooser.children[0].value == (("s:a",),)
    assert chosen_ids(chooser, ["s:a"]) == ("s:a",)


def test_what_is_picked_and_dropped_counts_and_ids_not_offered_are_kept():
    chooser = candidate_chooser(CHOICES, ["s:a", "x:z"])
    chooser.children[0].value = (("n:a", "n:b"),)
    assert chosen_ids(chooser, ["s:a", "x:z"]) == ("n:a", "n:b", "x:z")
    assert chooser.children[1].value.startswith("2 chosen")


def test_half_of_a_group_is_not_the_group():
    chooser = candidate_chooser(CHOICES, ["n:a"])
    assert chooser.children[0].value == ()


def test_nothing_to_choose_is_an_empty_list():
    assert chosen_ids(candidate_chooser({}), ()) == ()


def test_without_ipywidgets_the_given_ids_hold(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    chooser = candidate_chooser(CHOICES, ["n:a"])
    assert chooser is None
    assert chosen_ids(chooser, ["n:a", "n:a"]) == ("n:a",)
