"""One fusion per file."""
