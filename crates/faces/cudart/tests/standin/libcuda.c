/* A stand-in for the driver. It has two devices, whose memory is this process's at addresses that
 * no host pointer has, and whose kernels are known by name. Enqueued work is done at once. Every
 * call is recorded for `standin_calls`.
 *
 * The image of a module is text, for example "STANDIN kernel fill kernel trap variable table 64".
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef uint64_t address;
enum {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY_FOR_GPU = 209,
    INVALID_PTX = 218,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    LAUNCH_FAILED = 719,
    NOT_SUPPORTED = 801
};

/* A device address is the host's, moved to a range where no program has memory. */
#define WINDOW ((address)1 << 62)
#define DEVICES 2
#define ALLOCATIONS_MAX 256
#define BYTES_MAX ((size_t)1 << 32)

static char calls[1 << 16];
static size_t calls_used;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void note(const char *format, ...) {
    va_list list;
    va_start(list, format);
    pthread_mutex_lock(&lock);
    size_t room = sizeof calls - calls_used;
    int used = vsnprintf(calls + calls_used, room, format, list);
    if (used > 0 && (size_t)used + 1 < room) {
        calls_used += (size_t)used;
        calls[calls_used++] = '\n';
        calls[calls_used] = 0;
    }
    pthread_mutex_unlock(&lock);
    va_end(list);
}

/* Returns the calls since this function was last called. The text is valid until the next call. */
const char *standin_calls(void) {
    static char copy[sizeof calls];
    pthread_mutex_lock(&lock);
    memcpy(copy, calls, sizeof calls);
    calls_used = 0;
    calls[0] = 0;
    pthread_mutex_unlock(&lock);
    return copy;
}

struct context {
    int device, alive, sticky;
};
static struct context primary[DEVICES];
static __thread struct context *current;
static int stream_busy, refused = -1;
static volatile int held;

void standin_stream_busy(int busy) { stream_busy = busy; }
/* Sets the ordinal of the device that cannot have a context; -1 for none. */
void standin_refuse(int device) { refused = device; }
/* Whether `cuModuleLoadDataEx` waits (`held`), and whether it is running (`loading`). */
static volatile int loading;
void standin_hold(int hold) { held = hold; }
int standin_loading(void) { return loading; }

static struct {
    char *memory;
    size_t bytes;
    int device;
} allocations[ALLOCATIONS_MAX];
static struct {
    char *memory;
    size_t bytes;
    unsigned flags;
} hosts[ALLOCATIONS_MAX];

static char *find(address at, size_t bytes) {
    char *host = (char *)(uintptr_t)(at - WINDOW);
    for (int i = 0; i < ALLOCATIONS_MAX; i++)
        if (allocations[i].memory && host >= allocations[i].memory &&
            host + bytes <= allocations[i].memory + allocations[i].bytes)
            return host;
    return NULL;
}
static address to_device(void *host) { return (address)(uintptr_t)host + WINDOW; }

#define CONTEXT()                                    \
    do {                                             \
        if (!current) return INVALID_CONTEXT;        \
        if (current->sticky) return current->sticky; \
    } while (0)

