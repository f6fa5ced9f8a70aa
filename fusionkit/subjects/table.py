"""The models under investigation: one literal row each, with a tiny and the published full size.

A tiny configuration has the architecture and the op constraints of the full one (even head sizes, rotary
axes that add up to the head size, grouped key/value heads); only widths, depths and token counts differ.
The rows are in diffusion_models and language_models.
"""

from __future__ import annotations

from collections.abc import Mapping

from fusionkit.errors import near_names
from fusionkit.subjects.diffusion_models import DIFFUSION_MODELS
from fusionkit.subjects.language_models import LANGUAGE_MODELS
from fusionkit.subjects.spec import SubjectSpec

SUBJECTS: Mapping[str, SubjectSpec] = {spec.name: spec for spec in (*DIFFUSION_MODELS, *LANGUAGE_MODELS)}


def is_capsule(name: str) -> bool:
    """Whether the name of a subject is that of a capsule file."""
    return name.endswith(".json")


def unknown_subject(name: str) -> str:
    """One line on a name that the table lacks."""
    return (
        f"unknown subject '{name}'; {near_names(name, sorted(SUBJECTS))}; or your own model as module:factory"
    )
