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
for kind in (np.int32, np.float32):
    values = rng.integers(-1000, 1000, COUNT).astype(kind)
    on_device = cp.asarray(values)
    if not np.array_equal(cp.asnumpy(cp.sort(on_device)), np.sort(values)):
        wrong.append(f"sort {kind.__name__}")
    # CuPy's sort of indices is stable.
    order = cp.asnumpy(cp.argsort(on_device))
    if not np.array_equal(order, np.argsort(values, kind="stable")):
        wrong.append(f"argsort {kind.__name__}")
print("wrong: " + ", ".join(wrong) if wrong else "Test passed")
sys.exit(1 if wrong else 0)
