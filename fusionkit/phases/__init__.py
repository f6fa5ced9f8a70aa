"""The phases, one module per notebook: each runs the analysis and returns table rows, gates and the phase record."""
