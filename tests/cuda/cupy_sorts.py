"""CuPy's sorts, whose kernels are Thrust's, compared with numpy."""

import os
import sys

os.environ["CUPY_CACHE_IN_MEMORY"] = "1"

import numpy as np

try:
    import cupy as cp
except ImportError:
    print("no CuPy: run `tools/setup.sh cuda`")
    sys.exit(77)

COUNT = 100_000
rng = np.random.default_rng(3)
wrong = []
values = rng.integers(-1000, 1000, COUNT).astype(np.int32)
if not np.array_equal(cp.asnumpy(cp.sort(cp.asarray(values))), np.sort(values)):
    wrong.append("sort")
# CuPy's sort of indices is stable.
keys = values.astype(np.float32)
if not np.array_equal(cp.asnumpy(cp.argsort(cp.asarray(keys))), np.argsort(keys, kind="stable")):
    wrong.append("argsort")
print("wrong: " + ", ".join(wrong) if wrong else "Test passed")
sys.exit(1 if wrong else 0)
