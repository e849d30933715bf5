/* Calls in which all ranks of a communicator take part. */
#include "path.h"

#include <stdlib.h>
#include <string.h>

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

/* Returns the number of bytes of `count` elements. */
static MPI_Count bytes_of(int count, MPI_Datatype type) {
    MPI_Count size = 0;
    if (type == MPI_DATATYPE_NULL || PMPI_Type_size_x(type, &size) != MPI_SUCCESS) return -1;
    return size * count;
}

/* Returns the address of element `index` of a buffer. */
static char *at(const void *buffer, MPI_Count index, MPI_Datatype type) {
    MPI_Aint low = 0, extent = 0;
    PMPI_Type_get_extent(type, &low, &extent);
    return (char *)buffer + index * extent;
}

/* Messages of one rank in a broadcast: one for each bit of a rank, and the one that it gets. */
enum { BCAST_MESSAGES_MAX = 32 };

/* A broadcast in which rank `root + 2^k` and all ranks behind it get the bytes from `root`, and so
 * on in each half. */
static int broadcast(struct pm_group *group, void *buffer, int count, MPI_Datatype type, int root) {
    int size = group->known->size, own = (group->known->rank - root + size) % size, step = 1;
    while (step < size && !(own & step)) step *= 2;
    if (own != 0) {
        pm_group_receive(group, (own - step + root) % size, buffer, count, type);
        /* The other ranks then learn of the failure from an empty message. */
        if (pm_group_wait(group) != MPI_SUCCESS) count = 0;
    }
    for (step /= 2; step > 0; step /= 2)
        if (own + step < size)
            pm_group_send(group, (own + step + root) % size, buffer, count, type);
    return pm_group_end(group);
}