int cuInit(unsigned flags) {
    note("cuInit");
    return flags ? INVALID_VALUE : OK;
}
int cuDriverGetVersion(int *version) {
    *version = 13000;
    return OK;
}
int cuDeviceGetCount(int *count) {
    *count = DEVICES;
    return OK;
}
int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal + 40;
    return OK;
}
static int bad(int device) { return device < 40 || device >= 40 + DEVICES; }
int cuDeviceGetName(char *name, int length, int device) {
    if (bad(device)) return INVALID_DEVICE;
    snprintf(name, (size_t)length, "Stand-in %d", device - 40);
    return OK;
}
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    memset(uuid, device, 16);
    return OK;
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    *bytes = bad(device) ? 0 : BYTES_MAX;
    return OK;
}
int cuDeviceGetAttribute(int *value, unsigned attribute, int device) {
    if (bad(device) || attribute == 0 || attribute > 147) return INVALID_VALUE;
    switch (attribute) {
    case 1:
    case 2:
    case 3: *value = 1024; break;
    case 4: *value = 64; break;
    case 75: *value = 7; break;
    case 76: *value = device == 40 ? 5 : 9; break;
    default: *value = 1000 + (int)attribute;
    }
    return OK;
}
int cuDeviceCanAccessPeer(int *can, int device, int peer) {
    *can = device != peer;
    return OK;
}
int cuDevicePrimaryCtxRetain(struct context **context, int device) {
    if (bad(device)) return INVALID_DEVICE;
    note("cuDevicePrimaryCtxRetain %d", device - 40);
    if (device - 40 == refused) return OUT_OF_MEMORY;
    *context = &primary[device - 40];
    (*context)->device = device;
    (*context)->alive = 1;
    return OK;
}
int cuDevicePrimaryCtxRelease_v2(int device) {
    note("cuDevicePrimaryCtxRelease %d", device - 40);
    return OK;
}
int cuDevicePrimaryCtxReset_v2(int device) {
    note("cuDevicePrimaryCtxReset %d", device - 40);
    primary[device - 40].alive = 0;
    primary[device - 40].sticky = 0;
    return OK;
}
int cuCtxGetCurrent(struct context **context) {
    *context = current;
    return OK;
}
int cuCtxSetCurrent(struct context *context) {
    current = context;
    return OK;
}
int cuCtxGetDevice(int *device) {
    if (!current) return INVALID_CONTEXT;
    *device = current->device;
    return OK;
}
int cuCtxSynchronize(void) {
    CONTEXT();
    note("cuCtxSynchronize");
    return OK;
}
int cuCtxGetLimit(size_t *value, unsigned limit) {
    CONTEXT();
    *value = limit * 100;
    return limit < 7 ? OK : 215;
}

/* Modules */
struct module {
    char text[512];
    struct {
        char name[64];
        char *memory;
    } variables[8];
    int device;
};
int cuModuleLoadDataEx(struct module **module, const char *image, unsigned count, unsigned *options,
                       void **values) {
    CONTEXT();
    note("cuModuleLoadDataEx");
    loading = 1;
    while (held) usleep(1000);
    loading = 0;
    if (strncmp(image, "STANDIN", 7) != 0 || strstr(image, "unknown")) {
        for (unsigned i = 0; i < count; i++)
            if (options[i] == 5) strcpy(values[i], "ptx:3:7: unknown instruction nonsense");
        return INVALID_PTX;
    }
    *module = calloc(1, sizeof **module);
    snprintf((*module)->text, sizeof(*module)->text, "%s ", image);
    (*module)->device = current->device;
    return OK;
}
int cuModuleUnload(struct module *module) {
    note("cuModuleUnload");
    free(module);
    return OK;
}
/* The linker joins the texts behind the headers of fat binaries (16 bytes each). */
struct link {
    char text[512], *log;
};
int cuLinkCreate_v2(unsigned count, unsigned *options, void **values, struct link **link) {
    CONTEXT();
    note("cuLinkCreate");
    if (count != 2 || options[0] != 5) return INVALID_VALUE;
    *link = calloc(1, sizeof **link);
    strcpy((*link)->text, "STANDIN");
    (*link)->log = values[0];
    return OK;
}
int cuLinkAddData_v2(struct link *link, unsigned kind, const char *data, size_t bytes,
                     const char *name, unsigned count, unsigned *options, void **values) {
    note("cuLinkAddData kind %u bytes %zu", kind, bytes);
    if (!name || count || options || values) return INVALID_VALUE;
    if (strncmp(data + 16, "machine", 7) == 0) return NO_BINARY_FOR_GPU;
    return strncat(strcat(link->text, " "), data + 16, bytes - 16), OK;
}
int cuLinkComplete(struct link *link, const void **image, size_t *bytes) {
    if (strstr(link->text, "undefined")) {
        strcpy(link->log, "Undefined reference to 'f' in 'file 1'");
        return INVALID_PTX;
    }
    *image = link->text;
    *bytes = strlen(link->text) + 1;
    return OK;
}
int cuLinkDestroy(struct link *link) {
    note("cuLinkDestroy");
    return free(link), OK;
}
struct function {
    char name[64];
    struct module *module;
    int most_dynamic;
};
int cuModuleGetFunction(struct function **function, struct module *module, const char *name) {
    char wanted[128];
    snprintf(wanted, sizeof wanted, " kernel %s ", name);
    if (!strstr(module->text, wanted)) return NOT_FOUND;
    note("cuModuleGetFunction %s", name);
    *function = calloc(1, sizeof **function);
    snprintf((*function)->name, sizeof(*function)->name, "%s", name);
    (*function)->module = module;
    return OK;
}
int cuMemAlloc_v2(address *at, size_t bytes);
int cuModuleGetGlobal_v2(address *at, size_t *bytes, struct module *module, const char *name) {
    char wanted[128];
    snprintf(wanted, sizeof wanted, " variable %s ", name);
    char *found = strstr(module->text, wanted);
    if (!found) return NOT_FOUND;
    *bytes = strtoul(found + strlen(wanted), NULL, 10);
    for (int i = 0; i < 8; i++) {
        if (strcmp(module->variables[i].name, name) == 0) {
            *at = to_device(module->variables[i].memory);
            return OK;
        }
        if (module->variables[i].name[0]) continue;
        snprintf(module->variables[i].name, 64, "%s", name);
        int code = cuMemAlloc_v2(at, *bytes);
        module->variables[i].memory = find(*at, *bytes);
        return code;
    }
    return OUT_OF_MEMORY;
}
int cuFuncGetAttribute(int *value, unsigned attribute, struct function *function) {
    *value = attribute == 0   ? (strcmp(function->name, "small") == 0 ? 64 : 1024)
             : attribute == 8 ? function->most_dynamic
                              : (int)attribute * 10;
    return attribute > 15 ? INVALID_VALUE : OK;
}
int cuFuncSetAttribute(struct function *function, unsigned attribute, int value) {
    if (attribute != 8) return INVALID_VALUE;
    function->most_dynamic = value;
    return OK;
}

