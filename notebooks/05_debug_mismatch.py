# %% [markdown]
# # Phase 5: status of every site
#
# **Question:** is every counted site a hit, and if not, why?
#
# The sites were counted in eager mode, by hooks, independently of the graph. Each is a hit, already fused by the library, skipped
# with a reason, or a miss with its causes and nodes. Anything else is a FAIL.
#
# `subject` may be a capsule (`*.json`, from `fusionkit capture`): nothing is compiled then, and counts, size, dtype and target are
# those of the capsule.

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
isolate: bool = False  # count the prefixes of the nearest variant as well
run_dir: str = "evidence/interactive"

# %%
from fusionkit.phases.mismatch import debug_mismatch
from fusionkit.phases.study import open_study
from fusionkit.widgets import views
from fusionkit.widgets.aligner import aligner
from fusionkit.widgets.filter import site_explorer

study = open_study(globals())

# %% [markdown]
# ## Causes of the misses
# The nearest variant of the pattern and the graph, aligned row by row. Differences are underlined and numbered like the causes below.

# %%
mismatch = debug_mismatch(study)
aligner(mismatch.explained, empty=mismatch.why_no_cause())

# %%
views.alignments(mismatch.explained, empty=mismatch.why_no_cause())

# %% [markdown]
# ## Prefix isolation
# Prefixes of the nearest variant, each one op longer, counted in the real graph by torch's matcher: where are the hits lost?

# %%
prefixes = mismatch.prefix_rows() if isolate else []
not_isolated = mismatch.why_no_cause() if isolate else "not requested; set isolate: true"
views.table(prefixes, "Prefixes of the nearest variant", empty=not_isolated, merge=["pattern", "variant"])

# %% [markdown]
# ## Sites
# Misses come first. The anchor is the last node of the match.

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
