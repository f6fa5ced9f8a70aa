# %% [markdown]
# # Phase 4: verify pattern and replacement as units
#
# **Question:** does each replacement compute the same as its pattern, and does the pattern match the code for which it was written?
#
# Two verdicts. Numbers: search function and replacement are called directly on random inputs of several magnitudes, and compared
# with a float64 reference. On every target they run on the CPU, with the reference kernels of target cpu.
# Match: the smallest module around each kind of site is compiled separately. Wrong numbers stop the run; a missed unit does not,
# since phase 5 explains it.
#
# **A matched unit is not a hit.** The unit graph comes from the same code as the pattern.

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
from fusionkit.phases.study import open_study
from fusionkit.phases.unit import verify_unit
from fusionkit.widgets import views

study = open_study(globals())

# %% [markdown]
# ## Numbers
# Errors relative to float64, in ulps of the output's dtype; the limit is twice the error of the original code, at least 1 ulp.
# Inputs: `own`, drawn for the variant's example shapes; `mean_square`, activations of that mean square.

# %%
unit = verify_unit(study)
views.table(
    unit.number_rows(),
    "Replacement compared with search function",
    empty="no variant of a pattern takes part in this run",
    merge=["pattern", "variant"],
)

# %%
views.table(
    unit.search_rows(),
    "Search for an input that shows a difference",
    empty="nothing was searched: no variant takes part in this run, or its original raised",
    merge=["pattern"],
)

# %% [markdown]
# ## Match

# %%
views.table(
    unit.matches,
    "Unit graphs",
    empty="no site of these fusions was counted, so there is no unit to compile",
    merge=["pattern"],
)

# %% [markdown]
# ## Gates

# %%
views.gates(unit.gates)

# %%
views.outcome(unit.write())
