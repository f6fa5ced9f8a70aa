from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_profiles import cpu, profile, record

from fusionkit.errors import MisuseError
from fusionkit.profile.diff import diff_profiles
from fusionkit.profile.kernel_records import CPU_NOTE, KernelRecord


def many(count: int, kind: str, name: str | None = None, **how: object) -> list[KernelRecord]:
    return [record(kind, name, **how) for _ in range(count)]  # type: ignore[arg-type]


UNFUSED = [*many(4, "Pows", us=2), *many(4, "ReduceMean", us=3), *many(4, "Rsqrt"), *many(10, "Mul", us=2)]
FUSED = [*many(4, "RmsNorm", us=5), *many(2, "Mul", us=2)]


def test_a_fusion_vanishes_and_appears() -> None:
    diff = diff_profiles(
        profile(*UNFUSED, record("MatMulV2", us=9)), profile(*FUSED, record("MatMulV2", us=9))
    )
    assert diff.vanished == ("Pows", "ReduceMean", "Rsqrt")
    assert diff.new == ("RmsNorm",)
    assert diff.renamings == ()
    assert diff.explained_share == 1.0


def test_to_dict_is_the_command_s_json() -> None:
    answer = diff_profiles(profile(*UNFUSED), profile(*FUSED)).to_dict()
    assert answer["baseline_us"] == 44.0
    assert answer["candidate_us"] == 24.0
    assert answer["kernels"][0] == {
        "key": "RmsNorm",
        "baseline_us": 0.0,
        "candidate_us": 20.0,
        "baseline_count": 0,
        "candidate_count": 4,
    }
    assert [entry["key"] for entry in answer["kernels"]] == ["RmsNorm", "Mul", "ReduceMean", "Pows", "Rsqrt"]
    families = {
        entry["family"]: (entry["baseline_count"], entry["candidate_count"]) for entry in answer["families"]
    }
    assert families == {"norm": (0, 4), "elementwise": (18, 2), "reduction": (4, 0)}
    assert answer["renamed"] == []


def test_what_is_explained_is_what_changed_in_number() -> None:
    baseline = profile(*many(2, "Pows", us=5), record("MatMulV2", us=10))
    candidate = profile(record("MatMulV2", us=8))
    assert diff_profiles(baseline, candidate).explained_share == pytest.approx(10 / 12, abs=1e-6)


def test_nothing_to_explain() -> None:
    same = profile(*UNFUSED)
    assert diff_profiles(same, same).explained_share is None
    swapped = diff_profiles(profile(record("Pows", us=3)), profile(record("RmsNorm", us=3)))
    assert swapped.explained_share is None


class TestRenamed:
    def test_the_same_transposes_under_another_api(self) -> None:
        shapes = {"shapes": ("24,128,64",), "out": ("128,24,64",)}
        mul, copy = "aclnnMul_TransposeAiCore_Transpose", "aclnnInplaceCopy_TransposeAiCore_Transpose"
        baseline = profile(*many(216, "Transpose", mul, **shapes), *many(108, "Transpose", copy, **shapes))
        candidate = profile(*many(324, "Transpose", copy, **shapes))
        diff = diff_profiles(baseline, candidate)
        assert diff.to_dict()["renamed"] == [[mul, copy]]
        assert diff.renamings[0].count == 216
        assert diff.vanished == diff.new == ()
        assert diff.kernels[0].count == 0

    def test_other_shapes_are_other_kernels(self) -> None:
        mul, copy = "aclnnMul_TransposeAiCore_Transpose", "aclnnInplaceCopy_TransposeAiCore_Transpose"
        diff = diff_profiles(
            profile(*many(3, "Transpose", mul, shapes=("4,8",))),
            profile(*many(3, "Transpose", copy, shapes=("5,8",))),
        )
        assert diff.renamings == ()

    def test_fewer_gained_than_lost_is_no_renaming(self) -> None:
        diff = diff_profiles(
            profile(*many(3, "Cast", "aclnnA_B_Cast")), profile(*many(2, "Cast", "aclnnC_B_Cast"))
        )
        assert diff.renamings == ()

    def test_one_gain_cannot_explain_two_losses(self) -> None:
        old = [
            *many(2, "Slice", "aclnnMul_SliceAiCore_Slice"),
            *many(2, "Slice", "aclnnAdd_SliceAiCore_Slice"),
        ]
        diff = diff_profiles(profile(*old), profile(*many(2, "Slice", "aclnnContiguous_SliceAiCore_Slice")))
        assert len(diff.renamings) == 1

    def test_a_newer_version_of_the_operator(self) -> None:
        diff = diff_profiles(profile(*many(4, "RotaryMul")), profile(*many(4, "RotaryPositionEmbedding")))
        assert diff.to_dict()["renamed"] == [["RotaryMul", "RotaryPositionEmbedding"]]
        assert diff.vanished == diff.new == ()

    def test_more_than_the_renamed_ones_are_new(self) -> None:
        diff = diff_profiles(profile(*many(4, "RotaryMul")), profile(*many(6, "RotaryPositionEmbedding")))
        assert diff.vanished == ()
        assert diff.new == ("RotaryPositionEmbedding",)

    def test_a_replacement_is_no_renaming(self) -> None:
        diff = diff_profiles(profile(*many(4, "Gelu")), profile(*many(4, "FastGelu")))
        assert diff.renamings == ()
        assert (diff.vanished, diff.new) == (("Gelu",), ("FastGelu",))

    def test_two_losers_into_one_gainer(self) -> None:
        names = ["aclnnMul_SliceAiCore_Slice", "aclnnAdd_SliceAiCore_Slice"]
        baseline = profile(*itertools.chain.from_iterable(many(2, "Slice", name) for name in names))
        candidate = profile(*many(4, "Slice", "aclnnContiguous_SliceAiCore_Slice"))
        assert sum(renaming.count for renaming in diff_profiles(baseline, candidate).renamings) == 4


