"""The three schemes against copies that compilation added, in the order in which to try them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fusionkit.encoding import Result
from fusionkit.profile.kernel_records import KernelRecord, Profile
from fusionkit.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Scheme(Result):
    """A scheme; `applies` is None if the profile cannot decide; `why` gives the reason in each case."""

    scheme: str
    title: str
    applicability: str
    applies: bool | None
    why: str


SCHEMES: tuple[tuple[str, str, str], ...] = (
    ("A", "repair the matches first", "missed sites keep their small kernels and the copies between them"),
    ("B", "mixed mode: VAE eager, transformer compiled", "the copies sit around convolutions (3D VAE)"),
    ("C", "graph replay", "shapes are static, or the batch is large, and launching is what costs"),
)
"""Letter, title and when it applies. The order is the order of trial: A before B before C."""


def choose_schemes(profile: Profile, verdict: Verdict, missed_sites: int | None) -> tuple[Scheme, ...]:
    """All three schemes, each with whether it applies and why; none applies if no copies increased."""
    answers: dict[str, tuple[bool | None, str]] = {
        "A": _repair(missed_sites),
        "B": _mixed_mode(profile),
        "C": _replay(profile),
    }
    if verdict is Verdict.PASS:
        answers = dict.fromkeys(answers, (False, "the copies did not rise"))
    return tuple(Scheme(letter, title, when, *answers[letter]) for letter, title, when in SCHEMES)


def _repair(missed_sites: int | None) -> tuple[bool | None, str]:
    if missed_sites is None:
        return None, "the number of missed sites was not given; look at the misses first"
    if missed_sites:
        return True, f"{missed_sites} sites are missed"
    return False, "no site is missed"


def _mixed_mode(profile: Profile) -> tuple[bool | None, str]:
    if not profile.records:
        return None, "the profile has no kernels"
    count = sum(_is_convolution(record) for record in profile.records)
    if count:
        return True, f"{count} convolution kernels in the profile: try that part eager"
    return False, "no convolution kernel in the profile, so no part of a VAE"


def _replay(profile: Profile) -> tuple[bool | None, str]:
    """Static when two or more steps launch the same kernels on the same shapes in the same order."""
    steps: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
    for record in profile.records:
        if record.step is not None:
            steps.setdefault(record.step, []).append((record.key, record.input_shapes))
    if len(steps) < 2:
        return None, "one step cannot show whether shapes are static; profile two or more"
    first, *others = steps.values()
    if all(other == first for other in others):
        return True, f"{len(steps)} steps launch the same kernels on the same shapes"
    return False, "the steps launch different kernels or shapes"


def _is_convolution(record: KernelRecord) -> bool:
    return re.search(r"conv(olution|[123]d)", f"{record.type} {record.key}", re.IGNORECASE) is not None
