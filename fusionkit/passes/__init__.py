"""From flags to matches: the pattern registry, the match pass, the torch.compile backend."""

from fusionkit.passes.registry import pattern_registry

__all__ = ["pattern_registry"]
