#include "cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TIMES_MAX = 60 };

static int compare(const void *a, const void *b) {
    double one = *(const double *)a, other = *(const double *)b;
    return (one > other) - (one < other);
}

static double median(double *values, int count) {
    qsort(values, (size_t)count, sizeof *values, compare);
    return values[count / 2];
}

static const char *const names[] = {"two devices", "two devices by MPI_Bcast",
                                    "two devices by MPI_Allgather", "two devices by MPI_Alltoall"};

/* What the two ranks of an exchange call, and memory of one of them. */
struct pair {
    enum { MESSAGES, BCAST, ALLGATHER, ALLTOALL } kind;
    int rank, bytes, tag;
    MPI_Comm comm;
    char *device, *host, *device_to, *host_to;
};

/* Sends once to the other rank and back, through the library or with copies that the program makes
 * itself. Returns the seconds of one way. */
static double exchange(const struct pair *it, int copies) {
    double start = MPI_Wtime();
    void *buffer = copies ? it->host : it->device;
    for (int turn = 0; turn < 2; turn++) {
        int sends = turn == it->rank, tag = it->tag + copies;
        if (sends && copies) device_copy(it->host, it->device, (size_t)it->bytes);
        if (sends)
            MPI_Send(buffer, it->bytes, MPI_CHAR, 1 - it->rank, tag, it->comm);
        else
            MPI_Recv(buffer, it->bytes, MPI_CHAR, 1 - it->rank, tag, it->comm, MPI_STATUS_IGNORE);
        if (!sends && copies) device_copy(it->device, it->host, (size_t)it->bytes);
    }
    return (MPI_Wtime() - start) / 2;
}

/* Does one collective call as `exchange`. Both ranks together move `bytes` bytes or twice as many.
 */
static double collective(const struct pair *it, int copies) {
    char *from = copies ? it->host : it->device, *to = copies ? it->host_to : it->device_to;
    int half = it->bytes / 2;
    size_t sent = it->kind == ALLGATHER ? (size_t)half : (size_t)it->bytes;
    double start = MPI_Wtime();
    if (copies && (it->kind != BCAST || it->rank == 0)) device_copy(it->host, it->device, sent);
    switch (it->kind) {
    case BCAST: MPI_Bcast(from, it->bytes, MPI_CHAR, 0, it->comm); break;
    case ALLGATHER: MPI_Allgather(from, half, MPI_CHAR, to, half, MPI_CHAR, it->comm); break;
    default: MPI_Alltoall(from, half, MPI_CHAR, to, half, MPI_CHAR, it->comm);
    }
    if (copies && it->kind != BCAST) device_copy(it->device_to, it->host_to, (size_t)it->bytes);
    if (copies && it->kind == BCAST && it->rank == 1) device_copy(it->device, it->host, sent);
    MPI_Barrier(it->comm);
    return MPI_Wtime() - start;
}

/* Writes the medians of both ways, and the median of the quotients of neighbouring exchanges. */
static void exchanges(const struct pair *it, int times) {
    double took[2][TIMES_MAX], quotients[TIMES_MAX];
    for (int i = -2; i < times; i++)
        for (int turn = 0; turn < 2; turn++) {
            /* Each of the two is the first one equally often. */
            int copies = (i + turn) & 1;
            double took_now = it->kind == MESSAGES ? exchange(it, copies) : collective(it, copies);
            if (i >= 0) took[copies][i] = took_now;
        }
    if (it->rank != 0) return;
    for (int i = 0; i < times; i++) quotients[i] = took[1][i] / took[0][i];
    printf("%d KiB between %s: %.3f ms, with copies by the program %.3f ms, %.2f times\n",
           it->bytes >> 10, names[it->kind], median(took[0], times) * 1e3,
           median(took[1], times) * 1e3, median(quotients, times));
}

void measure(const struct scene *scene, int all_sizes) {
    enum { MOST = 16 << 20, FEW = 15 };
    struct pair pair = {.rank = scene->rank, .bytes = MOST, .tag = 200, .comm = scene->comm};
    pair.device = device_new(MOST), pair.device_to = device_new(MOST);
    pair.host = malloc(MOST), pair.host_to = malloc(MOST);
    CHECK(pair.host != NULL && pair.host_to != NULL);
    memset(pair.host, scene->rank, MOST);
    memset(pair.host_to, scene->rank, MOST);
    device_copy(pair.device, pair.host, MOST);
    if (scene->rank < 2) {
        for (pair.bytes = 1 << 10; all_sizes && pair.bytes < MOST; pair.bytes *= 4, pair.tag += 2)
            exchanges(&pair, TIMES_MAX);
        pair.bytes = MOST;
        exchanges(&pair, all_sizes ? TIMES_MAX : FEW);
    }
    for (pair.kind = BCAST; all_sizes && scene->ranks == 2 && pair.kind <= ALLTOALL; pair.kind++)
        exchanges(&pair, FEW);
    free(pair.host);
    free(pair.host_to);
}
