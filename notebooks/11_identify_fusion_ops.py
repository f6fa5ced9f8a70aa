# %% [markdown]
# # Phase 11: identify fused ops
#
# **Question:** which code of this model can torch_npu's fused ops replace, is each replacement correct, and which ones do you choose?
#
# The source is read, not imported. With `prove`, replacements run beside their originals on target cpu. No model code is changed:
# the choice at the end writes a confirmation bound to this report, and nothing is replaced without one.

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

identification = identify_fusion_ops(
    paths=paths, root_dir=root_dir, lang=lang, profile_file=profile_file, prove=prove, run_dir=run_dir
)
views.table(identification.summary_rows(), "Common ops")

# %% [markdown]
# ## Candidates

# %%
views.table(
    identification.candidate_rows(),
    "Candidates; identical code is listed once",
    empty="no code that a fused op replaces",
)

# %%
views.texts(identification.replacement_rows(), "candidate", "diff", empty="no replacement was written")

# %%
views.table(identification.refused_rows(), "Without a replacement", empty="every candidate has a replacement")

# %%
views.table(
    identification.sequence_rows(),
    "Sequences of kernels in the profile",
    empty="no profile was given, or no sequence occurs in it",
)

# %%
views.table(identification.order_rows(), "Suggested order", empty="nothing is recommended")

# %%
views.table(identification.checklist_rows(), "Decision checklist")

# %% [markdown]
# ## Choice
#
# Prefer the first candidates of the suggested order; then run the cells below again. Deferred candidates can be chosen, their reason is
# shown; a candidate that is not recommended only by its id in `chosen`, with your reason in `despite`.

# %%
chooser = candidate_chooser(identification.choices(), chosen)
chooser

# %%
views.table(
    identification.choice_rows(chosen_ids(chooser, chosen)),
    "Selectable and chosen candidates",
    empty="nothing to choose",
)

# %%
views.outcome(identification.write(chosen_ids(chooser, chosen), confirmed_by, despite))
