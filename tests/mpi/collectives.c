#include "cases.h"

#include <string.h>

/* A call in which the root's or all ranks' elements go to other ranks. */
static void exchange(struct scene *scene, MPI_Comm comm, int kind, int root, int in_place,
                     char *from, char *to) {
    const void *source = in_place ? MPI_IN_PLACE : from + scene->out.offset;
    const struct view *out = &scene->out, *in = &scene->in;
    to += in->offset;
    switch (kind) {
    case 0: MPI_Bcast(to, in->count, in->type, root, comm); break;
    case 1: MPI_Allgather(source, out->count, out->type, to, in->count, in->type, comm); break;
    default: MPI_Alltoall(source, out->count, out->type, to, in->count, in->type, comm); break;
    }
}

void case_collective(struct scene *scene) {
    int elements = 12 * random_below(12), kind = random_below(3), root = random_below(scene->ranks);
    int in_place = random_below(3) == 0;
    view_make(&scene->out, scene->base, elements, scene->ranks);
    view_make(&scene->in, scene->base, elements, scene->ranks);
    /* The roots and the receivers of a broadcast split a message by its type, so Open MPI demands
     * the same type. With MPI_IN_PLACE, both are the same buffer. */
    scene_fill(scene);
    EACH_RUN(scene, from, to) exchange(scene, scene->comm, kind, root, in_place, from, to);
    scene_compare(scene, kind == 0 ? "Bcast" : kind == 1 ? "Allgather" : "Alltoall");
}

void case_intercommunicator(struct scene *scene) {
    int elements = 12 * random_below(12), kind = random_below(4), root_group = random_below(2);
    int group = scene->rank % 2, group_size = (scene->ranks + 1 - group) / 2, root = MPI_PROC_NULL;
    MPI_Comm half, inter;
    view_make(&scene->out, scene->base, elements, scene->ranks);
    view_make(&scene->in, scene->base, elements, scene->ranks);
    scene_fill(scene);
    MPI_Comm_split(scene->comm, group, scene->rank, &half);
    MPI_Intercomm_create(half, 0, scene->comm, 1 - group, 9, &inter);
    if (group != root_group)
        root = 0;
    else if (scene->rank == group)
        root = MPI_ROOT;
    CHECK(group_size > 0);
    EACH_RUN(scene, from, to) {
        if (kind == 3)
            MPI_Allreduce(from, to, elements, MPI_INT, MPI_MAX, inter);
        else
            exchange(scene, inter, kind, root, 0, from, to);
    }
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
    scene_compare(scene, "intercommunicator");
}

/* An operation on pairs of numbers that depends on the order of its operands: the composition of
 * affine functions. */
static void compose(void *in, void *inout, int *count, MPI_Datatype *type) {
    MPI_Aint low, extent;
    MPI_Type_get_extent(*type, &low, &extent);
    for (int i = 0; i < *count; i++) {
        unsigned left[2], right[2];
        memcpy(left, (char *)in + i * extent, 4);
        memcpy(left + 1, (char *)in + i * extent + 8, 4);
        memcpy(right, (char *)inout + i * extent, 4);
        memcpy(right + 1, (char *)inout + i * extent + 8, 4);
        unsigned factor = left[0] * right[0], term = left[1] * right[0] + right[1];
        memcpy((char *)inout + i * extent, &factor, 4);
        memcpy((char *)inout + i * extent + 8, &term, 4);
    }
}

void case_reduction(struct scene *scene) {
    int elements = random_below(400), kind = random_below(5), in_place = random_below(3) == 0;
    MPI_Datatype type = MPI_INT, pair;
    MPI_Op op = MPI_SUM, own;
    MPI_Op_create(compose, 0, &own);
    MPI_Type_vector(2, 1, 2, MPI_UNSIGNED, &pair);
    MPI_Type_commit(&pair);
    switch (kind) {
    case 1: type = MPI_UNSIGNED_CHAR, op = MPI_BXOR; break;
    case 2: type = MPI_SHORT_INT, op = MPI_MAXLOC; break;
    case 3: type = MPI_LONG, op = MPI_MIN; break;
    case 4: type = pair, op = own; break;
    default: break;
    }
    scene_fill(scene);
    EACH_RUN(scene, from, to)
    MPI_Allreduce(in_place ? MPI_IN_PLACE : from + 64, to + 16, elements, type, op, scene->comm);
    MPI_Type_free(&pair);
    MPI_Op_free(&own);
    scene_compare(scene, "Allreduce");
}

enum { RANKS_MAX = 8 };

