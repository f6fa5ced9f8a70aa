"""The models under investigation: one literal row each, with a tiny and the published full size.

A tiny configuration has the architecture and the op constraints of the full one (even head sizes, rotary
axes that add up to the head size, grouped key/value heads); only widths, depths and token counts differ.
The rows are in diffusion_models and language_models.
"""

from __future__ import annotations

from collections.abc import Mapping

from fusionkit.subjects.diffusion_models import DIFFUSION_MODELS
from fusionkit.subjects.language_models import LANGUAGE_MODELS
from fusionkit.subjects.spec import SubjectSpec

SUBJECTS: Mapping[str, SubjectSpec] = {spec.name: spec for spec in (*DIFFUSION_MODELS, *LANGUAGE_MODELS)}
