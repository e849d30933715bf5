"""NVIDIA's own Python binding of NVML lists and watches the pool's devices. Its answers must be
right, and agree with CUDA's."""

import ctypes
import os
import sys
import time

import pynvml


def refused(call, *arguments):
    try:
        call(*arguments)
    except pynvml.NVMLError as error:
        return error.value
    return 0


def main():
    assert refused(pynvml.nvmlDeviceGetCount) == pynvml.NVML_ERROR_UNINITIALIZED
    pynvml.nvmlInit()
    pynvml.nvmlInit()
    pynvml.nvmlShutdown()
    count = pynvml.nvmlDeviceGetCount()
    assert count >= 1
    assert refused(pynvml.nvmlDeviceGetHandleByIndex, count) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    for index in range(count):
        device = pynvml.nvmlDeviceGetHandleByIndex(index)
        assert pynvml.nvmlDeviceGetIndex(device) == index
        name, uuid = pynvml.nvmlDeviceGetName(device), pynvml.nvmlDeviceGetUUID(device)
        bus = pynvml.nvmlDeviceGetPciInfo(device).busId
        for other in (
            pynvml.nvmlDeviceGetHandleByUUID(uuid),
            pynvml.nvmlDeviceGetHandleByPciBusId(bus),
        ):
            assert pynvml.nvmlDeviceGetIndex(other) == index
        memory, second = (
            pynvml.nvmlDeviceGetMemoryInfo(device),
            pynvml.nvmlDeviceGetMemoryInfo(device, pynvml.nvmlMemory_v2),
        )
        assert (
            memory.total == second.total
            and memory.used + memory.free == memory.total
            and 0 < memory.free <= memory.total
        )
        # A busy core must be visible.
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            pass
        busy = pynvml.nvmlDeviceGetUtilizationRates(device).gpu
        assert 10 <= busy <= 100, busy
        assert refused(pynvml.nvmlDeviceGetPowerUsage, device) == pynvml.NVML_ERROR_NOT_SUPPORTED
        assert (
            refused(pynvml.nvmlDeviceGetNvLinkState, device, 0) == pynvml.NVML_ERROR_NOT_SUPPORTED
        )
        print(f"{index}: {name} {uuid} {bus}, {memory.total >> 20} MiB, {busy} % busy")
    same_as_cuda(count)
    pynvml.nvmlShutdown()
    assert refused(pynvml.nvmlDeviceGetCount) == pynvml.NVML_ERROR_UNINITIALIZED
    print("Test passed")


def same_as_cuda(count):
    """The driver interface must give the same devices the same names."""
    cuda = ctypes.CDLL("libcuda.so.1")
    assert cuda.cuInit(0) == 0
    found = ctypes.c_int()
    assert cuda.cuDeviceGetCount(ctypes.byref(found)) == 0 and found.value == count
    for index in range(count):
        raw, bus = ctypes.create_string_buffer(16), ctypes.create_string_buffer(64)
        assert cuda.cuDeviceGetUuid(raw, index) == 0
        assert cuda.cuDeviceGetPCIBusId(bus, 64, index) == 0
        device = pynvml.nvmlDeviceGetHandleByIndex(index)
        assert raw.raw.hex() == pynvml.nvmlDeviceGetUUID(device).removeprefix("GPU-").replace(
            "-", ""
        )
        assert int(bus.value.split(b":")[0], 16) == pynvml.nvmlDeviceGetPciInfo(device).domain


if __name__ == "__main__":
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        sys.exit("CUDA_VISIBLE_DEVICES is set: CUDA would show fewer devices than NVML")
    main()
