"""Why a pattern misses: the alignment of pattern and graph, and what torch's matcher and further runs say."""