void case_parts(struct scene *scene) {
    /* counts[a][b] elements go from rank a to rank b. */
    int counts[RANKS_MAX][RANKS_MAX], out[RANKS_MAX], in[RANKS_MAX], out_at[RANKS_MAX];
    int in_at[RANKS_MAX], gaps[RANKS_MAX], ranks = scene->ranks, at_out = 0, at_in = 0;
    int in_place = random_below(4) == 0, gathers = random_below(2), spread = random_below(3);
    MPI_Datatype type;
    CHECK(ranks <= RANKS_MAX);
    for (int a = 0; a < ranks; a++) {
        gaps[a] = random_below(4);
        for (int b = 0; b < ranks; b++) counts[a][b] = random_below(3) ? random_below(60) : 0;
    }
    for (int a = 0; a < ranks; a++)
        for (int b = 0; b < a; b++)
            if (in_place) counts[b][a] = counts[a][b];
    MPI_Type_vector(2, 1, 1 + spread, scene->base, &type);
    MPI_Type_commit(&type);
    for (int r = ranks - 1; r >= 0; r--) {
        out[r] = counts[scene->rank][r];
        in[r] = gathers ? counts[r][0] : counts[r][scene->rank];
        out_at[r] = at_out + gaps[r];
        in_at[r] = at_in + gaps[r];
        at_out = out_at[r] + out[r];
        at_in = in_at[r] + in[r];
    }
    scene_fill(scene);
    EACH_RUN(scene, from, to) {
        const void *source = in_place ? MPI_IN_PLACE : from;
        if (gathers)
            MPI_Allgatherv(source, counts[scene->rank][0], type, to, in, in_at, type, scene->comm);
        else
            MPI_Alltoallv(source, out, out_at, type, to, in, in_at, type, scene->comm);
    }
    MPI_Type_free(&type);
    scene_compare(scene, gathers ? "Allgatherv" : "Alltoallv");
}

/* Blocks without gaps, of which many are so large that workers may move them. */
void case_groups(struct scene *scene) {
    int counts[RANKS_MAX][RANKS_MAX], lines[4][RANKS_MAX], ranks = scene->ranks, rank = scene->rank;
    int kind = random_below(6), root = random_below(ranks), in_place = random_below(4) == 0;
    int most = (int)(AREA_BYTES / 16) / ranks, own = random_below(1 << 8) >> (2 * (rank % 4)) & 3;
    int is_mixed = random_below(3) == 0, seed = random_below(1000) + rank;
    int same = random_below(4) ? most - random_below(8) : random_below(40);
    MPI_Datatype threes;
    MPI_Comm comm = scene->comm, other = MPI_COMM_NULL;
    CHECK(ranks <= RANKS_MAX);
    MPI_Type_contiguous(3, scene->base, &threes);
    MPI_Type_commit(&threes);
    for (int a = 0; a < ranks; a++)
        for (int b = 0; b < ranks; b++)
            counts[a][b] = random_below(3) ? most - random_below(8) : random_below(2) * 9;
    for (int r = 0; r < ranks; r++) {
        lines[0][r] = counts[rank][r];
        lines[1][r] = kind == 2 ? counts[r][0] : counts[r][rank];
        lines[2][r] = lines[3][r] = r * most;
    }
    /* A communicator in which the ranks have other numbers. */
    if (random_below(4) == 0) MPI_Comm_split(comm, 0, -rank, &other);
    if (other != MPI_COMM_NULL && (kind == 2 || kind == 4)) MPI_Comm_free(&other);
    if (other != MPI_COMM_NULL) comm = other;
    area_fill(&scene->from, (uint64_t)seed, !is_mixed || own != 0);
    area_fill(&scene->to, (uint64_t)seed + 5000, !is_mixed || own != 1);
    EACH_RUN(scene, from, to) {
        /* MPICH 4.0.2 alone ends MPI_Alltoall in place with an error for blocks of 16 KiB. */
        const void *source = in_place && kind != 3 ? MPI_IN_PLACE : from;
        switch (kind) {
        case 0: MPI_Bcast(to, same, scene->base, root, comm); break;
        case 1:
            MPI_Allgather(source, 3 * (same / 3), scene->base, to, same / 3, threes, comm);
            break;
        case 2:
            MPI_Allgatherv(source, counts[rank][0], scene->base, to, lines[1], lines[3],
                           scene->base, comm);
            break;
        case 3: MPI_Alltoall(source, same, scene->base, to, same, scene->base, comm); break;
        case 4:
            MPI_Alltoallv(from, lines[0], lines[2], scene->base, to, lines[1], lines[3],
                          scene->base, comm);
            break;
        default:
            /* Ranks give the same bytes by different types. */
            if (rank % 2 == 0)
                MPI_Bcast(to, same / 3, threes, root, comm);
            else
                MPI_Bcast(to, 3 * (same / 3), scene->base, root, comm);
        }
    }
    if (other != MPI_COMM_NULL) MPI_Comm_free(&other);
    MPI_Type_free(&threes);
    scene_compare(scene, "groups");
}
