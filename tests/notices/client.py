#!/usr/bin/env python3
"""A program with one of our libraries, for the tests of what the library prints.

    client.py opencl|cuda|nvml LIBRARY [wait]

It loads the library as programs do and prints `pool` or `nothing`. With `wait` it keeps a queue
open until a line arrives on standard input, uses the queue three times, prints the code of the last
use, and ends normally.
"""

import ctypes
import sys

kind, path, *more = sys.argv[1:]
library = ctypes.CDLL(path)
Pointer = ctypes.c_void_p
if kind == "opencl":
    platform, count = Pointer(), ctypes.c_uint()
    code = library.clGetPlatformIDs(1, ctypes.byref(platform), ctypes.byref(count))
elif kind == "cuda":
    code = library.cuInit(0)
else:
    code = library.nvmlInit_v2()
    # Tools initialise NVML repeatedly.
    library.nvmlInit_v2()
print("nothing" if code else "pool", flush=True)
if more and not code:
    library.clCreateContext.restype = library.clCreateCommandQueueWithProperties.restype = Pointer
    device, status = Pointer(), ctypes.c_int()
    library.clGetDeviceIDs(platform, ctypes.c_ulong(0xFFFFFFFF), 1, ctypes.byref(device), None)
    context = Pointer(
        library.clCreateContext(None, 1, ctypes.byref(device), None, None, ctypes.byref(status))
    )
    queue = Pointer(
        library.clCreateCommandQueueWithProperties(context, device, None, ctypes.byref(status))
    )
    assert library.clFinish(queue) == 0
    print("ready", flush=True)
    sys.stdin.readline()
    codes = []
    for _ in range(3):
        codes.append(library.clEnqueueMarkerWithWaitList(queue, 0, None, None))
        codes.append(library.clFinish(queue))
    print("worked" if not any(codes) else "failed", flush=True)
