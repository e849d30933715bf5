/* What libwater needs of an MPI, without MPI's types: their layout differs between MPIs, this does not.
 *
 * One shim per MPI, compiled by that MPI's own compiler (mpicc.openmpi, mpicc.mpich, smpicc) and opened at run time, gives one
 * `struct wtr_mpi_shim`. Nothing in that blocks but `open` and `close`. All calls of a run come from one thread at a time. */
#ifndef WTR_MPI_H
#define WTR_MPI_H

#include <stdint.h>

/* Grows when the structures below change. */
#define WTR_MPI_ABI 1

/* One process's part in the run. It has no static variables: a simulator has many processes in one. */
struct wtr_mpi;

/* An operation that has ended. */
struct wtr_mpi_end {
    uint64_t id;       /* as it was started */
    int64_t bytes;     /* of a receive */
    int32_t error;     /* 0, or MPI's code */
    int32_t cancelled; /* 1 if it ended because of `cancel` */
};

/* Results are 0 or counts where all is well, and -code (MPI's code) or -1 where not. Ids are the caller's. */
struct wtr_mpi_shim {
    uint32_t abi;
    uint32_t size; /* of this structure */

    /* Starts MPI, if nobody has, and makes a communicator of all. *threads: 0 only this thread may call, 1 the same, 2 one thread at a
     * time, 3 any. Collective: waits for all. */
    int (*open)(struct wtr_mpi **run, int *threads);
    int (*rank)(const struct wtr_mpi *run);
    int (*ranks)(const struct wtr_mpi *run);
    /* The largest tag. */
    int (*tag_max)(const struct wtr_mpi *run);
    /* The MPI's name and version; at most `room` bytes with the end. */
    int (*library)(char *text, int room);
    int (*error_text)(int code, char *text, int room);

    /* Memory stays until the id has ended. */
    int (*send)(struct wtr_mpi *run, const void *bytes, int count, int to, int tag, uint64_t id);
    int (*receive)(struct wtr_mpi *run, void *bytes, int room, int from, int tag, uint64_t id);
    /* 1 and who sent how much, if a message of this tag could be received; else 0. */
    int (*probe)(struct wtr_mpi *run, int tag, int *from, int *count);
    /* How many operations have ended since the last call. *ends is valid until the next one. */
    int (*test)(struct wtr_mpi *run, const struct wtr_mpi_end **ends);
    /* Operations that have not ended. */
    int (*pending)(const struct wtr_mpi *run);
    /* Takes a receive back. It ends in any case, and says how. */
    int (*cancel)(struct wtr_mpi *run, uint64_t id);
    /* Ends when all ranks have called it. */
    int (*barrier)(struct wtr_mpi *run, uint64_t id);
    /* Frees all. Ends MPI too if `finalize` is not 0 and `open` started it: that waits for all. */
    int (*close)(struct wtr_mpi *run, int finalize);

    /* The MPI's clock and sleep. Only a simulator needs them: its time is not the host's. */
    uint64_t (*now_ns)(void);
    void (*sleep_ns)(uint64_t ns);
};

const struct wtr_mpi_shim *wtr_mpi_shim(void);

/* Grows when the structure below changes. */
#define WTR_MPI_BLOCKING_ABI 1

/* MPI's own blocking calls, for who compares with what a plain MPI program does. libwater uses none of them. Results as above. */
struct wtr_mpi_blocking {
    uint32_t abi;
    uint32_t size; /* of this structure */

    /* As in `struct wtr_mpi_shim`. */
    int (*open)(struct wtr_mpi **run, int *threads);
    int (*rank)(const struct wtr_mpi *run);
    int (*ranks)(const struct wtr_mpi *run);
    int (*library)(char *text, int room);
    int (*error_text)(int code, char *text, int room);
    int (*start_send)(struct wtr_mpi *run, const void *bytes, int count, int to, int tag, uint64_t id);
    int (*start_receive)(struct wtr_mpi *run, void *bytes, int room, int from, int tag, uint64_t id);
    int (*close)(struct wtr_mpi *run, int finalize);

    /* Ends when the operation of this id has ended. At once if there is none. */
    int (*wait)(struct wtr_mpi *run, uint64_t id);
    /* MPI_Send, MPI_Recv, MPI_Barrier. */
    int (*send)(struct wtr_mpi *run, const void *bytes, int count, int to, int tag);
    int (*receive)(struct wtr_mpi *run, void *bytes, int room, int from, int tag);
    int (*barrier)(struct wtr_mpi *run);
};

const struct wtr_mpi_blocking *wtr_mpi_blocking(void);

#endif
