"""The names in a repaired file: those that its own name implies."""

from __future__ import annotations

import textwrap

from fusionkit.match.repairing.renaming import rename
from fusionkit.pattern_files.lint_syntax import lint_names
from fusionkit.pattern_files.naming import FusionNames

NAMES = FusionNames("wide_norm")
TEXT = textwrap.dedent(
    '''
    import other
    from fusionkit.patterns import PatternBase

    __all__ = ["OddNormPatternGroup"]


    class OddNormPattern:
        """OddNormPattern is the plain one."""

        @staticmethod
        def create(dtype):
            class Pattern(PatternBase):
                name = staticmethod(lambda: f"OddNormPattern_{dtype}")

            return Pattern


    class Fast(PatternBase):
        base = other.Fast


    def register_odd_norm_graph_entries(pattern_pass):
        pass


    OddNormPatternGroup = [OddNormPattern.create(1), Fast]
    '''
)


def test_group_classes_and_register_function_follow_the_file():
    text, renamed = rename(TEXT, ["OddNormPatternGroup"], NAMES)
    assert renamed == {
        "OddNormPatternGroup": "WideNormPatternGroup",
        "OddNormPattern": "WideNormPattern",
        "Fast": "FastWideNormPattern",
        "register_odd_norm_graph_entries": "register_wide_norm_graph_entries",
    }
    assert lint_names(TEXT, "wide_norm_pattern")
    assert lint_names(text, "wide_norm_pattern") == []


def test_texts_and_attributes_stay_and_all_follows():
    text, _ = rename(TEXT, ["OddNormPatternGroup"], NAMES)
    assert '"""OddNormPattern is the plain one."""' in text
    assert 'f"OddNormPattern_{dtype}"' in text
    assert "base = other.Fast" in text
    assert '__all__ = ["WideNormPatternGroup"]' in text


def test_a_file_of_that_name_stays():
    assert rename(TEXT, ["OddNormPatternGroup"], FusionNames("odd_norm"))[1] == {"Fast": "FastOddNormPattern"}


def test_several_groups_and_an_imported_one_stay():
    assert rename(TEXT, ["OddNormPatternGroup", "B"], NAMES) == (TEXT, {})
    assert rename(TEXT, ["ImportedPatternGroup"], NAMES) == (TEXT, {})
