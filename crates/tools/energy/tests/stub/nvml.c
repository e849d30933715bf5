/* A stub of NVIDIA's management library. It reads its answers from files in its folder: gpus,
 * gpuN.energy (mJ), gpuN.power (mW), gpuN.instant (mW). Functions without a file are not supported.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4 };

typedef struct {
    unsigned fieldId, scopeId;
    long long timestamp, latencyUsec;
    unsigned valueType, nvmlReturn;
    union {
        unsigned ui;
        uint64_t ull;
    } value;
} field_value;

static int inits;

static int read_number(const char *name, unsigned long long *number) {
    char path[4096];
    Dl_info info;
    dladdr((void *)&inits, &info);
    const char *end = strrchr(info.dli_fname, '/');
    snprintf(path, sizeof path, "%.*s/%s", (int)(end - info.dli_fname), info.dli_fname, name);
    FILE *file = fopen(path, "r");
    if (!file) return NOT_SUPPORTED;
    int fields = fscanf(file, "%llu", number);
    fclose(file);
    return fields == 1 ? SUCCESS : NO_PERMISSION;
}

static int of_device(void *device, const char *what, unsigned long long *number) {
    char name[64];
    if (inits <= 0) return UNINITIALIZED;
    if (!device) return INVALID_ARGUMENT;
    snprintf(name, sizeof name, "gpu%d.%s", (int)(intptr_t)device - 1, what);
    return read_number(name, number);
}

int nvmlInit_v2(void) {
    inits++;
    return SUCCESS;
}
int nvmlShutdown(void) { return inits-- > 0 ? SUCCESS : UNINITIALIZED; }
const char *nvmlErrorString(int code) {
    return code == NOT_SUPPORTED ? "Not Supported" : "Some Error";
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    unsigned long long number;
    int code = read_number("gpus", &number);
    *count = (unsigned)number;
    return code;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = (void *)(intptr_t)(index + 1);
    return SUCCESS;
}

int nvmlDeviceGetName(void *device, char *name, unsigned length) {
    snprintf(name, length, "Stub GPU %d", (int)(intptr_t)device - 1);
    return SUCCESS;
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *energy) {
    return of_device(device, "energy", energy);
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *power) {
    unsigned long long number = 0;
    int code = of_device(device, "power", &number);
    *power = (unsigned)number;
    return code;
}

int nvmlDeviceGetFieldValues(void *device, int count, field_value *values) {
    for (int i = 0; i < count; i++) {
        unsigned long long number = 0;
        values[i].nvmlReturn = values[i].fieldId == 186
                                   ? (unsigned)of_device(device, "instant", &number)
                                   : NOT_SUPPORTED;
        values[i].valueType = 1;
        values[i].value.ui = (unsigned)number;
    }
    return SUCCESS;
}
