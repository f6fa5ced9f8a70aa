# %% [markdown]
# # Phase 5: every site accounted for
#
# **Question:** is every counted site a hit, and where one is not, why?
#
# The sites were counted in eager mode, by hooks, without looking at a graph. Each one is now a hit, already fused by the library, skipped
# with a reason, or a miss with cause and node. Anything else fails.
#
# `subject` may be a capsule (`*.json`, from `fusionkit capture`): nothing is then compiled, and counts, size, dtype and target are
# the capsule's.

# %% tags=["parameters"]
subject: str = "flux"
size: str = "tiny"
target: str = "cpu"
dtype: str = "bfloat16"
seed: int = 0
window: str = "before-freezing"
decompositions: str = "none"
patterns: list[str] = []
pattern_file: str | None = None
expected_sites: dict[str, int | None] = {}  # your own counts, by the name of a fusion
isolate: bool = False  # count ever longer beginnings of the nearest variant as well
run_dir: str = "evidence/interactive"

# %%
from fusionkit.phases.mismatch import debug_mismatch
from fusionkit.phases.study import open_study
from fusionkit.widgets import views
from fusionkit.widgets.aligner import aligner
from fusionkit.widgets.filter import site_explorer

study = open_study(globals())

# %% [markdown]
# ## Why the misses miss
# The nearest variant of the pattern and the graph, row by row. What differs is underlined and numbered like the causes below it.

# %%
mismatch = debug_mismatch(study)
aligner(mismatch.explained, empty=mismatch.why_no_cause())

# %%
views.alignments(mismatch.explained, empty=mismatch.why_no_cause())

# %% [markdown]
# ## Where the hits are lost
# The nearest variant, one op longer from level to level, counted in the real graph by torch's matcher.

# %%
prefixes = mismatch.prefix_rows() if isolate else []
not_isolated = mismatch.why_no_cause() if isolate else "not asked for; give isolate: true"
views.table(prefixes, "Prefixes of the nearest variant", empty=not_isolated, merge=["pattern", "variant"])

# %% [markdown]
# ## Sites
# Misses come first. The anchor is the node at which the match ends.

# %%
site_explorer(mismatch.site_rows())

# %%
views.table(mismatch.site_rows(), "All sites", empty="no site was counted, and no pattern matched")

# %% [markdown]
# ## Gates

# %%
views.gates(mismatch.gates)

# %%
views.outcome(mismatch.write())
