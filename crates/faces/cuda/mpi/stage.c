/* Blocks of host memory that stand for buffers on devices. */
#include "path.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* Blocks that are kept for the next call, because the pages of a new block must be made first. A
 * program that exchanges with six neighbours in both directions has 12 blocks in use. */
enum { BLOCKS_KEPT_MAX = 16 };

/* Larger blocks are not kept: their pages cost little beside the transfer of the bytes over a
 * network, and a process keeps at most 16 times as much. */
#define BLOCK_KEPT_BYTES_MAX ((size_t)32 << 20)

/* Smallest buffer for which MPI gets the memory of the device itself. Either way, the library
 * copies once from the device to know that earlier work has ended. For a page or less, this copy
 * may as well be that of the whole buffer. */
#define DIRECT_BYTES_MIN ((size_t)4096)

/* Sizes of blocks are multiples of the page size of the smallest kind. */
#define BLOCK_STEP ((size_t)4096)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct kept {
    char *block;
    size_t size;
} kept[BLOCKS_KEPT_MAX];

/* Returns a block of at least `*size` bytes and stores its size, or returns NULL. */
static char *take_block(size_t *size) {
    if (*size > SIZE_MAX - BLOCK_STEP) return NULL;
    size_t wanted = (*size + BLOCK_STEP - 1) / BLOCK_STEP * BLOCK_STEP;
    struct kept *best = NULL;
    char *block = NULL;
    pthread_mutex_lock(&lock);
    for (struct kept *it = kept; it < kept + BLOCKS_KEPT_MAX; it++)
        if (it->block != NULL && it->size >= wanted && (best == NULL || it->size < best->size))
            best = it;
    if (best != NULL) {
        block = best->block;
        *size = best->size;
        best->block = NULL;
    }
    pthread_mutex_unlock(&lock);
    if (block != NULL) return block;
    /* The system makes only the pages that are used: the block of a column of a matrix is as large
     * as the matrix. */
    void *made = mmap(NULL, wanted, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *size = wanted;
    return made == MAP_FAILED ? NULL : made;
}

static void give_block(char *block, size_t size) {
    struct kept dropped = {block, size};
    if (size <= BLOCK_KEPT_BYTES_MAX) {
        /* The smallest block makes place, because it is the cheapest to make again. */
        struct kept *place = kept;
        pthread_mutex_lock(&lock);
        for (struct kept *it = kept; it < kept + BLOCKS_KEPT_MAX; it++) {
            if (it->block == NULL || (place->block != NULL && it->size < place->size)) place = it;
            if (place->block == NULL) break;
        }
        if (place->block == NULL || place->size < size) {
            dropped = *place;
            *place = (struct kept){block, size};
        }
        pthread_mutex_unlock(&lock);
    }
    if (dropped.block != NULL) munmap(dropped.block, dropped.size);
}

void pm_open_plain(struct pm_stage *stage, const void *buffer) {
    memset(stage, 0, sizeof *stage);
    stage->host = (void *)buffer;
}

/* Returns whether elements of a type at an address are on a device. */
static int is_on_device(uintptr_t address, MPI_Datatype type) {
    MPI_Aint low = 0, extent = 0;
    if (pm_is_device(address)) return 1;
    /* With MPI_BOTTOM, and with types that begin behind the address of the buffer. */
    if (PMPI_Type_get_true_extent(type, &low, &extent) != MPI_SUCCESS || extent <= 0) return 0;
    if (low != 0 && pm_is_device(address + (uintptr_t)low)) return 1;
    return address == (uintptr_t)MPI_BOTTOM &&
           pm_is_device(address + (uintptr_t)low + (uintptr_t)extent - 1);
}

/* Raises the error of a copy that failed. */
static int raise_copy(const struct pm_stage *stage, enum pm_way way, const char *error) {
    char text[160];
    snprintf(text, sizeof text, "a copy %s a buffer on a device failed: %s",
             way == PM_TO_HOST ? "from" : "to", error);
    return pm_raise(stage->comm, MPI_ERR_OTHER, stage->function, text);
}

/* Uses the memory of the device itself, if this process sees it. Returns whether it does. */
static int use_directly(struct pm_stage *stage, size_t size, int *code) {
    uintptr_t first = stage->device + (uintptr_t)stage->low;
    void *host = size >= DIRECT_BYTES_MIN ? pm_host_address(first, size) : NULL;
    char byte;
    struct pm_run run = {0, sizeof byte, 0, 1};
    if (host == NULL) return 0;
    /* This copy comes after the work that a copy of the whole buffer would come after. */
    const char *error = pm_copy(PM_TO_HOST, first, (uintptr_t)&byte, &run);
    *code = error == NULL ? MPI_SUCCESS : raise_copy(stage, PM_TO_HOST, error);
    stage->host = (void *)((uintptr_t)host - (uintptr_t)stage->low);
    pm_layout_free(&stage->layout);
    return 1;
}

/* DIRECT: MPI gets the memory of the device if this process sees it. OFFERED: only if the memory is
 * too small to be offered to the sender. COPIED: never. */
enum mode { DIRECT, OFFERED, COPIED };

/* Makes the block for a layout that is complete. */
static int make_block(struct pm_stage *stage, enum mode mode) {
    const struct pm_layout *layout = &stage->layout;
    intptr_t low = INTPTR_MAX, high = INTPTR_MIN;
    if (layout->fault == PM_NO_SUCH_TYPE)
        return pm_raise(stage->comm, MPI_ERR_TYPE, stage->function,
                        "a buffer is on a device, and its datatype has a constructor that this is "
                        "not supported for; copy the buffer to the host");
    if (layout->fault == PM_NO_MEMORY)
        return pm_raise(stage->comm, MPI_ERR_NO_MEM, stage->function,
                        "there is no memory for the layout of a datatype");
    if (layout->used == 0) return MPI_SUCCESS;
    for (size_t r = 0; r < layout->used; r++) {
        const struct pm_run *run = &layout->runs[r];
        intptr_t last = run->offset + (intptr_t)(run->count - 1) * run->stride;
        intptr_t first = last < run->offset ? last : run->offset;
        if (last < run->offset) last = run->offset;
        if (first < low) low = first;
        if (last + (intptr_t)run->length > high) high = last + (intptr_t)run->length;
    }
    int code = MPI_SUCCESS;
    stage->low = low;
    if (layout->used == 1 && layout->runs->count == 1) stage->whole = layout->runs->length;
    /* A stub needs a block to arrive in. */
    int may_be_direct = mode == DIRECT || (mode == OFFERED && stage->whole < pm_seen_bytes_min);
    if (may_be_direct && use_directly(stage, (size_t)(high - low), &code)) return code;
    stage->size = (size_t)(high - low);
    stage->block = take_block(&stage->size);
    if (stage->block == NULL)
        return pm_raise(stage->comm, MPI_ERR_NO_MEM, stage->function,
                        "there is no host memory for the bytes of a buffer on a device");
    /* Arithmetic on integers, because the address may lie outside of the block. */
    stage->host = (void *)((uintptr_t)stage->block - (uintptr_t)low);
    return MPI_SUCCESS;
}

static int finish_opening(struct pm_stage *stage, enum mode mode) {
    pm_layout_end(&stage->layout);
    int code = make_block(stage, mode);
    if (code != MPI_SUCCESS) pm_layout_free(&stage->layout);
    return code;
}

static int open_buffer(struct pm_stage *stage, const char *function, MPI_Comm comm,
                       const void *buffer, size_t count, MPI_Datatype type, enum mode mode) {
    pm_open_plain(stage, buffer);
    if (count == 0 || type == MPI_DATATYPE_NULL || !pm_has_driver() ||
        !is_on_device((uintptr_t)buffer, type))
        return MPI_SUCCESS;
    stage->device = (uintptr_t)buffer;
    stage->function = function;
    stage->comm = comm;
    pm_layout_add(&stage->layout, type, count, 0);
    return finish_opening(stage, mode);
}

int pm_open(struct pm_stage *stage, const char *function, MPI_Comm comm, const void *buffer,
            size_t count, MPI_Datatype type) {
    return open_buffer(stage, function, comm, buffer, count, type, DIRECT);
}

int pm_open_copy(struct pm_stage *stage, const char *function, MPI_Comm comm, const void *buffer,
                 size_t count, MPI_Datatype type) {
    return open_buffer(stage, function, comm, buffer, count, type, COPIED);
}

int pm_open_target(struct pm_stage *stage, const struct pm_message *message, size_t count) {
    return open_buffer(stage, message->function, message->comm, message->buffer, count,
                       message->type, pm_post_may_offer(message) ? OFFERED : DIRECT);
}

int pm_open_parts(struct pm_stage *stage, const char *function, MPI_Comm comm, const void *buffer,
                  struct pm_parts parts, MPI_Datatype type) {
    MPI_Aint low = 0, extent = 0;
    int is_device = 0;
    pm_open_plain(stage, buffer);
    if (type == MPI_DATATYPE_NULL || !pm_has_driver()) return MPI_SUCCESS;
    if (parts.counts == NULL || parts.displacements == NULL) return MPI_SUCCESS;
    PMPI_Type_get_extent(type, &low, &extent);
    for (int p = 0; p < parts.number && !is_device; p++)
        is_device =
            parts.counts[p] > 0 &&
            is_on_device((uintptr_t)buffer + (uintptr_t)(parts.displacements[p] * (intptr_t)extent),
                         type);
    if (!is_device) return MPI_SUCCESS;
    stage->device = (uintptr_t)buffer;
    stage->function = function;
    stage->comm = comm;
    for (int p = 0; p < parts.number; p++)
        if (parts.counts[p] > 0)
            pm_layout_add(&stage->layout, type, (size_t)parts.counts[p],
                          parts.displacements[p] * (intptr_t)extent);
    return finish_opening(stage, DIRECT);
}

int pm_is_whole(const void *buffer, size_t count, MPI_Datatype type) {
    struct pm_layout layout = {0};
    if (count == 0 || type == MPI_DATATYPE_NULL || !pm_has_driver() ||
        !is_on_device((uintptr_t)buffer, type))
        return 0;
    pm_layout_add(&layout, type, count, 0);
    pm_layout_end(&layout);
    int is_whole = layout.fault == PM_FINE && layout.used == 1 && layout.runs->count == 1 &&
                   layout.runs->offset == 0;
    pm_layout_free(&layout);
    return is_whole;
}

/* Copies the blocks of a run between the device and the block. */
static int copy(const struct pm_stage *stage, enum pm_way way, const struct pm_run *run) {
    uintptr_t device = stage->device + (uintptr_t)run->offset;
    uintptr_t host = (uintptr_t)stage->host + (uintptr_t)run->offset;
    const char *error = pm_copy(way, device, host, run);
    return error == NULL ? MPI_SUCCESS : raise_copy(stage, way, error);
}

int pm_fetch(const struct pm_stage *stage) {
    int code = MPI_SUCCESS;
    if (stage->block == NULL) return MPI_SUCCESS;
    for (size_t r = 0; r < stage->layout.used && code == MPI_SUCCESS; r++)
        code = copy(stage, PM_TO_HOST, &stage->layout.runs[r]);
    return code;
}

int pm_store(const struct pm_stage *stage, size_t bytes) {
    int code = MPI_SUCCESS;
    if (stage->block == NULL) return MPI_SUCCESS;
    for (size_t r = 0; r < stage->layout.used && code == MPI_SUCCESS && bytes > 0; r++) {
        struct pm_run run = stage->layout.runs[r];
        size_t rest = 0;
        if (bytes / run.length < run.count) {
            run.count = bytes / run.length;
            rest = bytes % run.length;
            bytes = 0;
        } else if (bytes != PM_ALL) {
            bytes -= run.count * run.length;
        }
        if (run.count > 0) code = copy(stage, PM_TO_DEVICE, &run);
        if (rest > 0 && code == MPI_SUCCESS) {
            struct pm_run last = {run.offset + (intptr_t)run.count * run.stride, rest, 0, 1};
            code = copy(stage, PM_TO_DEVICE, &last);
        }
    }
    return code;
}

void pm_tell_arrived(const struct pm_stage *stage, MPI_Status *status) {
    if (stage->arrived > 0 && status != MPI_STATUS_IGNORE)
        PMPI_Status_set_elements_x(status, MPI_BYTE, (MPI_Count)stage->arrived);
}

/* Ends the offer of a receive. Returns whether the message is in the block. */
static int settle_offer(struct pm_stage *stage, size_t bytes, MPI_Status *status, int *code) {
    switch (pm_offer_settle(stage, &bytes)) {
    case PM_PLAIN: return 1;
    case PM_ARRIVED: stage->arrived = bytes; break;
    case PM_FAILED:
        *code = pm_raise(stage->comm, MPI_ERR_OTHER, stage->function,
                         "the worker of another rank, or this rank's own, was lost before the "
                         "bytes of a message had come");
        break;
    case PM_MIXED:
        *code = pm_raise(stage->comm, MPI_ERR_OTHER, stage->function,
                         "a call that the library does not know has received a message in the "
                         "same communicator; set PENSTOCK_MPI_WORKERS=off");
        break;
    }
    pm_tell_arrived(stage, status);
    return 0;
}

int pm_store_received(struct pm_stage *stage, MPI_Status *status) {
    MPI_Count bytes = 0;
    int is_cancelled = 0;
    if (stage->block == NULL) return MPI_SUCCESS;
    PMPI_Test_cancelled(status, &is_cancelled);
    if (is_cancelled) {
        pm_offer_drop(stage);
        return MPI_SUCCESS;
    }
    /* The number of elements of one byte is the number of bytes, for every type that was sent. */
    int code = PMPI_Get_elements_x(status, MPI_BYTE, &bytes);
    if (code != MPI_SUCCESS || bytes < 0)
        return pm_raise(stage->comm, MPI_ERR_OTHER, stage->function,
                        "MPI does not tell how much was received");
    if (stage->offer != NULL && !settle_offer(stage, (size_t)bytes, status, &code)) return code;
    if (stage->whole > 0 && pm_offer_is_stub(stage->block, (size_t)bytes))
        return pm_raise(stage->comm, MPI_ERR_OTHER, stage->function,
                        "the message was sent for another receive, which has failed");
    return pm_store(stage, (size_t)bytes);
}

void pm_close(struct pm_stage *stage) {
    pm_offer_drop(stage);
    pm_claim_end(stage);
    if (stage->block != NULL) give_block(stage->block, stage->size);
    pm_layout_free(&stage->layout);
    stage->block = NULL;
}
