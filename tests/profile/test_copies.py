from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_profiles import cpu, profile, record

from fusionkit.errors import MisuseError
from fusionkit.profile.copies import END, START, CopyPair, analyze_copies, copy_kind
from fusionkit.profile.kernel_records import CPU_NOTE, KernelRecord
from fusionkit.verdict import Verdict

MUL_TRANSPOSE = "aclnnMul_TransposeAiCore_Transpose"
COPY_TRANSPOSE = "aclnnInplaceCopy_TransposeAiCore_Transpose"
VIEW_COPY = "aclnnInplaceCopy_ViewCopyAiCore_ViewCopy"


def many(count: int, kind: str, name: str | None = None, **how: object) -> list[KernelRecord]:
    return [record(kind, name, **how) for _ in range(count)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("ViewCopy", VIEW_COPY, "ViewCopy"),
        ("TensorMove", "aclnnInplaceCopy_TensorMove", "TensorMove"),
        ("TensorMove", "aclnnCat_TensorMoveAiCore_TensorMove", "TensorMove"),
        ("StridedSliceD", "StridedSlice195", "StridedSlice"),
        ("Transpose", MUL_TRANSPOSE, "Transpose"),
        ("Cast", "aclnnCast_CastAiCore_Cast", "Cast"),
        ("Slice", "aclnnContiguous_SliceAiCore_Slice", "Slice"),
        ("AsStrided", "AsStrided3", "AsStrided"),
        ("BroadcastTo", "aclnnInplaceCopy_BroadcastToAiCore_BroadcastTo", "BroadcastTo"),
        ("BroadcastTo", "aclnnExpand_BroadcastToAiCore_BroadcastTo", None),
        ("Mul", "aclnnMul_MulAiCore_Mul", None),
    ],
)
def test_a_copy_is_known_by_type_and_by_api(kind: str, name: str, expected: str | None) -> None:
    assert copy_kind(record(kind, name)) == expected


def test_counts_times_and_apis_per_kind() -> None:
    report = analyze_copies(
        profile(*many(2, "ViewCopy", VIEW_COPY, us=3), record("Cast", us=0.5), record("Mul"))
    )
    assert [(kind.kind, kind.count, kind.us, kind.inplace_copy) for kind in report.kinds] == [
        ("Cast", 1, 0.5, 0),
        ("ViewCopy", 2, 6.0, 2),
    ]
    assert (report.total_us, report.count) == (6.5, 3)


class TestNeighbours:
    def test_by_time_within_a_step_and_a_stream(self) -> None:
        report = analyze_copies(
            profile(
                record("RmsNorm", start=30, step="1", stream="2"),
                record("Cast", start=20, step="1", stream="2", us=4),
                record("MatMulV2", start=10, step="1", stream="2"),
                record("Add", start=19, step="1", stream="3"),
                record("Sub", start=25, step="2", stream="2"),
            )
        )
        assert report.pairs == (CopyPair("MatMulV2", "Cast", "RmsNorm", 1, 4.0),)

    def test_both_ends(self) -> None:
        (pair,) = analyze_copies(profile(record("Cast"))).pairs
        assert (pair.previous, pair.next) == (START, END)

    def test_equal_pairs_are_summed_and_the_commonest_is_first(self) -> None:
        triple = [record("Mul"), record("Cast", us=2), record("Add")]
        report = analyze_copies(profile(*triple, *triple, record("Slice")))
        assert report.pairs[0] == CopyPair("Mul", "Cast", "Add", 2, 4.0)
        assert [pair.copy for pair in report.pairs] == ["Cast", "Slice"]


