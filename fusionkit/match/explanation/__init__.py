"""Why a pattern misses: the alignment of pattern and graph, the answer of torch's matcher, and trial runs."""
