"""Runs one kernel for some seconds: spin.py SECONDS. Prints "running" when it has started."""

import ctypes
import sys
import time

MODULE = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 nanoseconds)
{
.reg .pred %p<2>; .reg .b64 %d<5>;
ld.param.u64 %d1, [nanoseconds];
mov.u64 %d2, %globaltimer;
again:
mov.u64 %d3, %globaltimer;
sub.u64 %d4, %d3, %d2;
setp.lt.u64 %p1, %d4, %d1;
@%p1 bra again;
ret;
}
"""

cuda = ctypes.CDLL("libcuda.so.1")


def good(name, *words):
    code = getattr(cuda, name)(*words)
    if code:
        print(f"{name}: {code}", flush=True)
        sys.exit(3)


context, module, function = (ctypes.c_void_p() for _ in range(3))
good("cuInit", 0)
good("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
good("cuCtxSetCurrent", context)
address = ctypes.c_uint64()
good("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(512 << 20))
good("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(MODULE))
good("cuModuleGetFunction", ctypes.byref(function), module, b"spin")
nanoseconds = ctypes.c_uint64(int(float(sys.argv[1]) * 1e9))
words = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(nanoseconds), ctypes.c_void_p))
good("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, words, None)
time.sleep(0.3)
print("running", flush=True)
began = time.monotonic()
code = cuda.cuCtxSynchronize()
print(f"synchronize: {code} after {time.monotonic() - began:.2f} s", flush=True)
sys.exit(3 if code else 0)