static unsigned kernel_threads;
int cuLaunchKernel(struct function *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                   unsigned by, unsigned bz, unsigned shared, void *stream, void **parameters,
                   void **extra) {
    CONTEXT();
    if (!gx || !gy || !gz || !bx || !by || !bz || bx * by * bz > 1024 || gx > 1005 || extra)
        return INVALID_VALUE;
    if (strcmp(function->name, "small") == 0 && bx * by * bz > 64) return INVALID_VALUE;
    note("cuLaunchKernel %s %ux%ux%u %ux%ux%u shared %u stream %lu device %d", function->name, gx,
         gy, gz, bx, by, bz, shared, (unsigned long)(uintptr_t)stream,
         function->module->device - 40);
    kernel_threads = gx * gy * gz * bx * by * bz;
    if (strcmp(function->name, "fill") ==
        0) { /* fill(unsigned *at, unsigned value, unsigned count) */
        unsigned value = *(unsigned *)parameters[1], count = *(unsigned *)parameters[2];
        char *memory = find(*(address *)parameters[0], 4 * (size_t)count);
        if (!memory) {
            current->sticky = ILLEGAL_ADDRESS;
            return OK;
        }
        for (unsigned i = 0; i < count && i < kernel_threads; i++)
            memcpy(memory + 4 * (size_t)i, &value, 4);
    }
    if (strcmp(function->name, "trap") == 0) current->sticky = LAUNCH_FAILED;
    return OK;
}
int cuLaunchCooperativeKernel(struct function *function, unsigned gx, unsigned gy, unsigned gz,
                              unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream,
                              void **parameters) {
    note("cooperative:");
    return cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, stream, parameters, NULL);
}
int cuLaunchHostFunc(void *stream, void (*function)(void *), void *data) {
    CONTEXT();
    note("cuLaunchHostFunc stream %lu", (unsigned long)(uintptr_t)stream);
    function(data);
    return OK;
}
int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, struct function *function,
                                                         int block, size_t dynamic,
                                                         unsigned flags) {
    (void)function;
    (void)dynamic;
    (void)flags;
    *blocks = block > 0 ? 2048 / block : 0;
    return OK;
}

