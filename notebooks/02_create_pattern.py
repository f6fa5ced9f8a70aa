# %% [markdown]
# # Phase 2: create a pattern, or reuse one
#
# **Question:** does an existing pattern take every site, and where not, what should a new one look like?
#
# Existing patterns are tried first, on the model's own compile graph. Where one misses, a new file is drafted in this run's folder from the
# nodes that stand in the graph. Nothing that exists is modified, and a gate proves it.

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
# ## Existing patterns, and the path by rule
# register_replacement is the rule; GraphPatternEntry only where a size inside the chain is symbolic. A hand-written graph pass is no option.

# %%
creation = create(study)
views.table(creation.rows, "Decision per fusion", empty="no fusion takes part in this run")

# %% [markdown]
# ## Pattern files of this run

# %%
views.texts(creation.file_rows(), "file", "text", empty="no new file: the existing patterns take every site")

# %% [markdown]
# ## Gates

# %%
views.gates(creation.gates)

# %%
views.outcome(creation.write())
