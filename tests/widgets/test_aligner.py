"""The aligner's controls: drop-downs, next and previous, the copy button; without ipywidgets there is no widget."""

from __future__ import annotations

import html
import re
import sys
from dataclasses import replace

import pytest
from missed_sites import BARE, DIM, SITE, site_of

from fusionkit.widgets.aligner import aligner, copyable

MISSES = {"rms_norm": [SITE, site_of(1)], "rope": [replace(BARE, module="blocks.0.attn")], "gelu": []}


class Controls:
    """The parts of an aligner, by what they do."""

    def __init__(self, explained=MISSES, **options) -> None:
        choices, steps, self.shown = aligner(explained, **options).children
        self.pattern, self.site = choices.children
        self.previous, self.next, self.told = steps.children

    @property
    def state(self) -> tuple[str, str, str]:
        return self.pattern.value, self.site.label, self.told.value


FIRST = ("rms_norm", "1: blocks.0.norm (mul_16)", "miss 1 of 3, lib/model.py:103")
SECOND = ("rms_norm", "2: blocks.1.norm (mul_1)", "miss 2 of 3, lib/model.py:103")
THIRD = ("rope", "1: blocks.0.attn", "miss 3 of 3")


def test_the_first_miss_is_shown_and_only_patterns_with_misses_can_be_chosen():
    controls = Controls()
    assert controls.state == FIRST
    assert controls.pattern.options == ("rms_norm", "rope")
    assert len(controls.site.options) == 2
    assert "aten.mean.dim" in controls.shown.value.replace("<wbr>", "")


def test_next_and_previous_step_through_the_misses_of_all_patterns_and_stop_at_the_ends():
    controls = Controls()
    seen = [controls.state]
    for _ in MISSES["rms_norm"]:
        assert not controls.next.disabled
        controls.next.click()
        seen.append(controls.state)
    assert seen == [FIRST, SECOND, THIRD]
    assert controls.next.disabled
    assert "root_not_indexed" in controls.shown.value
    controls.previous.click()
    controls.previous.click()
    assert controls.state == FIRST
    assert controls.previous.disabled
    assert not controls.next.disabled


def test_the_drop_downs_choose_site_and_pattern():
    controls = Controls()
    controls.site.value = 1
    assert controls.state == SECOND
    controls.pattern.value = "rope"
    assert controls.state == THIRD
    assert controls.next.disabled
    controls.pattern.value = "rms_norm"
    assert controls.state == FIRST


def test_sites_of_one_name_are_told_apart():
    controls = Controls({"rms_norm": [SITE, SITE]})
    controls.next.click()
    assert controls.state == ("rms_norm", "2: blocks.0.norm (mul_16)", "miss 2 of 2, lib/model.py:103")


def test_each_edit_stands_in_a_field_beside_a_button():
    markup = Controls().shown.value
    fields = re.findall(r"<textarea[^>]*>\n(.*?)</textarea>", markup, re.DOTALL)
    assert [html.unescape(field) for field in fields] == [cause.edit for cause in SITE.causes if cause.edit]
    assert markup.count("copy edit</button>") == 2


@pytest.mark.parametrize("explained", [{}, {"rms_norm": []}])
def test_no_misses_say_why(explained):
    (told,) = aligner(explained, empty="no site was missed: 12 of 12").children
    assert "no site was missed: 12 of 12" in told.value


def test_hostile_text_stays_text():
    hostile = "</textarea><script>alert(1)</script><img src=x onerror=alert(1)>"
    site = replace(SITE, module=hostile, pattern=hostile, causes=(replace(DIM, edit=hostile, fix=hostile),))
    controls = Controls({hostile: [site]})
    assert "<script" not in controls.shown.value
    assert "<img" not in controls.shown.value
    assert html.escape(hostile) in copyable(hostile)
    assert "<script" not in copyable(hostile)


def test_two_aligners_do_not_see_each_other():
    first, second = Controls(), Controls()
    first.next.click()
    assert (first.state, second.state) == (SECOND, FIRST)


def test_without_ipywidgets_there_is_no_widget(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    assert aligner(MISSES) is None