/* Memory */
int cuMemAlloc_v2(address *at, size_t bytes) {
    CONTEXT();
    if (!bytes) return INVALID_VALUE;
    if (bytes > BYTES_MAX) return OUT_OF_MEMORY;
    for (int i = 0; i < ALLOCATIONS_MAX; i++) {
        if (allocations[i].memory) continue;
        allocations[i].memory = calloc(1, bytes);
        allocations[i].bytes = bytes;
        allocations[i].device = current->device;
        *at = to_device(allocations[i].memory);
        return OK;
    }
    return OUT_OF_MEMORY;
}
int cuMemAllocPitch_v2(address *at, size_t *pitch, size_t width, size_t height, unsigned element) {
    if (element != 4 && element != 8 && element != 16) return INVALID_VALUE;
    *pitch = (width + 511) / 512 * 512;
    return cuMemAlloc_v2(at, *pitch * height);
}
int cuMemFree_v2(address at) {
    CONTEXT();
    for (int i = 0; i < ALLOCATIONS_MAX; i++)
        if (allocations[i].memory && to_device(allocations[i].memory) == at) {
            free(allocations[i].memory);
            allocations[i].memory = NULL;
            return OK;
        }
    return INVALID_VALUE;
}
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    CONTEXT();
    *free_bytes = BYTES_MAX / 2;
    *total = BYTES_MAX;
    return OK;
}
int cuMemAllocManaged(address *at, size_t bytes, unsigned flags) {
    (void)at;
    (void)bytes;
    (void)flags;
    return NOT_SUPPORTED;
}
int cuMemHostAlloc(void **memory, size_t bytes, unsigned flags) {
    CONTEXT();
    for (int i = 0; i < ALLOCATIONS_MAX; i++)
        if (!hosts[i].memory) {
            *memory = hosts[i].memory = calloc(1, bytes);
            hosts[i].bytes = bytes;
            hosts[i].flags = flags;
            return OK;
        }
    return OUT_OF_MEMORY;
}
int cuMemFreeHost(void *memory) {
    for (int i = 0; i < ALLOCATIONS_MAX; i++)
        if (hosts[i].memory == memory) {
            free(memory);
            hosts[i].memory = NULL;
            return OK;
        }
    return INVALID_VALUE;
}
int cuPointerGetAttribute(void *data, unsigned attribute, address at) {
    for (int i = 0; i < ALLOCATIONS_MAX; i++) {
        char *memory = hosts[i].memory;
        if (!memory || (char *)(uintptr_t)at < memory ||
            (char *)(uintptr_t)at >= memory + hosts[i].bytes)
            continue;
        switch (attribute) {
        case 2: *(unsigned *)data = 1; return OK;
        case 3:
        case 4: *(address *)data = at; return OK;
        case 8: *(char *)data = 0; return OK;
        case 9: *(int *)data = 0; return OK;
        default: return INVALID_VALUE;
        }
    }
    if (!find(at, 0)) return INVALID_VALUE;
    switch (attribute) {
    case 2: *(unsigned *)data = 2; return OK;
    case 3: *(address *)data = at; return OK;
    case 8: *(char *)data = 0; return OK;
    case 9: *(int *)data = 0; return OK;
    default: return INVALID_VALUE;
    }
}
static int copy(const char *what, void *to, const void *from, size_t bytes, void *stream) {
    CONTEXT();
    note("%s %zu stream %lu", what, bytes, (unsigned long)(uintptr_t)stream);
    if (!to || !from) return INVALID_VALUE;
    memmove(to, from, bytes);
    return OK;
}
int cuMemcpyHtoD_v2(address to, const void *from, size_t n) {
    return copy("HtoD", find(to, n), from, n, NULL);
}
int cuMemcpyDtoH_v2(void *to, address from, size_t n) {
    return copy("DtoH", to, find(from, n), n, NULL);
}
int cuMemcpyDtoD_v2(address to, address from, size_t n) {
    return copy("DtoD", find(to, n), find(from, n), n, NULL);
}
int cuMemcpyHtoDAsync_v2(address to, const void *from, size_t n, void *s) {
    return copy("HtoDAsync", find(to, n), from, n, s);
}
int cuMemcpyDtoHAsync_v2(void *to, address from, size_t n, void *s) {
    return copy("DtoHAsync", to, find(from, n), n, s);
}
int cuMemcpyDtoDAsync_v2(address to, address from, size_t n, void *s) {
    return copy("DtoDAsync", find(to, n), find(from, n), n, s);
}
int cuMemsetD8Async(address at, unsigned char value, size_t bytes, void *stream) {
    CONTEXT();
    note("MemsetD8 %u %zu stream %lu", value, bytes, (unsigned long)(uintptr_t)stream);
    char *memory = find(at, bytes);
    if (!memory) return INVALID_VALUE;
    memset(memory, value, bytes);
    return OK;
}
int cuMemsetD8_v2(address at, unsigned char value, size_t bytes) {
    return cuMemsetD8Async(at, value, bytes, NULL);
}
int cuMemsetD2D8_v2(address at, size_t pitch, unsigned char value, size_t width, size_t height) {
    for (size_t row = 0; row < height; row++) {
        int code = cuMemsetD8Async(at + row * pitch, value, width, NULL);
        if (code) return code;
    }
    return OK;
}

