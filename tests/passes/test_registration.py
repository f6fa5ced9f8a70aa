"""The three registrations of a new fusion as diffs, for both layouts."""

import pytest

from fusionkit.errors import MisuseError
from fusionkit.passes.registration import LAYOUTS, apply_edits, layout_of, registration_edits
from fusionkit.pattern_files.naming import FusionNames, names_of_file

NEW = FusionNames("flux_mul_add")


@pytest.fixture
def checkout(tmp_path):
    """A checkout of MindIE-SD's layout, reduced to the three files."""
    layout = LAYOUTS["mindiesd"]
    exports = (
        'from .rms_norm_pattern import RMSNormPatternGroup\n\n__all__ = [\n    "RMSNormPatternGroup",\n]\n'
    )
    registry = 'pattern_registry = {\n    "enable_rms_norm": ("RMSNormPatternGroup", "..patterns"),\n}\n'
    flags = "class FusionPatterns:\n    enable_rms_norm: bool = True\n\n\nclass Other:\n    pass\n"
    for path, text in ((layout.exports, exports), (layout.registry, registry), (layout.flags, flags)):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def test_the_edits_are_three_and_run(checkout):
    layout = layout_of(checkout)
    edits = registration_edits(layout, NEW, checkout)
    assert [edit.path for edit in edits] == [layout.exports, layout.registry, layout.flags]
    assert all(edit.diff.count("\n+") >= 1 for edit in edits)
    apply_edits(edits, checkout)
    space = {}
    exec((checkout / layout.registry).read_text(), space)  # noqa: S102 - the text was written by this test
    assert space["pattern_registry"]["enable_flux_mul_add"] == ("FluxMulAddPatternGroup", "..patterns")
    exec((checkout / layout.flags).read_text(), space)  # noqa: S102
    assert space["FusionPatterns"]().enable_flux_mul_add is True
    exports = (checkout / layout.exports).read_text()
    assert "from .flux_mul_add_pattern import FluxMulAddPatternGroup\n" in exports
    assert '    "FluxMulAddPatternGroup",\n]' in exports


def test_a_registration_that_stands_gives_no_diff(checkout):
    apply_edits(registration_edits(LAYOUTS["mindiesd"], NEW, checkout), checkout)
    assert [edit.diff for edit in registration_edits(LAYOUTS["mindiesd"], NEW, checkout)] == ["", "", ""]


def test_without_a_checkout_the_edits_are_against_empty_files():
    edits = registration_edits(LAYOUTS["mindiesd"], NEW)
    assert [edit.present for edit in edits] == [False, False, False]
    assert "+    enable_flux_mul_add: bool = True" in edits[2].diff


def test_an_unknown_checkout_is_refused(tmp_path):
    with pytest.raises(MisuseError, match="no checkout of a known layout"):
        layout_of(tmp_path)


def test_a_checkout_without_the_table_is_refused(checkout):
    layout = LAYOUTS["mindiesd"]
    (checkout / layout.registry).write_text("x = 1\n")
    with pytest.raises(MisuseError, match="no pattern_registry to add to"):
        registration_edits(layout, NEW, checkout)


def test_all_names_come_from_one():
    assert (NEW.file, NEW.pattern_class, NEW.group, NEW.flag) == (
        "flux_mul_add_pattern.py",
        "FluxMulAddPattern",
        "FluxMulAddPatternGroup",
        "enable_flux_mul_add",
    )
    assert names_of_file("flux_mul_add_pattern") == NEW


@pytest.mark.parametrize("name", ["Flux", "flux-add", "1flux", "", "flux__add"])
def test_other_spellings_are_refused(name):
    with pytest.raises(MisuseError, match="is no fusion name"):
        FusionNames(name)
