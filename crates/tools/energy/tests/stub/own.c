/* A library of NVML's name with Penstock's mark. Initialising it would open the pool. */
#include <stdlib.h>

unsigned penstock_nvml(void) { return 0; }
int nvmlInit_v2(void) { abort(); }
int nvmlShutdown(void) { abort(); }
int nvmlDeviceGetCount_v2(unsigned *count) {
    (void)count;
    abort();
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    (void)index;
    (void)device;
    abort();
}
int nvmlDeviceGetName(void *device, char *name, unsigned length) {
    (void)device;
    (void)name;
    (void)length;
    abort();
}
