"""The confirmation: of this report and no other, of ids that are in it, by somebody."""

import hashlib

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from identify_examples import MLP, NORM, SOFTCAP, scanned

from fusionkit.errors import MisuseError
from fusionkit.identify.confirmation import report_ids, require_confirmation, write_confirmation
from fusionkit.identify.report import report_text

WHEN = "2026-01-01T00:00:00+00:00"


@pytest.fixture
def report(tmp_path):
    scan = scanned(
        tmp_path,
        {"a.py": NORM.format(name="A") + MLP + SOFTCAP, "b.py": "x = '''\n```candidates\nfake\n```\n'''\n"},
    )
    path = tmp_path / "report.md"
    path.write_text(report_text(scan, lang="en"), "utf-8")
    return path


CAPPED = "npu_fusion_attention:a.py:Capped"


def confirm(report, chosen=("npu_swiglu:a.py:MLP",), who="li", despite=""):
    path = report.parent / "confirmation.yaml"
    write_confirmation(path, report, chosen, confirmed_by=who, confirmed_at=WHEN, despite=despite)
    return path


def test_what_was_confirmed_is_read_back(report):
    found = require_confirmation(confirm(report), report)
    assert found.chosen == ("npu_swiglu:a.py:MLP",)
    assert found.report_sha256 == hashlib.sha256(report.read_bytes()).hexdigest()
    assert (found.confirmed_by, found.confirmed_at, found.report) == ("li", WHEN, "report.md")


def test_every_candidate_of_the_report_can_be_chosen(report):
    assert report_ids(report) == ("npu_rms_norm:a.py:ARMSNorm", "npu_swiglu:a.py:MLP", CAPPED)


def test_without_a_confirmation_nothing_goes_on(report):
    with pytest.raises(MisuseError, match=r"no confirmation; choose candidates of report\.md"):
        require_confirmation(report.parent / "confirmation.yaml", report)


def test_a_report_that_changed_by_one_byte_is_another(report):
    path = confirm(report)
    report.write_text(report.read_text("utf-8") + "\n", "utf-8")
    with pytest.raises(MisuseError, match="confirms another report") as told:
        require_confirmation(path, report)
    assert "\n" not in str(told.value)


def test_ids_that_are_not_in_the_report_are_refused_on_both_sides(report):
    with pytest.raises(MisuseError, match=r"is no candidate of .*; did you mean npu_swiglu:a\.py:MLP\?"):
        confirm(report, ["npu_swiglu:a.py:MLPs"])
    path = confirm(report)
    told = yaml.safe_load(path.read_text("utf-8")) | {"chosen": ["npu_gelu:a.py:X"]}
    path.write_text(yaml.safe_dump(told), "utf-8")
    with pytest.raises(MisuseError, match=r"'npu_gelu:a\.py:X' is no candidate"):
        require_confirmation(path, report)


@pytest.mark.parametrize(
    ("chosen", "who", "told"), [((), "li", "no candidate is chosen"), (None, " ", "nobody")]
)
def test_an_empty_choice_or_an_unnamed_user_is_refused(report, chosen, who, told):
    with pytest.raises(MisuseError, match=told):
        confirm(report, ("npu_swiglu:a.py:MLP",) if chosen is None else chosen, who)
    assert not (report.parent / "confirmation.yaml").exists()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"schema": "other"}, "no confirmation of schema"),
        ({"chosen": "npu_swiglu:a.py:MLP"}, "chosen is missing or no text"),
        ({"chosen": [1]}, "chosen is missing or no text"),
        ({"chosen": []}, "no candidate is chosen"),
        ({"confirmed_by": ""}, "confirmed_by is missing"),
        ({"confirmed_at": None}, "confirmed_at is missing"),
        ({"report_sha256": 12}, "report_sha256 is missing"),
    ],
)
def test_a_confirmation_that_was_edited_is_told_in_one_line(report, change, told):
    path = confirm(report)
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text("utf-8")) | change), "utf-8")
    with pytest.raises(MisuseError, match=told) as raised:
        require_confirmation(path, report)
    assert "\n" not in str(raised.value)


def test_what_is_not_recommended_is_chosen_with_a_reason_or_not_at_all(report):
    with pytest.raises(
        MisuseError, match=r"Capped is not recommended, see .*; leave it out, or say why in despite"
    ) as told:
        confirm(report, [CAPPED])
    assert "\n" not in str(told.value)
    assert not (report.parent / "confirmation.yaml").exists()
    path = confirm(report, [CAPPED, "npu_swiglu:a.py:MLP"], despite="the cap\nis far off")
    assert require_confirmation(path, report).despite == "the cap is far off"
    edited = yaml.safe_load(path.read_text("utf-8"))
    for despite in ({}, {"despite": " "}):
        path.write_text(
            yaml.safe_dump({k: v for k, v in edited.items() if k != "despite"} | despite), "utf-8"
        )
        with pytest.raises(MisuseError, match="Capped is not recommended"):
            require_confirmation(path, report)
    path.write_text(yaml.safe_dump(edited | {"despite": 3}), "utf-8")
    with pytest.raises(MisuseError, match="despite is missing or no text"):
        require_confirmation(path, report)


def test_what_is_deferred_is_chosen_like_what_is_recommended(report):
    text = report.read_text("utf-8")
    assert "\nyes npu_swiglu:a.py:MLP\n" in text
    report.write_text(text.replace("\nyes npu_swiglu:", "\ndefer npu_swiglu:"), "utf-8")
    assert require_confirmation(confirm(report), report).chosen == ("npu_swiglu:a.py:MLP",)


def test_a_list_without_judgements_is_of_no_use(report):
    report.write_text(report.read_text("utf-8").replace("\nyes npu_swiglu:", "\nnpu_swiglu:"), "utf-8")
    with pytest.raises(MisuseError, match="tells no judgements; scan again"):
        confirm(report)


@given(st.binary(max_size=60))
def test_no_bytes_pass_for_a_confirmation(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("any")
    (folder / "report.md").write_text("```candidates\nyes a\n```\n", "utf-8")
    (folder / "confirmation.yaml").write_bytes(data)
    with pytest.raises(MisuseError):
        require_confirmation(folder / "confirmation.yaml", folder / "report.md")


def test_a_text_that_is_no_report_has_no_candidates(tmp_path):
    (tmp_path / "notes.md").write_text("# Notes\n\n```python\nx\n```\n", "utf-8")
    with pytest.raises(MisuseError, match="no identification report"):
        report_ids(tmp_path / "notes.md")
