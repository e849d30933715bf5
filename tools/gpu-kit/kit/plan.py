"""The steps, the most telling ones first. Their limits are shares of the time, and more than all of
it, because few steps use theirs up."""

from collections.abc import Callable
from dataclasses import dataclass

from kit.steps import clinfo, examples, faults, frameworks, here, papers, right, speed


@dataclass
class Step:
    name: str
    limit_s: int
    # A step that has less time than this does not begin.
    least_s: int
    what: str
    work: Callable


STEPS = [
    Step("here", 60, 5, "GPU, driver, penstock doctor and devices, confinement", here.work),
    Step("native", 40, 5, "native.c on the driver and on pools, pinned.c on pools", right.native),
    Step("cuda", 120, 10, "CUDA tests and examples on the driver and on pools", right.cuda),
    Step("speed", 90, 10, "calls and copies beside the driver's own", speed.calls),
    Step("opencl", 60, 10, "OpenCL C tests on NVIDIA's driver and on a pool", right.opencl),
    Step("clinfo", 20, 5, "clinfo's answers on NVIDIA's driver and on a pool", clinfo.work),
    Step("faults", 45, 10, "kill -9 of clients and workers within a kernel", faults.work),
    Step("frameworks", 110, 15, "PyTorch, CuPy, numba, Triton, JAX", frameworks.work),
    Step("sharing", 45, 10, "one, two and eight clients of one GPU", papers.sharing),
    Step("heaps", 60, 10, "symmetric heaps on the GPU", papers.heaps),
    Step("comm", 90, 20, "communication between devices and through the hosts", papers.comm),
    Step("check", 60, 10, "random programs of penstock check", right.check),
    Step("examples", 60, 10, "times of the examples beside the driver", examples.work),
    Step("energy", 170, 120, "energy of that communication", papers.energy),
]
