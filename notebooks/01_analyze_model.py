# %% [markdown]
# # Phase 1: where the primitives are
#
# **Question:** which primitives does this model hold, where do their values come from, and which fusions are worth a try?
#
# The model is captured as torch.compile sees it, in both windows. Shown are the source of every counted primitive, where its
# values come from in each window, and one row per candidate fusion: whether it is reused, what it should bring, and which path it takes.
# A rejected candidate keeps its reason.

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
api_stage: str = ""
second_target: str | None = "npu-dry"
run_dir: str = "evidence/interactive"

# %%
from fusionkit.phases.analyze import analyze
from fusionkit.phases.study import open_study
from fusionkit.widgets import views

study = open_study(globals())

# %% [markdown]
# ## The graphs, window by window, and on a second target
# The second target is captured in a process of its own. On npu-dry the graph is the one that an NPU gets: a graph fact, never a number.

# %%
analysis = analyze(study, api_stage, second_target)
views.table(analysis.graph_rows(), "Graphs of the compile", empty="the compile gave no graph")

# %%
views.table(
    analysis.op_rows(), "Ops that the two targets call differently often", empty=analysis.why_no_difference()
)

# %%
views.table(
    analysis.site_rows(), "Sites whose state differs between the targets", empty=analysis.why_no_difference()
)

# %%
views.table(
    [row.to_dict() for row in analysis.candidates], "Candidate fusions, from the sites counted in eager mode"
)

# %% [markdown]
# ## The primitives' own source

# %%
views.source(analysis.fragments)

# %% [markdown]
# ## Where the arguments of each pattern come from
# A weight that is a placeholder in the window where the pattern runs is an argument of the pattern. A get_attr is a constant of the graph.

# %%
views.table(
    analysis.parameters,
    "Node behind each pattern argument, per window",
    empty="no existing pattern matches in either window",
    merge=["pattern"],
)

# %%
views.gates(analysis.gates)

# %%
views.outcome(analysis.write())
