"""Which files a worker of pytest-xdist takes together, and which come first."""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling

# Files that look at the same compiles of shared_models.compiled, which are made once in a process.
SAME_COMPILES = frozenset({
    "tests/capture/test_aot.py", "tests/capture/test_capsule.py", "tests/capture/test_counted.py",
    "tests/capture/test_keyword_order.py", "tests/capture/test_sources.py",
    "tests/match/explanation/test_entry_variants.py", "tests/match/explanation/test_explain.py",
    "tests/match/explanation/test_isolation.py", "tests/match/explanation/test_run_causes.py",
    "tests/match/repairing/test_region.py", "tests/match/repairing/test_repair.py",
    "tests/match/repairing/test_synthesis.py", "tests/match/test_already_fused.py", "tests/match/test_capsules.py",
    "tests/match/test_comparing.py", "tests/match/test_hits.py", "tests/match/test_site_replay.py",
})  # fmt: skip
# The longest after those, the longest first, so that no worker is left alone with one of them at the end.
LONGEST = (
    "tests/notebooks/test_runs.py",
    "tests/notebooks/test_dry_runs.py",
    "tests/identify/proving/test_prove_models.py",
    "tests/npu/test_installed_torch_npu.py",
    "tests/phases/test_defects.py",
    "tests/identify/proving/test_prove_masks.py",
    "tests/npu/dry/test_cache.py",
    "tests/commands/test_commands.py",
    "tests/phases/test_phases.py",
    "tests/test_catalog.py",
    "tests/npu/dry/test_activation.py",
    "tests/npu/dry/test_first_start.py",
    "tests/identify/proving/test_prove_loose.py",
    "tests/identify/proving/test_prove_arguments.py",
    "tests/identify/proving/test_prove_vacuous.py",
    "tests/patterns/test_patterns.py",
    "tests/subjects/test_captures.py",
    "tests/subjects/test_sites.py",
    "tests/commands/test_doctor.py",
    "tests/browser/test_identification_page.py",
    "tests/browser/test_evidence_pages.py",
)


class WholeFiles(LoadFileScheduling):
    """Gives each worker whole files, those of SAME_COMPILES to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "files of the same compiles" if file in SAME_COMPILES else file


def place_of(file: str) -> int:
    """Where a file stands in the order of a test session; those of one number keep their order."""
    if file in SAME_COMPILES:
        return 0
    return 1 + (LONGEST.index(file) if file in LONGEST else len(LONGEST))
