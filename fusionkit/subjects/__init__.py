"""Models under investigation."""
