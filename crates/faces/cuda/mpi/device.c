/* What the library uses of Penstock's libcuda. The program has loaded libcuda if it uses CUDA. The
 * library never loads it. */
#include "pm.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <string.h>

typedef int CUresult;
typedef void *CUcontext;

/* Numbers of CUDA's interface. */
enum {
    CUDA_OK = 0,
    NOT_PERMITTED = 800,
    ATTRIBUTE_CONTEXT = 1,
    ATTRIBUTE_MEMORY_TYPE = 2,
    MEMORY_HOST = 1,
    MEMORY_DEVICE = 2,
};

/* CUDA_MEMCPY2D of the second version. */
struct copy_2d {
    size_t from_x, from_y;
    unsigned from_type;
    const void *from_host;
    uintptr_t from_device;
    void *from_array;
    size_t from_pitch;
    size_t to_x, to_y;
    unsigned to_type;
    void *to_host;
    uintptr_t to_device;
    void *to_array;
    size_t to_pitch;
    size_t width, height;
};

struct driver {
    CUresult (*attribute)(void *data, unsigned attribute, uintptr_t address);
    CUresult (*push)(CUcontext context);
    CUresult (*pop)(CUcontext *context);
    CUresult (*to_host)(void *to, uintptr_t from, size_t size);
    CUresult (*to_device)(uintptr_t to, const void *from, size_t size);
    CUresult (*on_device)(uintptr_t to, uintptr_t from, size_t size);
    CUresult (*copy_2d)(const struct copy_2d *copy);
    CUresult (*host_address)(void **host, uintptr_t address, size_t size);
    CUresult (*error_name)(CUresult error, const char **name);
    CUresult (*grant_worker)(uint64_t *worker, uintptr_t address, size_t size);
    CUresult (*grant_invite)(uint64_t *stranger, void *invitation, size_t *length, size_t room,
                             uintptr_t address);
    CUresult (*grant_visit)(uint64_t *stranger, const void *invitation, size_t length,
                            uintptr_t address);
    CUresult (*grant_make)(uint64_t *transfer, uint64_t *number, uintptr_t address, size_t size,
                           uint64_t stranger);
    CUresult (*grant_revoke)(int *is_gone, uint64_t transfer);
    CUresult (*grant_send)(uint64_t *transfer, uintptr_t address, size_t size, uint64_t stranger,
                           uint64_t number);
    CUresult (*grant_end)(int *has_ended, uint64_t transfer, int waits);
};

/* Stores the number of libraries that the process has ever loaded. */
static int count_loads(struct dl_phdr_info *info, size_t size, void *loads) {
    (void)size;
    *(unsigned long long *)loads = info->dlpi_adds;
    return 1;
}

/* The names of the functions, in the order of the table. */
static const char *const names[] = {
    "cuPointerGetAttribute", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2",     "cuMemcpyDtoH_v2",
    "cuMemcpyHtoD_v2",       "cuMemcpyDtoD_v2",     "cuMemcpy2DUnaligned_v2", "penstockHostAddress",
    "cuGetErrorName",        "penstockGrantWorker", "penstockGrantInvite",    "penstockGrantVisit",
    "penstockGrantMake",     "penstockGrantRevoke", "penstockGrantSend",      "penstockGrantEnd",
};

enum { FUNCTIONS = sizeof names / sizeof *names };

_Static_assert(sizeof(struct driver) == FUNCTIONS * sizeof(void *), "a function has no name");

/* Fills the table from the loaded libcuda, if that is Penstock's. */
static int find(struct driver *driver) {
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), *found[FUNCTIONS];
    if (library == NULL) return 0;
    /* Only Penstock's libcuda has all of them. NVIDIA's own driver works with its own MPIs. */
    for (int f = 0; f < FUNCTIONS; f++) {
        found[f] = dlsym(library, names[f]);
        if (found[f] != NULL) continue;
        dlclose(library);
        return 0;
    }
    /* The library stays open, so the functions stay valid. */
    memcpy(driver, found, sizeof *driver);
    return 1;
}

/* Returns the functions of Penstock's libcuda, or NULL as long as it is not loaded. */
static const struct driver *driver(void) {
    static _Atomic(const struct driver *) found;
    static atomic_ullong searched;
    static atomic_flag searching = ATOMIC_FLAG_INIT;
    static struct driver table;
    const struct driver *known = atomic_load_explicit(&found, memory_order_acquire);
    if (known != NULL) return known;
    /* The loader is asked again only after it has loaded something. */
    unsigned long long loads = 0;
    dl_iterate_phdr(count_loads, &loads);
    if (loads == atomic_load(&searched)) return NULL;
    while (atomic_flag_test_and_set(&searching)) {}
    known = atomic_load(&found);
    if (known == NULL) {
        if (find(&table)) {
            known = &table;
            atomic_store_explicit(&found, known, memory_order_release);
        }
        atomic_store(&searched, loads);
    }
    atomic_flag_clear(&searching);
    return known;
}

int pm_has_driver(void) { return driver() != NULL; }

int pm_is_device(uintptr_t address) {
    const struct driver *cuda = driver();
    unsigned type = 0;
    return cuda != NULL && cuda->attribute(&type, ATTRIBUTE_MEMORY_TYPE, address) == CUDA_OK &&
           type == MEMORY_DEVICE;
}