class TestVerdict:
    def test_without_a_baseline(self) -> None:
        assert analyze_copies(profile(record("Cast"))).verdict is Verdict.INCONCLUSIVE

    def test_no_more_than_before_passes(self) -> None:
        before = profile(*many(3, "Cast"), record("Mul"))
        assert analyze_copies(before, before).verdict is Verdict.PASS
        assert analyze_copies(profile(*many(2, "Cast")), before).verdict is Verdict.PASS

    def test_a_rise_fails_and_names_the_kind(self) -> None:
        report = analyze_copies(profile(*many(4, "Cast")), profile(*many(3, "Cast")))
        assert report.verdict is Verdict.FAIL
        assert "copies 3 -> 4" in report.reason
        assert "Cast by 1" in report.reason

    def test_false_alarm_the_same_transposes_renamed(self) -> None:
        shapes = {"shapes": ("24,128,64",), "out": ("128,24,64",)}
        baseline = profile(
            *many(216, "Transpose", MUL_TRANSPOSE, **shapes),
            *many(108, "Transpose", COPY_TRANSPOSE, **shapes),
        )
        candidate = profile(*many(324, "Transpose", COPY_TRANSPOSE, **shapes))
        report = analyze_copies(candidate, baseline)
        (kind,) = report.kinds
        assert (kind.baseline_inplace_copy, kind.inplace_copy) == (108, 324)
        assert (kind.baseline_count, kind.count) == (324, 324)
        assert report.verdict is Verdict.PASS
        assert f"216 {MUL_TRANSPOSE} -> {COPY_TRANSPOSE}" in report.reason

    def test_true_alarm_a_compile_without_any_fusion(self) -> None:
        baseline = profile(*many(2560, "ViewCopy", VIEW_COPY, us=2), *many(100, "MatMulV2", us=300))
        candidate = profile(
            *many(5120, "ViewCopy", VIEW_COPY, us=2),
            *many(2560, "StridedSlice", "aclnnInplaceCopy_StridedSliceAiCore_StridedSlice", us=1),
            *many(5120, "TensorMove", "aclnnInplaceCopy_TensorMoveAiCore_TensorMove", us=1),
            *many(100, "MatMulV2", us=300),
        )
        report = analyze_copies(candidate, baseline)
        assert report.verdict is Verdict.FAIL
        for rise in ("ViewCopy by 2560", "StridedSlice by 2560", "TensorMove by 5120"):
            assert rise in report.reason

    def test_an_operator_that_becomes_an_inplace_copy_by_name_is_explained(self) -> None:
        baseline = profile(*many(5, "BroadcastTo", "aclnnExpand_BroadcastToAiCore_BroadcastTo"))
        candidate = profile(*many(5, "BroadcastTo", "aclnnInplaceCopy_BroadcastToAiCore_BroadcastTo"))
        assert analyze_copies(candidate, baseline).verdict is Verdict.PASS
        more = profile(*many(6, "BroadcastTo", "aclnnInplaceCopy_BroadcastToAiCore_BroadcastTo"))
        assert analyze_copies(more, baseline).verdict is Verdict.FAIL

    @pytest.mark.parametrize("kind", ["TensorMove", "StridedSlice"])
    def test_what_compilation_adds_must_not_hide_behind_what_it_removes(self, kind: str) -> None:
        baseline, candidate = profile(*many(9, "Cast")), profile(*many(2, "Cast"), record(kind))
        report = analyze_copies(candidate, baseline)
        assert report.verdict is Verdict.FAIL
        assert f"{kind} by 1" in report.reason
        assert analyze_copies(candidate, baseline, never_new=()).verdict is Verdict.PASS

    def test_a_rise_that_pays_passes_on_an_npu_only(self) -> None:
        gain = analyze_copies(profile(*many(2, "Cast")), profile(record("Cast"), record("Pows", us=500)))
        assert gain.verdict is Verdict.PASS
        assert "net gain" in gain.reason
        small = analyze_copies(profile(*many(2, "Cast")), profile(record("Cast"), record("Pows", us=50)))
        assert small.verdict is Verdict.FAIL
        noise = [record("MatMulV2", us=100_000)]
        hidden = analyze_copies(
            profile(*many(2, "Cast"), *noise), profile(record("Cast"), record("Pows", us=500), *noise)
        )
        assert hidden.verdict is Verdict.FAIL
        slow = KernelRecord("aten::pow", "Pows", "CPU", 500.0)
        on_cpu = analyze_copies(
            profile(cpu("aten::copy_", "Cast"), cpu("aten::copy_", "Cast")),
            profile(cpu("aten::copy_", "Cast"), slow),
        )
        assert on_cpu.verdict is Verdict.FAIL
        assert on_cpu.note == CPU_NOTE

    def test_nothing_compared(self) -> None:
        some = profile(record("Cast"))
        assert analyze_copies(profile(), some).verdict is Verdict.INCONCLUSIVE
        assert analyze_copies(some, profile()).verdict is Verdict.INCONCLUSIVE

    def test_different_numbers_of_steps(self) -> None:
        one, two = (
            profile(record("Cast", step="1")),
            profile(record("Cast", step="1"), record("Cast", step="2")),
        )
        assert analyze_copies(two, one).verdict is Verdict.INCONCLUSIVE
        assert analyze_copies(profile(record("Cast")), one).verdict is Verdict.PASS

    def test_unread_rows_may_be_copies(self) -> None:
        three = profile(*many(3, "Cast"))
        assert analyze_copies(profile(*many(3, "Cast"), left_out=1), three).verdict is Verdict.INCONCLUSIVE
        assert analyze_copies(profile(*many(4, "Cast")), profile(*many(3, "Cast"), left_out=1)).verdict is (
            Verdict.INCONCLUSIVE
        )
        assert (
            analyze_copies(profile(*many(5, "Cast")), profile(*many(3, "Cast"), left_out=1)).verdict
            is Verdict.FAIL
        )

    def test_different_targets(self) -> None:
        with pytest.raises(MisuseError):
            analyze_copies(profile(record("Cast")), profile(cpu("aten::copy_", "Cast")))


