"""The models under investigation: one literal row each, with a tiny and the published full size.

A tiny configuration has the architecture and the op constraints of the full one (even head sizes, rotary
axes that add up to the head size, grouped key/value heads); only widths, depths and token counts differ.
The rows are in image_models, video_models, language_models and expert_models.
"""

from __future__ import annotations

from collections.abc import Mapping

from fusionkit.subjects.expert_models import EXPERT_MODELS
from fusionkit.subjects.image_models import IMAGE_MODELS
from fusionkit.subjects.language_models import LANGUAGE_MODELS
from fusionkit.subjects.spec import SIZES, SizeSpec, SubjectSpec
from fusionkit.subjects.video_models import VIDEO_MODELS

__all__ = ["SIZES", "SUBJECTS", "SizeSpec", "SubjectSpec"]

SUBJECTS: Mapping[str, SubjectSpec] = {
    spec.name: spec for spec in (*IMAGE_MODELS, *VIDEO_MODELS, *LANGUAGE_MODELS, *EXPERT_MODELS)
}
