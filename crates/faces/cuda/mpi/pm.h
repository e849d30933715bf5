/* libpenstock_mpi: MPI calls with memory of the pool's CUDA devices. Copyright 2026 the Penstock
 * authors. SPDX-License-Identifier: Apache-2.0
 *
 * The library defines functions of MPI and calls MPI by the names of its profiling interface
 * (PMPI_...). If a buffer of a call lies on a device, the library copies the bytes between the
 * device and a block of host memory, and gives MPI the block. If this process sees the device's
 * memory, MPI gets that memory itself. All arguments other than the buffer reach MPI as the program
 * gave them, so MPI's own rules decide about matching, order, truncation and types. docs/mpi.md is
 * the guide, and docs/decisions/0042-device-memory-in-mpi-goes-through-blocks-of-the-host.md has
 * the reasons. */
#ifndef PENSTOCK_PM_H
#define PENSTOCK_PM_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

#define PM_EXPORT __attribute__((visibility("default")))

/* Blocks of equal length at equal distances. */
struct pm_run {
    intptr_t offset; /* of the first block from the buffer's address, in bytes */
    size_t length;   /* of one block, in bytes */
    intptr_t stride; /* from one block to the next, in bytes */
    size_t count;    /* number of blocks */
};

/* The bytes of a buffer in the order in which MPI sends them. `pm_layout_free` frees it. */
struct pm_layout {
    struct pm_run *runs;
    size_t used, room;
    enum pm_fault { PM_FINE, PM_NO_MEMORY, PM_NO_SUCH_TYPE } fault;
};

/* device.c */

/* Returns whether an address is device memory of Penstock's libcuda. */
int pm_is_device(uintptr_t address);
/* Returns whether Penstock's libcuda is loaded. Without it there is no device memory. */
int pm_has_driver(void);

/* Returns the address in this process of a range of device memory, or NULL if the device does not
 * work on memory that this process sees. */
void *pm_host_address(uintptr_t address, size_t size);

enum pm_way { PM_TO_HOST, PM_TO_DEVICE };

/* Copies the blocks of a run. `device` and `host` are the addresses of the run's first block.
 * Returns NULL, or the name of CUDA's error. */
const char *pm_copy(enum pm_way way, uintptr_t device, uintptr_t host, const struct pm_run *run);

/* Copies between two places of device memory, and waits for the end. */
const char *pm_copy_on_device(uintptr_t to, uintptr_t from, size_t size);

/* Transfers between the workers of two ranks: see crates/faces/cuda/src/api/grant.rs. Those that
 * return an int return whether they have succeeded. */
int pm_grant_worker(uintptr_t address, size_t size, uint64_t *worker);
int pm_grant_invite(uintptr_t address, uint64_t *stranger, void *invitation, size_t *length,
                    size_t room);
int pm_grant_visit(uintptr_t address, const void *invitation, size_t length, uint64_t *stranger);
int pm_grant_make(uintptr_t address, size_t size, uint64_t stranger, uint64_t *transfer,
                  uint64_t *number);
/* Returns whether nobody had claimed the grant, which is then forgotten. */
int pm_grant_revoke(uint64_t transfer);
/* PM_REFUSED: nothing is sent. PM_LOST: the worker of this rank is lost. */
enum pm_sent { PM_SENT, PM_REFUSED, PM_LOST };
enum pm_sent pm_grant_send(uintptr_t address, size_t size, uint64_t stranger, uint64_t number,
                           uint64_t *transfer);
/* Waits until a transfer has ended. Returns NULL, or the name of CUDA's error. */
const char *pm_grant_end(uint64_t transfer);

/* layout.c */

/* Appends `count` elements of a type, of which the first has the offset `base`. */
void pm_layout_add(struct pm_layout *layout, MPI_Datatype type, size_t count, intptr_t base);
/* Must be called after the last `pm_layout_add`. */
void pm_layout_end(struct pm_layout *layout);
void pm_layout_free(struct pm_layout *layout);

/* stage.c */

/* One buffer of a call. */
struct pm_stage {
    /* What MPI gets: the program's pointer, or the address at which this process sees the device's
     * memory, or the address of the copy in `block`. */
    void *host;
    /* NULL if there is no copy. The members below are valid only if there is one. */
    char *block;
    size_t size;      /* of the block */
    uintptr_t device; /* the program's pointer */
    intptr_t low;     /* smallest offset in the layout */
    struct pm_layout layout;
    const char *function;
    MPI_Comm comm;
    /* Number of bytes on the device, if they have no gaps. Otherwise 0. Also valid without a
     * block. */
    size_t whole;
    /* path.h: of a receive that has offered its memory, and of a send that uses such an offer. */
    struct pm_offer *offer;
    struct pm_claim *claim;
    /* Number of bytes that came from worker to worker. */
    size_t arrived;
};

