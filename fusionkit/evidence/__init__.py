"""The evidence of a run, and its verification."""
