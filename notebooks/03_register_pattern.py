# %% [markdown]
# # Phase 3: the three registrations
#
# **Question:** which edits export, register and enable each pattern, and can the matcher reach it?
#
# Export, registry entry and flag, as diffs for the kit's own layout and for MindIE-SD's. They are written only into the checkout that
# is given as a parameter. All names derive from one. A pattern that the matcher cannot reach stops the run here.

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
checkout_dir: str | None = None
old_name: str | None = None
run_dir: str = "evidence/interactive"

# %%
from fusionkit.phases.register import register
from fusionkit.phases.study import open_study
from fusionkit.widgets import views

study = open_study(globals())

# %% [markdown]
# ## Names

# %%
registration = register(study, checkout=checkout_dir, old_name=old_name)
views.table(registration.name_rows(), "Names of each fusion", empty="no fusion takes part in this run")

# %% [markdown]
# ## The diffs

# %%
views.text(registration.diff_text("fusionkit"), "For the kit's own layout")

# %%
views.text(
    registration.diff_text("mindiesd"),
    "For MindIE-SD's layout (relative to empty files unless a checkout is given)",
)

# %% [markdown]
# ## Reachability
# Variants with equal search graphs share one matcher entry.

# %%
views.table(registration.rows, "Reachability", empty="no fusion takes part in this run")

# %% [markdown]
# ## Gates

# %%
views.gates(registration.gates)

# %%
views.outcome(registration.write())
