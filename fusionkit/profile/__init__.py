"""Kernel records: load, collect, compare."""
