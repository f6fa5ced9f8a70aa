"""What the rules find in a piece of source: shared by the tests of every rule."""

import textwrap
from pathlib import Path

from fusionkit.identify.scan_file import sites_of_text

HEAD = """
import math
import torch
import torch.nn.functional as F
from torch import nn
"""


def found(code):
    """symbol -> op -> hazards."""
    told = {}
    for site in sites_of_text(Path("model.py"), HEAD + textwrap.dedent(code)):
        told.setdefault(site.symbol, {})[site.op] = set(site.hazards)
    return told


def module(forward, init=""):
    lines = textwrap.indent(textwrap.dedent(forward).strip(), "        ")
    built = textwrap.indent(textwrap.dedent(init).strip(), "        ")
    return (
        f"class M(nn.Module):\n    def __init__(self, config, dim, eps):\n        super().__init__()\n{built}\n\n"
        + (f"    def forward(self, x, mask=None):\n{lines}\n")
    )