PM_EXPORT int MPI_Bcast(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
    struct pm_stage stage;
    struct pm_group group = {.function = "MPI_Bcast"};
    int is_inter = 0, rank = 0, is_source = 0;
    const struct pm_comm *known = pm_comm_of(comm);
    if (known != NULL && root >= 0 && root < known->size &&
        pm_group_agree(&group, comm, bytes_of(count, type), BCAST_MESSAGES_MAX,
                       pm_is_whole(buffer, blocks(count, 1), type)))
        return broadcast(&group, buffer, count, type, root);
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

/* What each rank sends to each other one. */
struct part {
    const void *from;
    int sent;
    MPI_Datatype from_type;
    void *to;
    int received;
    MPI_Datatype to_type;
};

typedef struct part part_of(const void *call, int rank);

/* Moves the parts of a call between all ranks. A part without bytes is no message at either end. */
static void exchange(struct pm_group *group, part_of *of, const void *call) {
    int size = group->known->size, own = group->known->rank;
    /* Each rank begins with another one. */
    for (int r = 1; r < size; r++) {
        struct part it = of(call, (own + size - r) % size);
        if (bytes_of(it.received, it.to_type) > 0)
            pm_group_receive(group, (own + size - r) % size, it.to, it.received, it.to_type);
    }
    for (int r = 1; r < size; r++) {
        struct part it = of(call, (own + r) % size);
        if (bytes_of(it.sent, it.from_type) > 0)
            pm_group_send(group, (own + r) % size, it.from, it.sent, it.from_type);
    }
    struct part it = of(call, own);
    MPI_Count bytes = bytes_of(it.received, it.to_type);
    if (bytes > bytes_of(it.sent, it.from_type)) bytes = bytes_of(it.sent, it.from_type);
    if (bytes > 0) pm_group_copy(group, it.to, it.from, bytes);
    pm_group_wait(group);
}

/* The arguments of a call, and what it knows of its communicator. */
struct gathering {
    const void *source;
    int from;
    MPI_Datatype from_type;
    void *target;
    const int *counts, *displacements; /* NULL if all blocks have `to` elements */
    int to;
    MPI_Datatype to_type;
    int rank, size;
};

static int count_of(const struct gathering *it, int rank) {
    return it->counts == NULL ? it->to : it->counts[rank];
}

static char *block_of(const struct gathering *it, int rank) {
    MPI_Count index =
        it->counts == NULL ? (MPI_Count)rank * it->to : (MPI_Count)it->displacements[rank];
    return at(it->target, index, it->to_type);
}

/* The part of MPI_Allgather and MPI_Allgatherv. */
static struct part gathered(const void *call, int rank) {
    const struct gathering *it = call;
    if (it->source != MPI_IN_PLACE)
        return (struct part){it->source,         it->from,           it->from_type,
                             block_of(it, rank), count_of(it, rank), it->to_type};
    if (rank == it->rank) return (struct part){.from_type = it->to_type, .to_type = it->to_type};
    return (struct part){block_of(it, it->rank), count_of(it, it->rank), it->to_type,
                         block_of(it, rank),     count_of(it, rank),     it->to_type};
}

/* Does MPI_Allgather or MPI_Allgatherv if all ranks want that. Returns whether it did, and stores
 * its code. */
static int gather(struct gathering *it, const char *function, MPI_Comm comm, int *code) {
    struct pm_group group = {.function = function};
    const struct pm_comm *known = pm_comm_of(comm);
    MPI_Count most = 0;
    if (known == NULL) return 0;
    it->rank = known->rank;
    it->size = known->size;
    int in_place = it->source == MPI_IN_PLACE, wants = 1;
    for (int r = 0; r < it->size; r++) {
        MPI_Count bytes = bytes_of(count_of(it, r), it->to_type);
        if (bytes > most) most = bytes;
    }
    if (!pm_group_moves(comm, most)) return 0;
    if (!in_place && bytes_of(it->from, it->from_type) > 0)
        wants = pm_is_whole(it->source, blocks(it->from, 1), it->from_type);
    for (int r = 0; r < it->size && wants; r++)
        if (count_of(it, r) > 0)
            wants = pm_is_whole(block_of(it, r), blocks(count_of(it, r), 1), it->to_type);
    if (!pm_group_agree(&group, comm, most, 2 * it->size, wants)) return 0;
    exchange(&group, gathered, it);
    *code = pm_group_end(&group);
    return 1;
}

PM_EXPORT int MPI_Allgather(const void *source, int from, MPI_Datatype from_type, void *target,
                            int to, MPI_Datatype to_type, MPI_Comm comm) {
    struct both both;
    struct gathering it = {source, from, from_type, target, NULL, NULL, to, to_type, 0, 0};
    int code = MPI_SUCCESS;
    if (gather(&it, "MPI_Allgather", comm, &code)) return code;
    prepare(&both, "MPI_Allgather", comm);
    code = open_both(&both, source, both.number > 0 ? blocks(from, 1) : 0, from_type, target,
                     blocks(to, both.number), to_type);
    if (code != MPI_SUCCESS) return code;
    code = PMPI_Allgather(both.source.host, from, from_type, both.target.host, to, to_type, comm);
    return close_both(&both, code);
}

/* The part of MPI_Alltoall: the arguments are those of a gathering. */
static struct part scattered(const void *call, int rank) {
    const struct gathering *it = call;
    return (struct part){at(it->source, (MPI_Count)rank * it->from, it->from_type),
                         it->from,
                         it->from_type,
                         block_of(it, rank),
                         it->to,
                         it->to_type};
}

PM_EXPORT int MPI_Alltoall(const void *source, int from, MPI_Datatype from_type, void *target,
                           int to, MPI_Datatype to_type, MPI_Comm comm) {
    struct both both;
    struct pm_group group = {.function = "MPI_Alltoall"};
    const struct pm_comm *known = pm_comm_of(comm);
    int size = known == NULL ? 0 : known->size, code = MPI_SUCCESS;
    /* With MPI_IN_PLACE, a block would have to leave before another one comes. */
    int wants = source != MPI_IN_PLACE && size > 0 &&
                pm_is_whole(target, blocks(to, size), to_type) &&
                pm_is_whole(source, blocks(from, size), from_type);
    if (pm_group_agree(&group, comm, bytes_of(to, to_type), 2 * size, wants)) {
        struct gathering it = {source, from, from_type, target, NULL, NULL, to, to_type, 0, size};
        exchange(&group, scattered, &it);
        return pm_group_end(&group);
    }
    prepare(&both, "MPI_Alltoall", comm);
    code = open_both(&both, source, blocks(from, both.number), from_type, target,
                     blocks(to, both.number), to_type);
    if (code != MPI_SUCCESS) return code;
    code = PMPI_Alltoall(both.source.host, from, from_type, both.target.host, to, to_type, comm);
    return close_both(&both, code);
}

PM_EXPORT int MPI_Allgatherv(const void *source, int from, MPI_Datatype from_type, void *target,
                             const int counts[], const int displacements[], MPI_Datatype to_type,
                             MPI_Comm comm) {
    struct both both;
    struct gathering it = {source,        from, from_type, target, counts,
                           displacements, 0,    to_type,   0,      0};
    int in_place = source == MPI_IN_PLACE, code = MPI_SUCCESS;
    if (gather(&it, "MPI_Allgatherv", comm, &code)) return code;
    prepare(&both, "MPI_Allgatherv", comm);
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

/* The arguments of MPI_Alltoallv. */
struct spread {
    const void *source;
    const int *from_counts, *from_displacements;
    MPI_Datatype from_type;
    void *target;
    const int *to_counts, *to_displacements;
    MPI_Datatype to_type;
    MPI_Comm comm;
};

/* MPI_Alltoallv through MPI. */
static int spread_by_mpi(const struct spread *it) {
    struct both both;
    prepare(&both, "MPI_Alltoallv", it->comm);
    int in_place = it->source == MPI_IN_PLACE, code = MPI_SUCCESS;
    struct pm_parts from = {it->from_counts, it->from_displacements, both.number};
    struct pm_parts to = {it->to_counts, it->to_displacements, both.number};
    pm_open_plain(&both.source, it->source);
    if (!in_place)
        code =
            pm_open_parts(&both.source, both.function, it->comm, it->source, from, it->from_type);
    if (code != MPI_SUCCESS) return code;
    code = pm_open_parts(&both.target, both.function, it->comm, it->target, to, it->to_type);
    code = fetch(&both, code, in_place);
    if (code != MPI_SUCCESS) return code;
    code = PMPI_Alltoallv(both.source.host, it->from_counts, it->from_displacements, it->from_type,
                          both.target.host, it->to_counts, it->to_displacements, it->to_type,
                          it->comm);
    return close_both(&both, code);
}

/* Takes the large blocks out of the counts of one side. Returns their number. */
static int take_large(const struct spread *it, const int *counts, MPI_Datatype type, int *left,
                      int own, int size) {
    int taken = 0;
    for (int r = 0; r < size; r++) {
        int moves = r != own && pm_group_moves(it->comm, bytes_of(counts[r], type));
        left[r] = moves ? 0 : counts[r];
        taken += moves;
    }
    return taken;
}

PM_EXPORT int MPI_Alltoallv(const void *source, const int from_counts[],
                            const int from_displacements[], MPI_Datatype from_type, void *target,
                            const int to_counts[], const int to_displacements[],
                            MPI_Datatype to_type, MPI_Comm comm) {
    struct spread it = {source,           from_counts, from_displacements,
                        from_type,        target,      to_counts,
                        to_displacements, to_type,     comm};
    struct pm_group group = {.function = "MPI_Alltoallv"};
    const struct pm_comm *known = source == MPI_IN_PLACE ? NULL : pm_comm_of(comm);
    int own = known == NULL ? 0 : known->rank, size = known == NULL ? 0 : known->size;
    if (known == NULL || from_counts == NULL || to_counts == NULL) return spread_by_mpi(&it);
    int *left = calloc(2 * (size_t)size, sizeof *left);
    if (left == NULL)
        return pm_raise(comm, MPI_ERR_NO_MEM, group.function, "there is no memory for its counts");
    int messages = take_large(&it, from_counts, from_type, left, own, size) +
                   take_large(&it, to_counts, to_type, left + size, own, size);
    int code = MPI_SUCCESS;
    if (messages == 0) {
        code = spread_by_mpi(&it);
    } else if (!pm_group_begin(&group, comm, messages)) {
        code =
            pm_raise(comm, MPI_ERR_NO_MEM, group.function, "there is no memory for its messages");
    } else {
        for (int r = 0; r < size; r++)
            if (left[size + r] != to_counts[r])
                pm_group_receive(&group, r, at(target, to_displacements[r], to_type), to_counts[r],
                                 to_type);
        for (int r = 0; r < size; r++)
            if (left[r] != from_counts[r])
                pm_group_send(&group, r, at(source, from_displacements[r], from_type),
                              from_counts[r], from_type);
        it.from_counts = left;
        it.to_counts = left + size;
        code = spread_by_mpi(&it);
        int moved = pm_group_end(&group);
        if (code == MPI_SUCCESS) code = moved;
    }
    free(left);
    return code;
}
