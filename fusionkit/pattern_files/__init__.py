"""Pattern files from anywhere: loading with stand-in names and time limits, their names, and lint of their text."""
