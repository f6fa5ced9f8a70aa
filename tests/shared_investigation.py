"""The parameter cell of the throw-away notebooks."""

PARAMETERS = """\
subject: str = "flux"
expected_sites: dict[str, int | None] = {"rms_norm": None, "rope": None}
pattern_file: str | None = None
run_dir: str = "evidence/interactive"
"""
