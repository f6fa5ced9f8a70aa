"""From flags to matches: the pattern registry and the match pass."""