class TestCpu:
    def test_keys_are_op_names_so_that_fused_and_unfused_gelu_differ(self) -> None:
        diff = diff_profiles(profile(cpu("aten::gelu", "Gelu")), profile(cpu("npu::npu_gelu", "Gelu")))
        assert (diff.vanished, diff.new) == (("aten::gelu",), ("npu::npu_gelu",))
        assert diff.renamings == ()

    def test_in_place_is_the_same_kernel_but_copy_stays_copy(self) -> None:
        diff = diff_profiles(
            profile(cpu("aten::add_", "Add"), cpu("aten::copy_", "Cast")),
            profile(cpu("aten::add", "Add"), cpu("aten::copy_", "Cast")),
        )
        assert [delta.key for delta in diff.kernels] == ["aten::add", "aten::copy_"]
        assert (diff.vanished, diff.new) == ((), ())

    def test_durations_claim_nothing(self) -> None:
        slow = replace(cpu("aten::pow", "Pows"), duration_us=90.0)
        diff = diff_profiles(profile(slow), profile(cpu("npu::npu_rms_norm", "RmsNorm")))
        assert diff.explained_share is None
        assert diff.to_dict()["note"] == CPU_NOTE
        assert diff.to_dict()["source"] == "cpu"

    def test_a_cpu_and_an_npu_do_not_compare(self) -> None:
        with pytest.raises(MisuseError, match="same target"):
            diff_profiles(profile(cpu("aten::mul", "Mul")), profile(record("Mul")))


def test_unread_rows_are_mentioned() -> None:
    note = diff_profiles(profile(record("Mul")), profile(record("Mul"), left_out=3)).note
    assert note == "3 rows of the candidate could not be read"


KINDS = st.sampled_from(
    ["Mul", "Add", "Cast", "RmsNorm", "RotaryMul", "RotaryPositionEmbedding", "Transpose"]
)
RECORDS = st.lists(
    st.builds(record, KINDS, st.sampled_from([None, "aclnnX_A_B", "Cast3"]), st.floats(0, 1e6)), max_size=12
)


@settings(max_examples=50)
@given(RECORDS, RECORDS)
def test_counts_and_times_add_up_and_the_reverse_mirrors(
    old: list[KernelRecord], new: list[KernelRecord]
) -> None:
    diff = diff_profiles(profile(*old), profile(*new))
    for deltas in (diff.kernels, diff.families):
        assert sum(delta.baseline_count for delta in deltas) == len(old)
        assert sum(delta.candidate_count for delta in deltas) == len(new)
        assert sum(delta.candidate_us for delta in deltas) == pytest.approx(diff.candidate.total_us)
    back = diff_profiles(profile(*new), profile(*old))
    assert {delta.key: delta.count for delta in back.kernels} == {
        delta.key: -delta.count for delta in diff.kernels
    }
    assert set(diff.vanished).isdisjoint(diff.new)
    assert sum(renaming.count for renaming in diff.renamings) <= min(len(old), len(new))
