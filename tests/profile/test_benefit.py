from __future__ import annotations

import pytest
from made_profiles import cpu, profile, record

from fusionkit.profile.benefit import ROOT_CAUSES, Finding, account, find_root_causes, observed_benefit
from fusionkit.profile.diff import diff_profiles
from fusionkit.profile.kernel_records import KernelRecord

SITES = 4
UNFUSED = [record(kind, us=2) for _ in range(SITES) for kind in ("Pows", "ReduceMean", "Rsqrt", "Mul", "Mul")]
X = "16,64"


def fused(
    *around: KernelRecord, us: float = 4.0, before: bool = True, after: bool = False
) -> list[KernelRecord]:
    """A site per entry, with helper kernels before and after each fused one."""
    norm = record("RmsNorm", us=us, shapes=(X, "64"))
    site = [*(around if before else ()), norm, *(around if after else ())]
    return [kernel for _ in range(SITES) for kernel in (record("MatMulV2"), *site, record("Add"))]


def findings(
    candidate: list[KernelRecord], baseline: list[KernelRecord] = UNFUSED, sites: int | None = SITES
) -> dict[str, Finding]:
    found = find_root_causes(diff_profiles(profile(*baseline), profile(*candidate)), "rms_norm", sites)
    assert [finding.cause for finding in found] == [cause.id for cause in ROOT_CAUSES]
    return {finding.cause: finding for finding in found}


def causes(*args: object, **how: object) -> list[str]:
    return [cause for cause, finding in findings(*args, **how).items() if finding.shows]  # type: ignore[arg-type]


def test_a_clean_fusion_has_no_cause() -> None:
    assert causes(fused()) == []
    assert all(finding.shows is False for finding in findings(fused()).values())


def test_r1_casts_on_both_sides() -> None:
    found = findings(fused(record("Cast"), after=True))
    assert [cause for cause, finding in found.items() if finding.shows] == ["R1"]
    assert found["R1"].count == 2 * SITES
    assert found["R5"].shows is None


def test_r1_needs_new_casts_beside_the_fused_kernels() -> None:
    old = [*UNFUSED, *[record("Cast") for _ in range(2 * SITES)]]
    assert causes(fused(record("Cast"), after=True), old) == []
    elsewhere = [*fused(), *[kernel for _ in range(9) for kernel in (record("Mul"), record("Cast"))]]
    assert "R1" not in causes(elsewhere)


@pytest.mark.parametrize("kind", ["Slice", "StridedSlice", "AsStrided"])
def test_r2_a_slice_of_the_input_s_size(kind: str) -> None:
    assert causes(fused(record(kind, out=(X,)))) == ["R2"]
    assert causes(fused(record(kind, out=("1,1",)))) == []
    assert causes(fused(record(kind, out=(X,)), before=False, after=True)) == []


def test_r2_needs_new_slices() -> None:
    old = [*UNFUSED, *[record("Slice", out=(X,)) for _ in range(SITES)]]
    assert causes(fused(record("Slice", out=(X,))), old) == []


def test_r2_without_shapes_is_open() -> None:
    assert findings(fused(record("Slice")))["R2"].shows is None


def test_r3_tensor_moves_between() -> None:
    found = findings(fused(record("TensorMove"), before=False, after=True))
    assert found["R3"].shows
    assert found["R3"].count == SITES
    assert "other patterns off" in found["R3"].reason
    assert not found["R1"].shows


def test_r4_fewer_kernels_than_matches() -> None:
    found = findings(fused(), sites=SITES + 1)["R4"]
    assert (found.shows, found.count) == (True, 1)
    assert findings(fused(), sites=None)["R4"].shows is None
    assert findings([record("MatMulV2")], sites=3)["R4"].shows is True


def test_r5_a_slow_kernel_without_helpers() -> None:
    assert causes(fused(us=11)) == ["R5"]
    assert causes(fused(us=9)) == []


def test_r5_is_never_judged_on_a_cpu() -> None:
    diff = diff_profiles(profile(cpu("aten::pow", "Pows")), profile(cpu("npu::npu_rms_norm", "RmsNorm")))
    found = {finding.cause: finding.shows for finding in find_root_causes(diff, "rms_norm", 1)}
    assert found == {"R1": False, "R2": False, "R3": False, "R4": False, "R5": None}


def test_without_the_fused_kernel_nothing_is_decided() -> None:
    assert [finding.shows for finding in findings([record("MatMulV2")], sites=None).values()] == [None] * 5


def test_net_is_new_minus_gone() -> None:
    sums = account(diff_profiles(profile(*UNFUSED), profile(*fused(record("Cast")))))
    assert (sums.new_count, sums.gone_count, sums.net_count) == (4 * SITES, 5 * SITES, -SITES)
    assert (sums.new_us, sums.gone_us, sums.net_us) == (7.0 * SITES, 10.0 * SITES, -3.0 * SITES)


def test_on_a_cpu_only_counts_are_accounted() -> None:
    sums = account(diff_profiles(profile(cpu("aten::pow", "Pows")), profile()))
    assert (sums.net_count, sums.net_us) == (-1, None)


@pytest.mark.parametrize(
    ("baseline", "candidate", "kind"),
    [
        (UNFUSED, [record("RmsNorm")] * SITES, "fewer kernels"),
        ([record("Cast")] * 3 + [record("Mul")], [record("Mul")], "less data movement"),
        (
            [record("Slice")] * 3 + [record("Mul")],
            [record("Slice")] * 2 + [record("Mul")],
            "less data movement",
        ),
        ([record("Mul")], [record("Mul")], "none"),
        ([record("Mul")] * 3, [record("Mul"), *[record("Cast")] * 5], "none"),
        ([record("Mul")], [record("RmsNorm"), record("Add")], "none"),
        ([record("hcom_allReduce_", core="HCCL"), record("Mul")], [record("Mul")], "none"),
    ],
)
def test_benefit_kind_by_counts(
    baseline: list[KernelRecord], candidate: list[KernelRecord], kind: str
) -> None:
    assert observed_benefit(diff_profiles(profile(*baseline), profile(*candidate))).kind == kind


def test_benefit_never_looks_at_durations() -> None:
    slow = [record("RmsNorm", us=1e6)] * SITES
    assert observed_benefit(diff_profiles(profile(*UNFUSED), profile(*slow))).kind == "fewer kernels"


def test_every_cause_says_what_to_do() -> None:
    assert [cause.id for cause in ROOT_CAUSES] == ["R1", "R2", "R3", "R4", "R5"]
    assert all(cause.sign and cause.origin and cause.fix for cause in ROOT_CAUSES)