class TestSchemes:
    def answers(self, *args: object, **how: object) -> dict[str, bool | None]:
        report = analyze_copies(*args, **how)  # type: ignore[arg-type]
        assert all(scheme.why and scheme.applicability for scheme in report.schemes)
        return {scheme.scheme: scheme.applies for scheme in report.schemes}

    def test_none_is_needed_without_a_rise(self) -> None:
        same = profile(record("Cast"))
        assert self.answers(same, same, missed_sites=3) == {"A": False, "B": False, "C": False}

    def test_matches_first_in_order(self) -> None:
        rise = (profile(*many(2, "Cast")), profile(record("Cast")))
        assert self.answers(*rise) == {"A": None, "B": False, "C": None}
        assert self.answers(*rise, missed_sites=2)["A"] is True
        assert self.answers(*rise, missed_sites=0)["A"] is False
        assert list(self.answers(*rise)) == ["A", "B", "C"]

    @pytest.mark.parametrize(
        "conv", [record("Conv3D", "Conv3D4"), cpu("aten::mkldnn_convolution", "MkldnnConvolution")]
    )
    def test_convolutions_speak_for_mixed_mode(self, conv: KernelRecord) -> None:
        assert self.answers(profile(conv))["B"] is True

    def test_equal_steps_speak_for_replay(self) -> None:
        steps = [record("Mul", shapes=("4,8",), step=step) for step in ("1", "2")]
        assert self.answers(profile(*steps))["C"] is True
        assert self.answers(profile(steps[0], record("Mul", shapes=("5,8",), step="2")))["C"] is False
        assert self.answers(profile(*steps, record("Add", step="2")))["C"] is False


def test_to_dict_is_the_command_s_json() -> None:
    answer = analyze_copies(profile(record("Mul"), record("Cast", us=2)), profile(record("Cast"))).to_dict()
    assert answer["total_us"] == 2.0
    assert answer["verdict"] == "PASS"
    assert answer["pairs"] == [{"previous": "Mul", "copy": "Cast", "next": END, "count": 1, "us": 2.0}]
    assert answer["kinds"][0]["kind"] == "Cast"
    assert [scheme["scheme"] for scheme in answer["schemes"]] == ["A", "B", "C"]


RECORDS = st.lists(
    st.builds(
        record,
        st.sampled_from(["Mul", "Cast", "ViewCopy", "TensorMove", "Transpose", "BroadcastTo"]),
        st.sampled_from([None, MUL_TRANSPOSE, COPY_TRANSPOSE]),
        step=st.sampled_from([None, "1"]),
        start=st.none() | st.floats(0, 100),
    ),
    max_size=15,
)


@settings(max_examples=50)
@given(RECORDS, RECORDS)
def test_pairs_and_kinds_count_every_copy_once_and_pass_means_no_rise(
    new: list[KernelRecord], old: list[KernelRecord]
) -> None:
    report = analyze_copies(profile(*new), profile(*old))
    copies = sum(copy_kind(one) is not None for one in new)
    assert sum(pair.count for pair in report.pairs) == report.count == copies
    if report.verdict is Verdict.PASS:
        moved = sum(renaming.count for renaming in report.renamings)
        assert copies <= sum(copy_kind(one) is not None for one in old) + moved
