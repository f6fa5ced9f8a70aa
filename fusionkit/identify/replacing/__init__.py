"""Replacement code for a site: the fused op beside the original, as the file's new text and a unified diff."""

from fusionkit.identify.replacing.replacement import Refused, Replacement
from fusionkit.identify.replacing.site import outlined, replace_site

__all__ = ["Refused", "Replacement", "outlined", "replace_site"]
