"""A C++ template that NVRTC compiles at run time and cuda.core launches. A compiler error must be
reported as such."""

import sys

import numpy as np
from cuda.bindings import driver
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

SOURCE = r"""
template <typename T> struct Scale { T factor; int shift; };

template <typename T>
__global__ void saxpy(Scale<T> scale, const T *x, const T *y, T *out, size_t count)
{
    for (size_t at = blockIdx.x * blockDim.x + threadIdx.x; at < count; at += gridDim.x * blockDim.x)
        out[at] = scale.factor * x[at] + y[at] + scale.shift;
}
"""


def checked(answer):
    if answer[0] != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(answer[0])


def run(device, module, name, dtype):
    count = 20_011
    rng = np.random.default_rng(7)
    x, y = rng.random(count).astype(dtype), rng.random(count).astype(dtype)
    stream = device.create_stream()
    buffers = [device.allocate(x.nbytes, stream=stream) for _ in range(3)]
    for buffer, values in zip(buffers, (x, y)):
        checked(
            driver.cuMemcpyHtoDAsync(
                int(buffer.handle), values.ctypes.data, values.nbytes, stream.handle
            )
        )
    scale = np.array(
        [(2.5, 3)], dtype=np.dtype([("factor", dtype), ("shift", np.int32)], align=True)
    )
    kernel = module.get_kernel(name)
    out = np.zeros_like(x)
    # The structure is passed by value: its bytes are the kernel's first parameter.
    addresses = [np.array([int(buffer.handle)], dtype=np.uint64) for buffer in buffers]
    size = np.array([count], dtype=np.uint64)
    values = [scale, addresses[0], addresses[1], addresses[2], size]
    pointers = np.array([value.ctypes.data for value in values], dtype=np.uint64)
    checked(
        driver.cuLaunchKernel(
            int(kernel.handle), 16, 1, 1, 128, 1, 1, 0, stream.handle, pointers.ctypes.data, 0
        )
    )
    checked(
        driver.cuMemcpyDtoHAsync(out.ctypes.data, int(buffers[2].handle), out.nbytes, stream.handle)
    )
    stream.sync()
    expected = dtype(2.5) * x + y + dtype(3)
    error = float(np.max(np.abs(out - expected)))
    tolerance = 4 * float(np.finfo(dtype).eps) * 8
    print(
        f"saxpy<{np.dtype(dtype).name}>: {count} values, largest error {error:.1e} (tolerance {tolerance:.1e})"
    )
    return error <= tolerance


def run_plain(device):
    """The library's own launch function, with scalars as arguments."""
    source = 'extern "C" __global__ void fill(int *to, int value, int count) { int at = blockIdx.x * blockDim.x + threadIdx.x; if (at < count) to[at] = value + at; }'
    module = Program(source, code_type="c++", options=ProgramOptions(arch="compute_75")).compile(
        "ptx"
    )
    stream = device.create_stream()
    count = 1000
    memory = device.allocate(4 * count, stream=stream)
    launch(
        stream,
        LaunchConfig(grid=8, block=128),
        module.get_kernel("fill"),
        memory,
        np.int32(40),
        np.int32(count),
    )
    stream.sync()
    got = np.zeros(count, dtype=np.int32)
    driver.cuMemcpyDtoH(got.ctypes.data, int(memory.handle), got.nbytes)
    return bool(np.array_equal(got, np.arange(40, 40 + count)))


def main():
    device = Device(0)
    device.set_current()
    print(
        f"{device.name}, compute capability {device.compute_capability.major}.{device.compute_capability.minor}"
    )
    program = Program(
        SOURCE, code_type="c++", options=ProgramOptions(std="c++17", arch="compute_75")
    )
    module = program.compile("ptx", name_expressions=("saxpy<float>", "saxpy<double>"))
    passed = run(device, module, "saxpy<float>", np.float32)
    passed &= run(device, module, "saxpy<double>", np.float64)
    passed &= run_plain(device)
    try:
        Program("__global__ void broken( {", code_type="c++").compile("ptx")
        passed = False
    except Exception as error:  # the class is the library's own
        passed &= "error" in str(error)
    return passed


if __name__ == "__main__":
    ok = main()
    print("Test passed" if ok else "Test failed")
    sys.exit(0 if ok else 1)
