/* Calls in which all ranks of a communicator take part. */
#include "pm.h"

/* Number of ranks that a rank exchanges with: those of the other group, if there are two. */
static int partners(MPI_Comm comm) {
    int number = 0, is_inter = 0;
    PMPI_Comm_test_inter(comm, &is_inter);
    if (is_inter)
        PMPI_Comm_remote_size(comm, &number);
    else
        PMPI_Comm_size(comm, &number);
    return number;
}

static size_t blocks(int count, int number) {
    return count > 0 && number > 0 ? (size_t)count * (size_t)number : 0;
}

PM_EXPORT int MPI_Bcast(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
    struct pm_stage stage;
    int is_inter = 0, rank = 0, is_source = 0;
    if (!pm_has_driver()) return PMPI_Bcast(buffer, count, type, root, comm);
    PMPI_Comm_test_inter(comm, &is_inter);
    if (is_inter) {
        /* The other ranks of the root's group take no part in the call. */
        if (root == MPI_PROC_NULL) return PMPI_Bcast(buffer, count, type, root, comm);
        is_source = root == MPI_ROOT;
    } else {
        PMPI_Comm_rank(comm, &rank);
        is_source = root == rank;
    }
    int code = pm_open(&stage, "MPI_Bcast", comm, buffer, blocks(count, 1), type);
    if (code != MPI_SUCCESS) return code;
    if (is_source) code = pm_fetch(&stage);
    if (code == MPI_SUCCESS) code = PMPI_Bcast(stage.host, count, type, root, comm);
    if (code == MPI_SUCCESS && !is_source) code = pm_store(&stage, PM_ALL);
    pm_close(&stage);
    return code;
}

/* The two buffers of a collective call. */
struct both {
    struct pm_stage source, target;
    const char *function;
    MPI_Comm comm;
    int number; /* of the ranks that exchange, or 0 if no buffer can be on a device */
};

static void prepare(struct both *both, const char *function, MPI_Comm comm) {
    both->function = function;
    both->comm = comm;
    both->number = pm_has_driver() ? partners(comm) : 0;
}

/* Ends the opening of both buffers. `code` is the result of opening the target; the source is open.
 * With MPI_IN_PLACE, the target is the source. */
static int fetch(struct both *both, int code, int in_place) {
    if (code == MPI_SUCCESS) {
        code = pm_fetch(in_place ? &both->target : &both->source);
        if (code == MPI_SUCCESS) return code;
        pm_close(&both->target);
    }
    pm_close(&both->source);
    return code;
}

/* Opens two buffers of `from` and `to` elements. */
static int open_both(struct both *both, const void *source, size_t from, MPI_Datatype from_type,
                     void *target, size_t to, MPI_Datatype to_type) {
    int in_place = source == MPI_IN_PLACE;
    pm_open_plain(&both->source, source);
    if (!in_place) {
        int code = pm_open(&both->source, both->function, both->comm, source, from, from_type);
        if (code != MPI_SUCCESS) return code;
    }
    int code = pm_open(&both->target, both->function, both->comm, target, to, to_type);
    return fetch(both, code, in_place);
}

/* Stores the result, if MPI returned success, and closes both buffers. */
static int close_both(struct both *both, int code) {
    if (code == MPI_SUCCESS) code = pm_store(&both->target, PM_ALL);
    pm_close(&both->source);
    pm_close(&both->target);
    return code;
}

PM_EXPORT int MPI_Allreduce(const void *source, void *target, int count, MPI_Datatype type,
                            MPI_Op op, MPI_Comm comm) {
    struct both both;
    prepare(&both, "MPI_Allreduce", comm);
    size_t elements = both.number > 0 ? blocks(count, 1) : 0;
    int code = open_both(&both, source, elements, type, target, elements, type);
    if (code != MPI_SUCCESS) return code;
    code = PMPI_Allreduce(both.source.host, both.target.host, count, type, op, comm);
    return close_both(&both, code);
}

PM_EXPORT int MPI_Allgather(const void *source, int from, MPI_Datatype from_type, void *target,
                            int to, MPI_Datatype to_type, MPI_Comm comm) {
    struct both both;
    prepare(&both, "MPI_Allgather", comm);
    int code = open_both(&both, source, both.number > 0 ? blocks(from, 1) : 0, from_type, target,
                         blocks(to, both.number), to_type);
    if (code != MPI_SUCCESS) return code;
    code = PMPI_Allgather(both.source.host, from, from_type, both.target.host, to, to_type, comm);
    return close_both(&both, code);
}

PM_EXPORT int MPI_Alltoall(const void *source, int from, MPI_Datatype from_type, void *target,
                           int to, MPI_Datatype to_type, MPI_Comm comm) {
    struct both both;
    prepare(&both, "MPI_Alltoall", comm);
    int code = open_both(&both, source, blocks(from, both.number), from_type, target,
                         blocks(to, both.number), to_type);
    if (code != MPI_SUCCESS) return code;
    code = PMPI_Alltoall(both.source.host, from, from_type, both.target.host, to, to_type, comm);
    return close_both(&both, code);
}

PM_EXPORT int MPI_Allgatherv(const void *source, int from, MPI_Datatype from_type, void *target,
                             const int counts[], const int displacements[], MPI_Datatype to_type,
                             MPI_Comm comm) {
    struct both both;
    prepare(&both, "MPI_Allgatherv", comm);
    int in_place = source == MPI_IN_PLACE, code = MPI_SUCCESS;
    pm_open_plain(&both.source, source);
    if (!in_place && both.number > 0)
        code = pm_open(&both.source, both.function, comm, source, blocks(from, 1), from_type);
    if (code != MPI_SUCCESS) return code;
    struct pm_parts parts = {counts, displacements, both.number};
    code = pm_open_parts(&both.target, both.function, comm, target, parts, to_type);
    code = fetch(&both, code, in_place);
    if (code != MPI_SUCCESS) return code;
    code = PMPI_Allgatherv(both.source.host, from, from_type, both.target.host, counts,
                           displacements, to_type, comm);
    return close_both(&both, code);
}

PM_EXPORT int MPI_Alltoallv(const void *source, const int from_counts[],
                            const int from_displacements[], MPI_Datatype from_type, void *target,
                            const int to_counts[], const int to_displacements[],
                            MPI_Datatype to_type, MPI_Comm comm) {
    struct both both;
    prepare(&both, "MPI_Alltoallv", comm);
    int in_place = source == MPI_IN_PLACE, code = MPI_SUCCESS;
    struct pm_parts from = {from_counts, from_displacements, both.number};
    struct pm_parts to = {to_counts, to_displacements, both.number};
    pm_open_plain(&both.source, source);
    if (!in_place) code = pm_open_parts(&both.source, both.function, comm, source, from, from_type);
    if (code != MPI_SUCCESS) return code;
    code = pm_open_parts(&both.target, both.function, comm, target, to, to_type);
    code = fetch(&both, code, in_place);
    if (code != MPI_SUCCESS) return code;
    code = PMPI_Alltoallv(both.source.host, from_counts, from_displacements, from_type,
                          both.target.host, to_counts, to_displacements, to_type, comm);
    return close_both(&both, code);
}
