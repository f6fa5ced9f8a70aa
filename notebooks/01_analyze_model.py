# %% [markdown]
# # Phase 1: analyze the model
#
# **Question:** which primitives does this model contain, where do their arguments come from, and which fusions are candidates?
#
# The model is captured by torch.compile in both windows. The phase shows the source code of every counted primitive, the origin
# of its arguments in each window, and one row per candidate fusion: decision, reuse of an existing pattern, expected benefit,
# path, reason.

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
# ## Graphs by window and target
# The second target is captured in a separate process. On npu-dry the graph is that of an NPU, without numbers or times.

# %%
analysis = analyze(study, api_stage, second_target)
views.table(analysis.graph_rows(), "Graphs of the compile", empty="the compile gave no graph")

# %%
views.table(
    analysis.op_rows(), "Ops whose call count differs between the targets", empty=analysis.why_no_difference()
)

# %%
views.table(
    analysis.site_rows(), "Sites whose status differs between the targets", empty=analysis.why_no_difference()
)

# %%
views.table(
    [row.to_dict() for row in analysis.candidates], "Candidate fusions, by the sites counted in eager mode"
)

# %% [markdown]
# ## Source code of the primitives

# %%
views.source(analysis.fragments)

# %% [markdown]
# ## Origin of the pattern arguments
# The kind of the graph node that each pattern argument is bound to. A weight is a placeholder before freezing and may be a
# get_attr, a constant of the graph, after it.

# %%
views.table(
    analysis.parameters,
    "Node kind of each pattern argument, by window",
    empty="no existing pattern matches in either window",
    merge=["pattern"],
)

# %%
views.gates(analysis.gates)

# %%
views.outcome(analysis.write())
