# %% [markdown]
# # Phase 4: right numbers, and a match on the extracted code
#
# **Question:** does each replacement compute what its pattern computes, and does the pattern match the code it was made for?
#
# Two verdicts. Numbers: search function and replacement are called directly, on random inputs of several magnitudes, and held against float64.
# On every target they are computed on the CPU, by the reference kernels of target cpu.
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
expected_sites: dict[str, int | None] = {}  # your own counts, by the name of a fusion
run_dir: str = "evidence/interactive"

# %%
from fusionkit.phases.study import open_study
from fusionkit.phases.unit import verify_unit
from fusionkit.widgets import views

study = open_study(globals())

# %% [markdown]
# ## Numbers
# Errors are against float64, in ulps of the output's dtype; the limit is twice the error of the original code, at least 1 ulp. Inputs: `own`, as drawn for
# the variant's example shapes; `mean_square`, activations of that mean square.

# %%
unit = verify_unit(study)
views.table(
    unit.number_rows(),
    "Search function against replacement",
    empty="no variant of a pattern takes part in this run",
    merge=["pattern", "variant"],
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
