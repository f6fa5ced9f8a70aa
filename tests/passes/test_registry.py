"""The three registrations agree, and a disagreement of each kind is found."""

import dataclasses

import pytest

import fusionkit.patterns
from fusionkit import fusions
from fusionkit.config import CompilationConfig, FusionPatterns, flag_names, select_patterns
from fusionkit.errors import MisuseError
from fusionkit.fusions import pattern_names
from fusionkit.match.explanation.run_causes import switch_cause, switched_on
from fusionkit.match.repairing.repair import _kit_file
from fusionkit.passes import registry
from fusionkit.passes.match_pass import match_pass_for
from fusionkit.passes.registry import enabled_groups, pattern_registry, unreachable


def reversed_flags():
    return tuple(reversed(flag_names()))


def with_pattern(name, **changes):
    """The rows of fusions, with other registrations of the row `name`."""
    return tuple(
        dataclasses.replace(row, pattern=dataclasses.replace(row.pattern, **changes))
        if row.name == name
        else row
        for row in fusions.FUSIONS
    )


def test_flags_registry_and_exports_agree():
    assert unreachable() == []
    assert list(pattern_registry) == list(flag_names())
    assert all(getattr(FusionPatterns(), flag) is True for flag in flag_names())


def test_every_registered_pattern_has_matcher_entries():
    matcher = match_pass_for(enabled_groups(FusionPatterns()), "none")
    assert {name: matcher.entries(name) > 0 for name in pattern_names()} == dict.fromkeys(
        pattern_names(), True
    )


def test_names_of_variants_are_unique():
    for group in enabled_groups(FusionPatterns()).values():
        names = [pattern.name() for pattern in group]
        assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (
            lambda m: m.delitem(registry.pattern_registry, "enable_gelu"),
            "flag enable_gelu has no registry entry",
        ),
        (
            lambda m: m.setitem(
                registry.pattern_registry, "enable_new", ("GeluPatternGroup", "fusionkit.patterns")
            ),
            "registry entry enable_new has no flag",
        ),
        (
            lambda m: m.setattr(
                fusionkit.patterns,
                "__all__",
                [n for n in fusionkit.patterns.__all__ if n != "GeluPatternGroup"],
            ),
            "group GeluPatternGroup is not exported",
        ),
        (lambda m: m.setattr(fusionkit.patterns, "GeluPatternGroup", []), "group GeluPatternGroup is empty"),
        (
            lambda m: m.setattr(
                fusionkit.patterns, "__all__", [*fusionkit.patterns.__all__, "NewPatternGroup"]
            ),
            "group NewPatternGroup is exported but not registered",
        ),
        (
            lambda m: m.setattr(registry, "flag_names", reversed_flags),
            "config.FusionPatterns has enable_gelu where the order of the rows of fusions has enable_rms_norm",
        ),
        (
            lambda m: m.setattr(
                registry, "pattern_registry", dict(reversed(registry.pattern_registry.items()))
            ),
            "passes.pattern_registry has enable_gelu where the order of the rows of fusions has enable_rms_norm",
        ),
        (
            lambda m: m.setattr(fusions, "FUSIONS", with_pattern("gelu", module="fusionkit.patterns.gelus")),
            "row gelu of fusions has the module fusionkit.patterns.gelus, its patterns are in"
            " fusionkit.patterns.gelu_pattern",
        ),
        (
            lambda m: m.setattr(fusions, "FUSIONS", with_pattern("gelu", group="GelusPatternGroup")),
            "row gelu of fusions has the group GelusPatternGroup, its registry entry another",
        ),
    ],
)
def test_each_kind_of_disagreement_is_found(monkeypatch, break_it, said):
    break_it(monkeypatch)
    assert any(said in line for line in unreachable())


def test_a_flag_without_entry_is_refused(monkeypatch):
    monkeypatch.delitem(registry.pattern_registry, "enable_gelu")
    with pytest.raises(MisuseError, match="flag enable_gelu has no entry"):
        enabled_groups(FusionPatterns())


def test_a_flag_without_row_is_refused(monkeypatch):
    monkeypatch.setattr(fusions, "FUSIONS", fusions.FUSIONS[1:])
    with pytest.raises(MisuseError, match=r"flag enable_rms_norm has no row in fusionkit/fusions\.py"):
        enabled_groups(FusionPatterns())


def test_the_flag_is_the_one_of_the_row(monkeypatch):
    monkeypatch.setattr(fusions, "FUSIONS", with_pattern("gelu", flag="enable_gelus"))
    with pytest.raises(MisuseError, match=r"row gelu of fusions has no flag enable_gelus in config"):
        select_patterns(("gelu",))
    monkeypatch.setattr(
        fusions, "FUSIONS", tuple(dataclasses.replace(row, name=f"my_{row.name}") for row in fusions.FUSIONS)
    )
    monkeypatch.setattr(fusions, "FUSIONS", with_pattern("my_gelu", flag="enable_gelu"))
    flags = select_patterns(("my_gelu",))
    assert list(enabled_groups(flags)) == ["my_gelu"]
    assert (
        switch_cause("my_rope", None, CompilationConfig(fusion_patterns=flags)).actual == "enable_rope=False"
    )
    on = switched_on("my_rope", None, CompilationConfig(fusion_patterns=flags)).fusion_patterns
    assert list(enabled_groups(on)) == ["my_rope", "my_gelu"]


def test_the_file_of_a_pattern_is_that_of_the_row(monkeypatch):
    assert _kit_file("rope").name == "rope_pattern.py"
    for module in ("fusionkit.patterns.ropes", "fusionkit.nowhere.ropes"):
        monkeypatch.setattr(fusions, "FUSIONS", with_pattern("rope", module=module))
        with pytest.raises(MisuseError, match=f"row rope of fusions: no module {module}"):
            _kit_file("rope")


def test_select_patterns_switches_exactly_those_on():
    flags = dataclasses.asdict(select_patterns(("rope",)))
    assert [name for name, on in flags.items() if on] == ["enable_rope"]
