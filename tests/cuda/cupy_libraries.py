"""CuPy over cuBLAS and cuFFT: products and transforms, compared with numpy."""

import os
import sys

os.environ["CUPY_CACHE_IN_MEMORY"] = "1"

import numpy as np

try:
    import cupy as cp
except ImportError:
    print("no CuPy: run `tools/setup.sh cuda`")
    sys.exit(77)

rng = np.random.default_rng(3)
wrong = []


def compare(name, function, *arrays, tolerance=1e-4):
    """Notes the name unless CuPy and numpy agree."""
    expected = function(np, *arrays)
    found = cp.asnumpy(function(cp, *(cp.asarray(array) for array in arrays)))
    if found.shape != np.shape(expected) or not np.allclose(found, expected, atol=tolerance):
        wrong.append(name)


left, right = rng.uniform(-1, 1, (6, 5)), rng.uniform(-1, 1, (5, 7))
for kind in (np.float32, np.float64, np.complex64, np.complex128, np.float16):
    a, b = left.astype(kind), right.astype(kind)
    near = 1e-2 if kind == np.float16 else 1e-4
    compare(f"dot {kind.__name__}", lambda xp, a, b: xp.dot(a, b), a, b, tolerance=near)
    many = lambda xp, a, b: xp.matmul(xp.stack([a, a]), xp.stack([b, b]))
    compare(f"matmul {kind.__name__}", many, a, b, tolerance=near)
compare("norm", lambda xp, a: xp.linalg.norm(a), left)
compare("tensordot", lambda xp, a, b: xp.tensordot(a, b, 1), left, right)
values = rng.uniform(-1, 1, (4, 6, 10))
for name in ("fft", "ifft", "rfft", "fft2", "rfft2", "fftn", "ifftn", "rfftn"):
    compare(name, lambda xp, a: getattr(xp.fft, name)(a), values)
compare("irfft", lambda xp, a: xp.fft.irfft(xp.fft.rfft(a)), values)
compare("irfftn", lambda xp, a: xp.fft.irfftn(xp.fft.rfftn(a)), values)
print("wrong: " + ", ".join(wrong) if wrong else "Test passed")
sys.exit(1 if wrong else 0)
