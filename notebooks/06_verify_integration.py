# %% [markdown]
# # Phase 6: hits, kernels, numbers
#
# Three layers, in this order; a later one is not run when an earlier one fails. Hits: every counted site. Kernels: the fused kernel is in the compiled
# profile and not in the eager one, and what it replaced is gone. Numbers: every site replayed on its own inputs, then the whole model in float32.

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
expected_sites: dict[str, int | None] = {
    "rms_norm": None,
    "rope": None,
    "swiglu": None,
    "ada_layer_norm": None,
    "gelu": None,
}
run_dir: str = "evidence/interactive"

# %%
from fusionkit.phases.integrate import integrate
from fusionkit.phases.study import open_study
from fusionkit.widgets import views

study = open_study(
    subject=subject,
    size=size,
    target=target,
    dtype=dtype,
    seed=seed,
    window=window,
    decompositions=decompositions,
    patterns=patterns,
    pattern_file=pattern_file,
    expected_sites=expected_sites,
    run_dir=run_dir,
)

# %% [markdown]
# ## Layer 1: hits

# %%
integration = integrate(study)
views.table(integration.hit_rows(), "Hits against counted sites")

# %% [markdown]
# ## Layer 2: kernels
# On target cpu the profile is torch's own, in torch_npu's columns: counts count, durations are no NPU time.

# %%
views.chart(integration.kernel_rows(), "kernel", ["eager", "compiled"], "Kernels whose count changed")

# %% [markdown]
# ## Layer 3: numbers

# %%
views.table(integration.replay_rows(), "Each hit replayed")

# %%
views.table(integration.model_rows(), "The whole model")

# %%
views.table(integration.sensitivity_rows(), "What the whole-model comparison can see in the working dtype")

# %%
views.gates(integration.gates)

# %%
views.outcome(integration.write())
