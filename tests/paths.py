"""Where tests find the material that stays outside the project."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"

needs_shared = pytest.mark.skipif(
    not SHARED.is_dir(), reason="needs the shared material next to the project (../shared)"
)
