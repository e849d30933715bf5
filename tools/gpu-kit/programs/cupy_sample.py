"""CuPy: arrays, a kernel of ours, a sort and a product."""

import cupy as cp
import numpy as np
import stages


def arrays():
    x = np.arange(10000, dtype=np.float32)
    return f"off by {np.abs(cp.asnumpy(cp.asarray(x) * 2 + 1) - (x * 2 + 1)).max():.0e}"


def raw_kernel():
    source = (
        'extern "C" __global__ void twice(float *v, int n) '
        "{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) v[i] *= 2; }"
    )
    v = cp.arange(1000, dtype=cp.float32)
    cp.RawKernel(source, "twice")((4,), (256,), (v, 1000))
    return f"{float(v.sum())}"


def reduction():
    return f"{float(cp.arange(10000, dtype=cp.float32).sum())}"


def sort():
    return f"{int(cp.sort(cp.arange(1000)[::-1])[0])}"


def matmul():
    a = np.random.default_rng(1).random((128, 128), dtype=np.float32)
    return f"off by {np.abs(cp.asnumpy(cp.asarray(a) @ cp.asarray(a)) - a @ a).max() / 128:.0e}"


def random():
    return f"{float(cp.random.default_rng(3).random(1000).mean()):.6f}"


ALL = (arrays, raw_kernel, reduction, sort, matmul, random)
stages.run({stage.__name__: stage for stage in ALL})
