"""Two devices, whatever the machine has: PoCL shows as many as it is told."""

import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

os.environ.setdefault("POCL_DEVICES", "pthread pthread")
os.environ.setdefault("PENSTOCK_WATER_LIBRARY", str(ROOT / "target/release/libwater.so"))
