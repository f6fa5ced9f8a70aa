"""Execution of notebooks: plan, kernel, limits, errors, manifest."""
