/* Properties of the stand-in for CUDA's driver and of its devices. If CUDA_STANDIN_NO_REGISTER is
 * set in the environment, the devices cannot map host memory. If CUDA_STANDIN_INTEGRATED is set,
 * they are integrated GPUs, for which the back end maps none. */

/* -- devices ----------------------------------------------------------------------------------- */

/* As NVIDIA's driver 580, does not start where it cannot write the name of a thread. Opening the
 * file also empties it, which is a right of its own. */
CUresult cuInit(unsigned flags) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/comm", (int)gettid());
    FILE *name = fopen(path, "w");
    if (!name) return 304; /* CUDA_ERROR_OPERATING_SYSTEM */
    fclose(name);
    return flags ? INVALID_VALUE : OK;
}
CUresult cuDriverGetVersion(int *out) { return *out = 13000, OK; }
CUresult cuDeviceGetCount(int *out) { return *out = 2, OK; }
CUresult cuDeviceGet(int *out, int index) { return *out = index, index < 2 ? OK : 101; }
CUresult cuDeviceGetName(char *out, int bytes, int device) {
    return snprintf(out, bytes, "Stand-in GPU %d", device), OK;
}
CUresult cuDeviceTotalMem_v2(size_t *out, int device) {
    (void)device;
    return *out = GLOBAL_BYTES, OK;
}
CUresult cuDeviceGetPCIBusId(char *out, int bytes, int device) {
    return snprintf(out, bytes, "0000:0%d:00.0", device + 1), OK;
}
CUresult cuDeviceGetUuid_v2(unsigned char *out, int device) {
    return memset(out, 0x50 + device, 16), OK;
}
static int is_set(const char *variable) { return getenv(variable) != NULL; }
CUresult cuDeviceGetAttribute(int *out, unsigned attribute, int device) {
    (void)device;
    switch (attribute) {
    case 1:
    case 2:
    case 3: *out = 1024; return OK;
    case 4: *out = 64; return OK;
    case 8: *out = 48 << 10; return OK;
    case 10: *out = 32; return OK;
    case 13: *out = 1500000; return OK;
    case 16: *out = UNITS; return OK;
    case 18: *out = is_set("CUDA_STANDIN_INTEGRATED"); return OK;
    case 19:
    case 41:
    case 95: *out = 1; return OK;
    case 99: *out = !is_set("CUDA_STANDIN_NO_REGISTER"); return OK;
    case 75: *out = 7; return OK;
    case 76: *out = 5; return OK;
    case 97: *out = SHARED_MAX; return OK;
    default: return attribute < 148 ? (*out = 0, OK) : INVALID_VALUE;
    }
}
CUresult cuDevicePrimaryCtxRetain(void **out, int device) {
    return *out = (void *)(uint64_t)(device + 1), OK;
}
CUresult cuCtxSetCurrent(void *context) { return current = (int)(uint64_t)context, sticky; }