#include "arrays.h"

/* Streams and events */
int cuStreamCreate(void **stream, unsigned flags) {
    CONTEXT();
    note("cuStreamCreate %u", flags);
    if (flags > 1) return INVALID_VALUE;
    struct context **owner = malloc(sizeof *owner);
    *owner = current;
    *stream = owner;
    return OK;
}
int cuStreamGetCtx(struct context **stream, struct context **context) {
    CONTEXT();
    *context = (uintptr_t)stream <= 2 ? current : *stream;
    return OK;
}
int cuStreamDestroy_v2(void *stream) {
    CONTEXT();
    note("cuStreamDestroy");
    free(stream);
    return OK;
}
int cuStreamSynchronize(void *stream) {
    CONTEXT();
    note("cuStreamSynchronize %lu", (unsigned long)(uintptr_t)stream);
    return OK;
}
int cuStreamQuery(void *stream) {
    CONTEXT();
    (void)stream;
    return stream_busy ? NOT_READY : OK;
}
int cuStreamAddCallback(void *stream, void (*callback)(void *, int, void *), void *data,
                        unsigned flags) {
    CONTEXT();
    if (flags) return INVALID_VALUE;
    callback(stream, OK, data);
    return OK;
}
int cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
    CONTEXT();
    (void)stream;
    (void)event;
    return flags ? INVALID_VALUE : OK;
}
struct event {
    float at;
};
int cuEventCreate(struct event **event, unsigned flags) {
    CONTEXT();
    (void)flags;
    *event = calloc(1, sizeof **event);
    return OK;
}
int cuEventDestroy_v2(struct event *event) {
    free(event);
    return OK;
}
int cuEventRecord(struct event *event, void *stream) {
    static float now;
    CONTEXT();
    note("cuEventRecord stream %lu", (unsigned long)(uintptr_t)stream);
    event->at = now += 1.5F;
    return OK;
}
int cuEventSynchronize(struct event *event) {
    CONTEXT();
    (void)event;
    return OK;
}
int cuEventElapsedTime(float *milliseconds, struct event *start, struct event *end) {
    CONTEXT();
    *milliseconds = end->at - start->at;
    return OK;
}
int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags,
                        unsigned *status) {
    note("cuGetProcAddress %s %d %lu", name, version, (unsigned long)flags);
    if (strcmp(name, "cuMemAlloc") == 0) {
        *function = (void *)cuMemAlloc_v2;
        *status = 0;
        return OK;
    }
    *status = 1;
    return NOT_FOUND;
}
