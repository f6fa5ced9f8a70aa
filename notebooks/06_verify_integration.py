# %% [markdown]
# # Phase 6: hits, kernels, numbers
#
# **Question:** in the whole model, is every site a hit, does the fused kernel replace the original ones, and are the numbers right?
#
# Three layers, in this order; a FAIL stops the later ones. Hits: every counted site. Kernels: the fused kernel is in the compiled
# profile and not in the eager one, and the replaced kernels vanished. Numbers: every site replayed on its own inputs, then the whole
# model in float32.

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
second_target: str | None = "npu-dry"
baseline_profile: str | None = None
candidate_profile: str | None = None
run_dir: str = "evidence/interactive"

# %%
from fusionkit.phases.integrate import given_profiles, integrate
from fusionkit.phases.study import open_study
from fusionkit.widgets import views

study = open_study(globals())

# %% [markdown]
# ## Layer 1: hits

# %%
integration = integrate(study, given_profiles(baseline_profile, candidate_profile), second_target)
views.table(integration.hit_rows(), "Hits and counted sites", empty="no fusion takes part in this run")

# %% [markdown]
# ## Layer 2: kernels
# Kernel counts of one step. `baseline_profile` and `candidate_profile` take two kernel_details.csv of an NPU. On target cpu the profile
# is torch's, in torch_npu's columns: kernel counts are valid, durations are not NPU times.

# %%
views.chart(
    integration.kernel_rows(),
    "kernel",
    ["eager", "compiled"],
    "Kernels whose count changed: calls per step",
    empty=integration.why_empty("kernels"),
)

# %% [markdown]
# ## Layer 3: numbers
# Errors relative to float64, in ulps of the dtype. Only the float32 run of the whole model is a gate: the table of scale defects shows
# how large a defect in every fused op must be before the comparison in the working dtype refuses it.

# %%
views.table(
    integration.replay_rows(), "Each hit replayed on its own inputs", empty=integration.why_empty("numbers")
)

# %%
views.table(integration.model_rows(), "The whole model", empty=integration.why_empty("numbers"))

# %%
views.table(
    integration.sensitivity_rows(),
    "Scale defects that the whole-model comparison refuses in the working dtype",
    empty=integration.why_empty("sensitivity"),
)

# %%
views.table(
    integration.reported_rows(),
    "Reported only; no gate uses these",
    empty=integration.why_empty("numbers"),
)

# %%
views.gates(integration.gates)

# %%
views.outcome(integration.write())