void *pm_host_address(uintptr_t address, size_t size) {
    const struct driver *cuda = driver();
    void *host = NULL;
    if (cuda == NULL || cuda->host_address(&host, address, size) != CUDA_OK) return NULL;
    return host;
}

static CUresult copy_block(const struct driver *cuda, enum pm_way way, uintptr_t device,
                           uintptr_t host, size_t size) {
    return way == PM_TO_HOST ? cuda->to_host((void *)host, device, size)
                             : cuda->to_device(device, (const void *)host, size);
}

static CUresult copy_rows(const struct driver *cuda, enum pm_way way, uintptr_t device,
                          uintptr_t host, const struct pm_run *run) {
    size_t pitch = (size_t)run->stride;
    struct copy_2d copy = {.width = run->length, .height = run->count};
    copy.from_pitch = copy.to_pitch = pitch;
    if (way == PM_TO_HOST) {
        copy.from_type = MEMORY_DEVICE;
        copy.from_device = device;
        copy.to_type = MEMORY_HOST;
        copy.to_host = (void *)host;
    } else {
        copy.from_type = MEMORY_HOST;
        copy.from_host = (const void *)host;
        copy.to_type = MEMORY_DEVICE;
        copy.to_device = device;
    }
    return cuda->copy_2d(&copy);
}

/* Returns NULL, or the name of an error. */
static const char *name_of(const struct driver *cuda, CUresult result) {
    const char *name = NULL;
    if (result == CUDA_OK) return NULL;
    return cuda->error_name(result, &name) == CUDA_OK && name != NULL ? name : "an unknown error";
}

const char *pm_copy(enum pm_way way, uintptr_t device, uintptr_t host, const struct pm_run *run) {
    const struct driver *cuda = driver();
    CUcontext owner = NULL, popped = NULL;
    if (cuda == NULL) return "CUDA_ERROR_NOT_INITIALIZED";
    /* The calling thread may have no context, or one of another device. */
    CUresult result = cuda->attribute(&owner, ATTRIBUTE_CONTEXT, device);
    if (result == CUDA_OK) result = cuda->push(owner);
    if (result == CUDA_OK) {
        if (run->count == 1) {
            result = copy_block(cuda, way, device, host, run->length);
        } else if (run->stride >= 0 && (size_t)run->stride >= run->length) {
            result = copy_rows(cuda, way, device, host, run);
        } else {
            for (size_t i = 0; i < run->count && result == CUDA_OK; i++) {
                uintptr_t offset = i * (uintptr_t)run->stride;
                result = copy_block(cuda, way, device + offset, host + offset, run->length);
            }
        }
        cuda->pop(&popped);
    }
    return name_of(cuda, result);
}

const char *pm_copy_on_device(uintptr_t to, uintptr_t from, size_t size) {
    const struct driver *cuda = driver();
    CUcontext owner = NULL, popped = NULL;
    char byte;
    if (cuda == NULL) return "CUDA_ERROR_NOT_INITIALIZED";
    CUresult result = cuda->attribute(&owner, ATTRIBUTE_CONTEXT, to);
    if (result == CUDA_OK) result = cuda->push(owner);
    if (result == CUDA_OK) {
        result = cuda->on_device(to, from, size);
        /* The copy may return before it has ended. This one comes behind it. */
        if (result == CUDA_OK) result = cuda->to_host(&byte, to, sizeof byte);
        cuda->pop(&popped);
    }
    return name_of(cuda, result);
}

int pm_grant_worker(uintptr_t address, size_t size, uint64_t *worker) {
    const struct driver *cuda = driver();
    return cuda != NULL && cuda->grant_worker(worker, address, size) == CUDA_OK;
}

int pm_grant_invite(uintptr_t address, uint64_t *stranger, void *invitation, size_t *length,
                    size_t room) {
    const struct driver *cuda = driver();
    return cuda != NULL &&
           cuda->grant_invite(stranger, invitation, length, room, address) == CUDA_OK;
}

int pm_grant_visit(uintptr_t address, const void *invitation, size_t length, uint64_t *stranger) {
    const struct driver *cuda = driver();
    return cuda != NULL && cuda->grant_visit(stranger, invitation, length, address) == CUDA_OK;
}

int pm_grant_make(uintptr_t address, size_t size, uint64_t stranger, uint64_t *transfer,
                  uint64_t *number) {
    const struct driver *cuda = driver();
    return cuda != NULL && cuda->grant_make(transfer, number, address, size, stranger) == CUDA_OK;
}

int pm_grant_revoke(uint64_t transfer) {
    const struct driver *cuda = driver();
    int is_gone = 0;
    return cuda != NULL && cuda->grant_revoke(&is_gone, transfer) == CUDA_OK && is_gone;
}

enum pm_sent pm_grant_send(uintptr_t address, size_t size, uint64_t stranger, uint64_t number,
                           uint64_t *transfer) {
    const struct driver *cuda = driver();
    if (cuda == NULL) return PM_REFUSED;
    switch (cuda->grant_send(transfer, address, size, stranger, number)) {
    case CUDA_OK: return PM_SENT;
    case NOT_PERMITTED: return PM_REFUSED;
    default: return PM_LOST;
    }
}

const char *pm_grant_end(uint64_t transfer) {
    const struct driver *cuda = driver();
    int has_ended = 0;
    if (cuda == NULL) return "CUDA_ERROR_NOT_INITIALIZED";
    return name_of(cuda, cuda->grant_end(&has_ended, transfer, 1));
}
