/* The functions that libwater needs from an MPI, without MPI's types, whose layout differs between
 * MPIs.
 *
 * Each MPI has a shim, compiled by that MPI's own compiler (mpicc.openmpi, mpicc.mpich, smpicc) and
 * opened at run time. It provides one `struct wtr_mpi_shim`. Only `open` and `close` block. All
 * calls of a run come from one thread at a time. */
#ifndef WTR_MPI_H
#define WTR_MPI_H

#include <stdint.h>

/* Must be increased when the structures below change. */
#define WTR_MPI_ABI 1

/* One process's part in the run. There are no static variables, because a simulator runs many
 * processes in one. */
struct wtr_mpi;

/* An operation that has ended. */
struct wtr_mpi_end {
    uint64_t id;       /* of the operation, as it was started */
    int64_t bytes;     /* received bytes */
    int32_t error;     /* 0, or MPI's code */
    int32_t cancelled; /* 1 if it ended because of `cancel` */
};

/* Functions return 0 or a count if they succeed, otherwise -code (MPI's code) or -1. The caller
 * chooses ids. */
struct wtr_mpi_shim {
    uint32_t abi;
    uint32_t size; /* of this structure */

    /* Starts MPI, unless it runs already, and creates a communicator of all ranks. *threads: 0 or 1
     * only this thread may call, 2 one thread at a time, 3 any thread. Collective: waits for all
     * ranks. */
    int (*open)(struct wtr_mpi **run, int *threads);
    int (*rank)(const struct wtr_mpi *run);
    int (*ranks)(const struct wtr_mpi *run);
    /* Returns the largest tag. */
    int (*tag_max)(const struct wtr_mpi *run);
    /* Writes the MPI's name and version, in at most `room` bytes including the terminating zero. */
    int (*library)(char *text, int room);
    int (*error_text)(int code, char *text, int room);

    /* The memory must stay valid until the operation has ended. */
    int (*send)(struct wtr_mpi *run, const void *bytes, int count, int to, int tag, uint64_t id);
    int (*receive)(struct wtr_mpi *run, void *bytes, int room, int from, int tag, uint64_t id);
    /* Returns 1, the sender and the length if a message with this tag could be received,
     * otherwise 0. */
    int (*probe)(struct wtr_mpi *run, int tag, int *from, int *count);
    /* Returns how many operations have ended since the last call. *ends is valid until the next
     * call. */
    int (*test)(struct wtr_mpi *run, const struct wtr_mpi_end **ends);
    /* Returns the number of operations that have not ended. */
    int (*pending)(const struct wtr_mpi *run);
    /* Cancels a receive. It still ends, and its end says how. */
    int (*cancel)(struct wtr_mpi *run, uint64_t id);
    /* Starts an operation that ends when all ranks have started it. */
    int (*barrier)(struct wtr_mpi *run, uint64_t id);
    /* Frees everything. If `finalize` is not 0 and `open` has started MPI, it also ends MPI, which
     * waits for all ranks. */
    int (*close)(struct wtr_mpi *run, int finalize);

    /* The MPI's clock and sleep. Only a simulator needs them: its time is not the host's. */
    uint64_t (*now_ns)(void);
    void (*sleep_ns)(uint64_t ns);
};

const struct wtr_mpi_shim *wtr_mpi_shim(void);

/* Must be increased when the structure below changes. */
#define WTR_MPI_BLOCKING_ABI 1

/* MPI's own blocking calls, for comparisons with plain MPI programs. libwater does not use them.
 * They return what the functions above return. */
struct wtr_mpi_blocking {
    uint32_t abi;
    uint32_t size; /* of this structure */

    /* The same as in `struct wtr_mpi_shim`. */
    int (*open)(struct wtr_mpi **run, int *threads);
    int (*rank)(const struct wtr_mpi *run);
    int (*ranks)(const struct wtr_mpi *run);
    int (*library)(char *text, int room);
    int (*error_text)(int code, char *text, int room);
    int (*start_send)(struct wtr_mpi *run, const void *bytes, int count, int to, int tag,
                      uint64_t id);
    int (*start_receive)(struct wtr_mpi *run, void *bytes, int room, int from, int tag,
                         uint64_t id);
    int (*close)(struct wtr_mpi *run, int finalize);

    /* Waits until the operation with this id has ended. Returns at once if there is none. */
    int (*wait)(struct wtr_mpi *run, uint64_t id);
    /* MPI_Send, MPI_Recv, MPI_Barrier. */
    int (*send)(struct wtr_mpi *run, const void *bytes, int count, int to, int tag);
    int (*receive)(struct wtr_mpi *run, void *bytes, int room, int from, int tag);
    int (*barrier)(struct wtr_mpi *run);
};

const struct wtr_mpi_blocking *wtr_mpi_blocking(void);

#endif
