# %% [markdown]
# # Phase 2: create a pattern, or reuse one
#
# **Question:** does an existing pattern hit every site, and if not, what should a new one look like?
#
# Existing patterns are tried first, in the model's own compile graph. If one misses a site, a new pattern file is drafted from the
# graph nodes of that site, in this run's folder. Existing files are not modified; a gate verifies that.

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
run_dir: str = "evidence/interactive"

# %%
from fusionkit.phases.create import create
from fusionkit.phases.study import open_study
from fusionkit.widgets import views

study = open_study(globals())

# %% [markdown]
# ## Existing patterns, and the path of each fusion
# The path is register_replacement; GraphPatternEntry only if a size inside the chain is symbolic. Hand-written graph passes are not
# allowed.

# %%
creation = create(study)
views.table(creation.rows, "Decision per fusion", empty="no fusion takes part in this run")

# %% [markdown]
# ## Pattern files of this run

# %%
views.texts(creation.file_rows(), "file", "text", empty="no new file: the existing patterns hit every site")

# %% [markdown]
# ## Gates

# %%
views.gates(creation.gates)

# %%
views.outcome(creation.write())
