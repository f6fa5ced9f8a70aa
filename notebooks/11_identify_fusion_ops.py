# %% [markdown]
# # Phase 11: identify fused ops
#
# **Question:** which code of this model can torch_npu's fused ops replace, is each replacement right, and which of them are wanted?
#
# The source is read, never imported. With `prove`, replacements are run beside their originals on target cpu. No model code is changed:
# the choice at the end writes a confirmation of this very report, without which nothing is replaced.

# %% tags=["parameters"]
paths: list[str] = ["transformers.models.llama"]
root_dir: str | None = None
lang: str = "zh"
profile_file: str | None = None
prove: bool = False
chosen: list[str] = []
confirmed_by: str = ""
despite: str = ""
run_dir: str = "evidence/interactive"

# %%
from fusionkit.phases.identification import identify_fusion_ops
from fusionkit.widgets import views
from fusionkit.widgets.chooser import candidate_chooser, chosen_ids

found = identify_fusion_ops(
    paths=paths, root_dir=root_dir, lang=lang, profile_file=profile_file, prove=prove, run_dir=run_dir
)
views.table(found.summary_rows(), "Common ops")

# %% [markdown]
# ## Candidates

# %%
views.table(
    found.candidate_rows(), "Candidates, the same code once", empty="no code that a fused op replaces"
)

# %%
views.texts(found.replacement_rows(), "candidate", "diff", empty="no replacement was written")

# %%
views.table(found.refused_rows(), "Without a replacement", empty="every candidate has a replacement")

# %%
views.table(
    found.sequence_rows(), "Sequences of kernels in the profile", empty="no profile, or no sequence in it"
)

# %%
views.table(found.order_rows(), "Suggested order", empty="nothing is recommended")

# %%
views.table(found.checklist_rows(), "Decision checklist")

# %% [markdown]
# ## Choice
#
# Choose above all what stands first in the suggested order; then run the cells below again. What is deferred can be chosen, its reason
# beside it; what is not recommended only by its id in `chosen`, with the reason in `despite`.

# %%
chooser = candidate_chooser(found.choices(), chosen)
chooser

# %%
views.table(
    found.choice_rows(chosen_ids(chooser, chosen)),
    "What can be chosen, and what is",
    empty="nothing to choose",
)

# %%
views.outcome(found.write(chosen_ids(chooser, chosen), confirmed_by, despite))
