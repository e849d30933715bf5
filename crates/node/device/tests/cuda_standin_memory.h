/* Memory of the stand-in for CUDA's driver: that of the devices, and that of the host they see. */

/* -- memory ------------------------------------------------------------------------------------ */

/* `mapped`: GPU address minus host address; 0 if the GPU does not see the range. `in_place`: the
 * range was memory of the process before it was pinned. */
struct range {
    uint64_t start, bytes;
    int pinned, in_place, device;
    uint64_t mapped;
    struct range *next;
};
static struct range *ranges;
static uint64_t used[3]; /* bytes by device, counted from 1 */
int standin_mapped;      /* pieces of host memory that the GPU sees now */
int standin_in_place;    /* pieces of host memory that are pinned in place now */
int standin_holds;       /* so many times, a piece that is pinned in place cannot be unpinned */

static int within(uint64_t start, uint64_t bytes, int pinned) {
    for (struct range *r = ranges; r; r = r->next)
        if (r->pinned == pinned && start >= r->start && start + bytes <= r->start + r->bytes)
            return 1;
    return 0;
}

/* Returns the host address of bytes at a GPU address, or 0. */
static uint64_t seen(uint64_t at, uint64_t bytes) {
    pthread_mutex_lock(&lock);
    uint64_t found = within(at, bytes, 0) ? at : 0;
    for (struct range *r = ranges; r && !found; r = r->next)
        if (r->mapped && at >= r->start + r->mapped &&
            at + bytes <= r->start + r->mapped + r->bytes)
            found = at - r->mapped;
    pthread_mutex_unlock(&lock);
    return found;
}

static int is_pinned(const void *start, uint64_t bytes) {
    pthread_mutex_lock(&lock);
    int found = within((uint64_t)start, bytes, 1);
    pthread_mutex_unlock(&lock);
    return found;
}

/* Returns whether CUDA_STANDIN_ONLY_IN_PLACE forbids a copy from or to this host memory. */
static int is_refused(const void *start, uint64_t bytes) {
    if (bytes <= 64 << 10 || !getenv("CUDA_STANDIN_ONLY_IN_PLACE")) return 0;
    pthread_mutex_lock(&lock);
    int found = 0;
    for (struct range *r = ranges; r; r = r->next)
        if (r->in_place && (uint64_t)start >= r->start &&
            (uint64_t)start + bytes <= r->start + r->bytes)
            found = 1;
    pthread_mutex_unlock(&lock);
    return !found;
}

static void add_range(uint64_t start, uint64_t bytes, int pinned) {
    struct range *r = malloc(sizeof *r);
    *r = (struct range){start, bytes, pinned, 0, current, 0, ranges};
    ranges = r;
}

/* Returns the size of the device memory that starts at an address, or 0. */
static uint64_t size_of(uint64_t start) {
    for (struct range *r = ranges; r; r = r->next)
        if (r->start == start && !r->pinned) return r->bytes;
    return 0;
}

static int remove_range(uint64_t start, int pinned) {
    for (struct range **at = &ranges; *at; at = &(*at)->next) {
        struct range *r = *at;
        if (r->start == start && r->pinned == pinned) {
            *at = r->next;
            standin_mapped -= r->mapped != 0;
            standin_in_place -= r->in_place;
            if (!pinned) used[r->device] -= r->bytes;
            free(r);
            return 1;
        }
    }
    return 0;
}

#define NEEDS_CONTEXT                         \
    do {                                      \
        if (!current) return INVALID_CONTEXT; \
        if (sticky) return sticky;            \
    } while (0)

/* Allocates device memory. If CUDA_STANDIN_AT is set, it is a hexadecimal address from which
 * allocations lie one behind the other; a test with memory at the same addresses then gets
 * collisions. */
