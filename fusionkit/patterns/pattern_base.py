"""PatternBase: the base class of every pattern, in a form that several compile backends accept."""

from __future__ import annotations

from typing import Any

import torch


class PatternBase:
    """One variant of a fusion, as four static methods; usually made by a `create(dtype, ...)` factory.

    The trace of `pattern` is searched for, and each match is replaced by the trace of `replacement`; both take
    the same arguments. `inputs` returns example tensors (device meta) for the arguments without a default.
    An argument with a default is a number that is read from the graph: `scalars` gives each one a stand-in value
    that occurs nowhere else in the trace, by which the tracer recognises it. `activations` names the arguments
    that a numeric replay draws at random; the others (weights, tables) keep the site's values.
    """

    @staticmethod
    def name() -> str:
        """Unique name of this variant."""
        raise NotImplementedError("a pattern needs a static method name()")

    @staticmethod
    def inputs() -> list[torch.Tensor]:
        """Example tensors on device meta, one for each argument of `pattern` without a default."""
        raise NotImplementedError("a pattern needs a static method inputs()")

    @staticmethod
    def pattern(*args: Any) -> Any:
        """The computation that is searched for."""
        raise NotImplementedError("a pattern needs a static method pattern(...)")

    @staticmethod
    def replacement(*args: Any) -> Any:
        """The computation that takes its place."""
        raise NotImplementedError("a pattern needs a static method replacement(...)")

    @staticmethod
    def scalars() -> dict[str, float]:
        """Argument name -> a stand-in value for the first trace, unique within the pattern."""
        return {}

    @staticmethod
    def activations() -> tuple[str, ...]:
        """Names of the arguments that vary from call to call; empty: the first argument alone."""
        return ()
