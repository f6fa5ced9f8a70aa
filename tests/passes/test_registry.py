"""The three registrations agree, and a disagreement of each kind is found."""

import dataclasses

import pytest

import fusionkit.patterns
from fusionkit.config import FusionPatterns, flag_names, select_patterns
from fusionkit.errors import MisuseError
from fusionkit.fusions import pattern_names
from fusionkit.passes import registry
from fusionkit.passes.match_pass import match_pass_for
from fusionkit.passes.registry import enabled_groups, pattern_registry, unreachable


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
    ("break_it", "told"),
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
    ],
)
def test_each_kind_of_disagreement_is_found(monkeypatch, break_it, told):
    break_it(monkeypatch)
    assert any(told in line for line in unreachable())


def test_a_flag_without_entry_is_refused(monkeypatch):
    monkeypatch.delitem(registry.pattern_registry, "enable_gelu")
    with pytest.raises(MisuseError, match="flag enable_gelu has no entry"):
        enabled_groups(FusionPatterns())


def test_select_patterns_switches_exactly_those_on():
    flags = dataclasses.asdict(select_patterns(("rope",)))
    assert [name for name, on in flags.items() if on] == ["enable_rope"]