static void *take(size_t bytes) {
    static uint64_t next;
    const char *at = getenv("CUDA_STANDIN_AT");
    if (!at) return aligned_alloc(256, (bytes + 255) & ~255ull);
    if (!next) next = strtoull(at, NULL, 16);
    void *start = mmap((void *)next, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    next += (bytes + 4095) & ~4095ull;
    return start == MAP_FAILED ? NULL : start;
}

static void give_back(ptr start, uint64_t bytes) {
    if (getenv("CUDA_STANDIN_AT"))
        munmap((void *)start, bytes);
    else
        free((void *)start);
}

CUresult cuMemAlloc_v2(ptr *out, size_t bytes) {
    NEEDS_CONTEXT;
    pthread_mutex_lock(&lock);
    void *start = used[current] + bytes <= MEMORY_BYTES ? take(bytes) : NULL;
    if (start) {
        memset(start, 0xA5, bytes); /* callers must not rely on zeros */
        used[current] += bytes;
        add_range((uint64_t)start, bytes, 0);
    }
    pthread_mutex_unlock(&lock);
    *out = (uint64_t)start;
    return start ? OK : NO_MEMORY;
}

CUresult cuMemFree_v2(ptr start) {
    NEEDS_CONTEXT;
    pthread_mutex_lock(&lock);
    uint64_t bytes = size_of(start);
    int found = remove_range(start, 0);
    pthread_mutex_unlock(&lock);
    if (found) give_back(start, bytes);
    return found ? OK : INVALID_VALUE;
}

CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned flags) {
    (void)flags;
    NEEDS_CONTEXT;
    *out = aligned_alloc(4096, (bytes + 4095) & ~4095ull);
    pthread_mutex_lock(&lock);
    add_range((uint64_t)*out, bytes, 1);
    pthread_mutex_unlock(&lock);
    return OK;
}

int standin_registered; /* number of times that memory was pinned in place */
int standin_scatters;   /* if not 0, the GPU sees each piece at another distance */

/* Returns whether there is a page at an address: reserved addresses cannot be pinned. */
static int is_there(const void *at) {
    char byte;
    struct iovec to = {&byte, 1}, from = {(void *)at, 1};
    return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1;
}

/* If CUDA_STANDIN_PINS is set, it is the most pieces of host memory that are pinned in place. */
static int may_pin(void) {
    const char *most = getenv("CUDA_STANDIN_PINS");
    return !most || standin_in_place < atoi(most);
}

CUresult cuMemHostRegister_v2(void *start, size_t bytes, unsigned flags) {
    NEEDS_CONTEXT;
    if (!may_pin()) return NO_MEMORY;
    if (is_pinned(start, 1)) return ALREADY_REGISTERED;
    if (!bytes || !is_there(start) || !is_there((char *)start + bytes - 1)) return INVALID_VALUE;
    pthread_mutex_lock(&lock);
    add_range((uint64_t)start, bytes, 1);
    ranges->in_place = 1, standin_in_place++;
    if (flags & 2)
        ranges->mapped = (1ull << 44) + (standin_scatters ? ++standin_scatters * (1ull << 40) : 0),
        standin_mapped++;
    standin_registered++;
    pthread_mutex_unlock(&lock);
    return OK;
}

CUresult cuMemHostGetDevicePointer_v2(ptr *out, void *start, unsigned flags) {
    NEEDS_CONTEXT;
    *out = 0;
    pthread_mutex_lock(&lock);
    for (struct range *r = ranges; r; r = r->next)
        if (r->mapped && (uint64_t)start >= r->start && (uint64_t)start < r->start + r->bytes)
            *out = (uint64_t)start + r->mapped;
    pthread_mutex_unlock(&lock);
    return *out && !flags ? OK : INVALID_VALUE;
}

CUresult cuMemHostUnregister(void *start) {
    NEEDS_CONTEXT;
    pthread_mutex_lock(&lock);
    int found = standin_holds ? (standin_holds--, 0) : remove_range((uint64_t)start, 1);
    pthread_mutex_unlock(&lock);
    return found ? OK : INVALID_VALUE;
}
