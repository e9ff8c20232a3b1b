"""Lets every Python test import the reference, and the helpers beside it."""

import os
import sys
from pathlib import Path

# The matrices are small: threads would only wait for each other. NumPy reads this when it is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "reference"), str(ROOT / "tests" / "conformance"), str(ROOT / "tests" / "golden")]
