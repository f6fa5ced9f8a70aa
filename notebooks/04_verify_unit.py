# %% [markdown]
# # Phase 4: right numbers, and a match on the extracted code
#
# Two verdicts. Numbers: search function and replacement are called directly, on random inputs of several magnitudes, and held against float64.
# Match: the smallest module around each kind of site is compiled alone. Wrong numbers stop the run; a unit that is missed does not, phase 5 explains it.
#
# **A unit pass is no hit.** The unit graph is made from the same code as the pattern.

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
from fusionkit.phases.study import open_study
from fusionkit.phases.unit import verify_unit
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
# ## Numbers

# %%
unit = verify_unit(study)
views.table(unit.number_rows(), "Search function against replacement")

# %% [markdown]
# ## Match

# %%
views.table(unit.matches, "Unit graphs")

# %%
views.gates(unit.gates)

# %%
views.outcome(unit.write())
