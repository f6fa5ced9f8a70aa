"""Results as JSON types, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from fusionkit.encoding import Result, decode, plain
from fusionkit.errors import MisuseError
from fusionkit.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Shelf:
    width_us: float
    label: str = ""


@dataclass(frozen=True, slots=True)
class Cupboard(
    Result, schema="cupboard/1", also=("count",), without=("key",), keys={"shelves": "rows", "count": "n"}
):
    shelves: tuple[Shelf, ...]
    verdict: Verdict
    path: Path
    key: object
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return len(self.shelves)


def test_fields_properties_and_keys_are_encoded_as_the_class_says() -> None:
    options = MappingProxyType({"sizes": (1, 2), "nothing": None, "on": True})
    cupboard = Cupboard((Shelf(1.5, "a"), Shelf(float("inf"))), Verdict.FAIL, Path("x/y"), object(), options)
    expected = {
        "schema": "cupboard/1",
        "rows": [{"width_us": 1.5, "label": "a"}, {"width_us": None, "label": ""}],
        "verdict": "FAIL",
        "path": "x/y",
        "options": {"sizes": [1, 2], "nothing": None, "on": True},
        "n": 2,
    }
    assert cupboard.to_dict() == expected
    assert type(cupboard.to_dict()["verdict"]) is str
    assert plain({"all": [cupboard]}) == {"all": [expected]}


def test_a_method_of_its_own_is_used_inside_another_result() -> None:
    @dataclass(frozen=True, slots=True)
    class Special(Result):
        number: int

        def to_dict(self) -> dict[str, Any]:
            return Result.to_dict(self) | {"twice": 2 * self.number}

    @dataclass(frozen=True, slots=True)
    class Foreign:
        number: int

        def to_dict(self) -> dict[str, Any]:
            return {"half": self.number / 2}

    @dataclass(frozen=True, slots=True)
    class Outer(Result):
        inner: Special | Foreign | None

    assert Outer(Special(2)).to_dict() == {"inner": {"number": 2, "twice": 4}}
    assert Outer(Foreign(2)).to_dict() == {"inner": {"half": 1.0}}
    assert Outer(None).to_dict() == {"inner": None}


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    count: int
    shelves: tuple[Shelf, ...] = ()
    words: tuple[str, ...] | None = ()
    verdict: Verdict = Verdict.PASS


def test_decoding_gives_back_what_was_encoded() -> None:
    row = Row("x", 2, (Shelf(1.0, "a"),), ("b", "c"), Verdict.FAIL)
    assert decode(Row, plain(row), "file.json") == row
    assert decode(dict[str, Row], {"x": plain(row)}, "file.json") == {"x": row}


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ({"name": "x"}, "file.json: required field missing @ $.count"),
        ({"name": 3, "count": 1}, "file.json: str is expected, not int @ $.name"),
        ({"name": "x", "count": "1"}, "file.json: int is expected, not str @ $.count"),
        ({"name": "x", "count": True}, "file.json: int is expected, not bool @ $.count"),
        (
            {"name": "x", "count": 1, "shelves": [{"width_us": "1"}]},
            "file.json: float is expected, not str @ $.shelves[0].width_us",
        ),
        (
            {"name": "x", "count": 1, "shelves": "01_a"},
            "file.json: list is expected, not str @ $.shelves",
        ),
        ({"name": "x", "count": 1, "shelves": {}}, "file.json: list is expected, not dict @ $.shelves"),
        ({"name": "x", "count": 1, "shelves": None}, "file.json: list is expected, not NoneType @ $.shelves"),
        ({"name": "x", "count": 1, "words": ["a", 3]}, "file.json: str is expected, not int @ $.words[1]"),
        ({"name": "x", "count": 1, "words": "01_a"}, "file.json: list is expected, not str @ $.words"),
        (
            {"name": "x", "count": 1, "verdict": "fine"},
            "file.json: invalid value for type, expected Verdict @ $.verdict",
        ),
        ([], "file.json: a JSON object is expected, not list"),
        (None, "file.json: a JSON object is expected, not NoneType"),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(value: Any, fault: str) -> None:
    with pytest.raises(MisuseError) as refusal:
        decode(Row, value, "file.json")
    assert str(refusal.value) == fault
