"""The words of the report: whole in both languages."""

import re
import string

import pytest

from fusionkit.fusions import FUSIONS
from fusionkit.identify.ops import HAZARDS, OP_NAMES
from fusionkit.identify.reporting.benefits import BENEFITS, CEILINGS
from fusionkit.identify.reporting.words import HAZARDS_ZH, LANGS, WORDS, hazard, say, written_as

CHINESE = re.compile(r"[\u4e00-\u9fff]")


def test_every_hazard_is_told_in_chinese():
    assert set(HAZARDS_ZH) == set(HAZARDS)
    assert all(CHINESE.search(text) for text in HAZARDS_ZH.values())
    assert hazard("en", "gqa") == HAZARDS["gqa"]


@pytest.mark.parametrize("key", WORDS)
def test_both_languages_fill_in_the_same(key):
    english, chinese = (
        {name for _, name, _, _ in string.Formatter().parse(text) if name} for text in WORDS[key]
    )
    assert english == chinese
    assert not CHINESE.search(WORDS[key][0])


def test_words_are_filled_in():
    assert say("en", "more", count=3) == "3 more, see the list of candidates"
    assert say("zh", "more", count=3) == "其余 3 处见候选清单"
    assert {written_as(lang, "npu_rms_norm") for lang in LANGS} == {"RMSNorm written out", "手写 RMSNorm"}


def test_every_op_has_its_benefit_and_kernels_that_the_profile_knows():
    assert {row.op for row in BENEFITS} == set(OP_NAMES)
    assert {row.bound for row in BENEFITS} == set(CEILINGS)
    known = {op.name.removeprefix("npu::"): op.kernel_types for row in FUSIONS for op in row.ops}
    shown = {row.op: row.after for row in BENEFITS if row.op in known}
    assert shown
    assert {op: name for op, name in shown.items() if name not in known[op]} == {}
