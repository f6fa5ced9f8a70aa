"""Lets the tests of this folder import `made_profiles` from beside them, whatever pytest is started from."""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = str(Path(__file__).parent)
if FOLDER not in sys.path:
    sys.path.append(FOLDER)