/* Regions of a buffer with several blocks of one type, as in MPI_Allgatherv. */
struct pm_parts {
    const int *counts, *displacements;
    int number;
};

/* Opens a buffer of `count` elements. If it is on a device, allocates its block, without content.
 * The functions that return an int return MPI_SUCCESS, or the code of the error that they have
 * raised at the communicator. */
int pm_open(struct pm_stage *stage, const char *function, MPI_Comm comm, const void *buffer,
            size_t count, MPI_Datatype type);
/* Does as `pm_open`, and always makes a copy: the memory of a persistent request must be fetched
 * when the request starts. */
int pm_open_copy(struct pm_stage *stage, const char *function, MPI_Comm comm, const void *buffer,
                 size_t count, MPI_Datatype type);
int pm_open_parts(struct pm_stage *stage, const char *function, MPI_Comm comm, const void *buffer,
                  struct pm_parts parts, MPI_Datatype type);
/* Makes a stage that passes a pointer on. */
void pm_open_plain(struct pm_stage *stage, const void *buffer);
/* Copies the whole buffer to the block. Does nothing for a buffer of the host. */
int pm_fetch(const struct pm_stage *stage);
/* Copies the first `bytes` bytes, in MPI's order, from the block to the device. Does nothing for a
 * buffer of the host. */
int pm_store(const struct pm_stage *stage, size_t bytes);
/* Does as `pm_store` with the bytes that a receive got, unless the receive was cancelled. If the
 * bytes came from worker to worker, makes `status` tell their number. */
int pm_store_received(struct pm_stage *stage, MPI_Status *status);
/* Makes `status` tell the number of bytes that came from worker to worker, if they did. */
void pm_tell_arrived(const struct pm_stage *stage, MPI_Status *status);
void pm_close(struct pm_stage *stage);
/* `bytes` for `pm_store` that stands for the whole buffer. */
#define PM_ALL SIZE_MAX

/* error.c */

/* Raises an error of the given class at a communicator, with a line on standard error. Returns its
 * code if the error handler returns. */
int pm_raise(MPI_Comm comm, int error_class, const char *function, const char *reason);
/* Does as `pm_raise`, without a communicator: only makes the code and writes the line. */
int pm_code(int error_class, const char *function, const char *reason);

/* lane.c */

/* All messages from one rank to another with one communicator and one tag. */
struct pm_lane {
    uint64_t comm;
    int partner, tag; /* as in the call: they may be wildcards */
    enum pm_lane_way { PM_SENDS, PM_RECEIVES } way;
};

/* entered.c */

/* An operation that has a request. */
struct pm_operation {
    struct pm_stage stage;
    MPI_Request request;
    char is_receive, is_persistent;
    char is_active;    /* started, and not yet reported as ended */
    char is_delivered; /* a receive whose bytes are on the device already */
    char is_claimed;   /* a call of the program is at work with the request */
    char is_wild;      /* a receive that names any source or any tag, in a lane of the path */
    char may_claim;    /* a persistent send that may take the path */
    char is_stubbed;   /* a persistent send that has started without MPI: a stub stands for it */
    struct pm_lane lane;
    MPI_Comm comm; /* of a persistent request */
    struct pm_operation *next;
};

/* Returns an operation with a plain stage, or NULL. */
struct pm_operation *pm_operation_new(void);
/* Enters an operation whose `request` is set. */
void pm_enter(struct pm_operation *operation);
/* Returns the operation of a request, which no other call then finds, or NULL for a request that
 * only MPI knows. */
struct pm_operation *pm_claim(MPI_Request request);
void pm_unclaim(struct pm_operation *operation);
/* Removes a claimed operation, so that no call finds it. */
void pm_leave(struct pm_operation *operation);

/* requests.c */

/* Removes a claimed operation and frees it. */
void pm_drop(struct pm_operation *operation);
/* Does what follows the end of a claimed operation: stores what was received, and drops the
 * operation if its request is gone. */
int pm_finish(struct pm_operation *operation, MPI_Status *status);
/* Keeps a claimed operation whose request the program has freed until it has ended. */
void pm_abandon(struct pm_operation *operation);
/* Frees the abandoned operations that have ended. */
void pm_reap(void);

#endif
