"""Misses on purpose: seeded changes of patterns and graphs, each with a label that does not come from the kit's explain."""
