# %% [markdown]
# # Phase 7: copies
#
# **Question:** did compilation add copies, and how can the remaining ones be reduced?
#
# Copies in the compiled and in the eager run, from the two profiles of phase 6; the kernels before and after each copy; and which of
# the schemes A (repair the matches), B (mixed mode), C (static shapes, graph replay) applies.

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
baseline_profile: str | None = None
candidate_profile: str | None = None
run_dir: str = "evidence/interactive"

# %%
from fusionkit.phases.integrate import given_profiles
from fusionkit.phases.reduce_copies import reduce_copies
from fusionkit.phases.study import open_study
from fusionkit.widgets import views

study = open_study(globals())

# %% [markdown]
# ## Copies by kind

# %%
copies = reduce_copies(study, given_profiles(baseline_profile, candidate_profile))
views.chart(
    copies.kind_rows(),
    "kind",
    ["eager", "compiled"],
    "Copies by kind: calls per step",
    empty=copies.why_empty(),
)

# %% [markdown]
# ## Neighbouring kernels

# %%
views.table(
    copies.pair_rows(),
    "Kernels before and after each copy in the compiled run",
    empty=copies.why_empty(),
)

# %% [markdown]
# ## Schemes

# %%
views.table(copies.scheme_rows(), "Schemes", empty=copies.why_empty())

# %% [markdown]
# ## Gates

# %%
views.gates(copies.gates)

# %%
views.outcome(copies.write())
