#include "cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void scene_fill(struct scene *scene) {
    uint64_t seed = random_next(&random_state) + (uint64_t)scene->rank;
    /* Of four buffers, three are on a device. */
    int places = random_below(1 << 16) >> (2 * (scene->rank % 8)) & 3;
    int other = random_below(4);
    area_fill(&scene->from, seed, places != 0);
    area_fill(&scene->to, seed + 1000, places != 1 || other == 0);
}

/* Writes what a view is, for a case that fails. */
static void describe(const char *name, const struct view *view) {
    int integers, addresses, types, combiner = 0, size = 0;
    MPI_Aint low = 0, extent = 0;
    if (view->count == 0) return;
    MPI_Type_get_envelope(view->type, &integers, &addresses, &types, &combiner);
    MPI_Type_size(view->type, &size);
    MPI_Type_get_extent(view->type, &low, &extent);
    fprintf(stderr, "%s: %d elements of combiner %d, size %d, extent %ld, at %zu\n", name,
            view->count, combiner, size, (long)extent, view->offset);
}

void scene_compare(const struct scene *scene, const char *name) {
    size_t from = area_differs(&scene->from, "source"), to = area_differs(&scene->to, "target");
    char base[MPI_MAX_OBJECT_NAME] = "no type";
    int length;
    if (from == 0 && to == 0) return;
    if (scene->base != 0) MPI_Type_get_name(scene->base, base, &length);
    fprintf(stderr, "%s: rank %d is wrong, with %s\n", name, scene->rank, base);
    describe("sent", &scene->out);
    describe("received", &scene->in);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void take(const MPI_Status *status, int *bytes) { MPI_Get_count(status, MPI_BYTE, bytes); }

void complete(int count, MPI_Request *requests, int way, int *bytes) {
    MPI_Status *statuses = calloc((size_t)count, sizeof *statuses);
    int *indices = calloc((size_t)count, sizeof *indices), left = count, index, flag, ended;
    MPI_Status status;
    switch (way) {
    case 0:
        MPI_Waitall(count, requests, statuses);
        for (int i = 0; i < count; i++) take(&statuses[i], &bytes[i]);
        break;
    case 1: MPI_Waitall(count, requests, MPI_STATUSES_IGNORE); break;
    case 2:
        for (flag = 0; !flag;) MPI_Testall(count, requests, &flag, statuses);
        for (int i = 0; i < count; i++) take(&statuses[i], &bytes[i]);
        break;
    case 3:
        for (; left > 0; left--) {
            MPI_Waitany(count, requests, &index, &status);
            take(&status, &bytes[index]);
        }
        break;
    case 4:
        while (left > 0) {
            MPI_Testany(count, requests, &index, &flag, &status);
            if (!flag) continue;
            take(&status, &bytes[index]);
            left--;
        }
        break;
    case 5:
    case 6:
        for (; left > 0; left -= ended) {
            if (way == 5)
                MPI_Waitsome(count, requests, &ended, indices, statuses);
            else
                MPI_Testsome(count, requests, &ended, indices, statuses);
            for (int e = 0; e < ended; e++) take(&statuses[e], &bytes[indices[e]]);
        }
        break;
    default:
        for (int i = count - 1; i >= 0; i--) {
            if (i % 2 == 0) {
                MPI_Wait(&requests[i], &status);
            } else {
                for (flag = 0; !flag;) MPI_Test(&requests[i], &flag, &status);
            }
            take(&status, &bytes[i]);
        }
    }
    free(statuses);
    free(indices);
}

/* Ranks send in pairs: 0 to 1, 2 to 3. */
static void send_one(const char *from, const struct view *view, int to, int form, MPI_Comm comm) {
    MPI_Request request;
    int bytes;
    switch (form % 6) {
    case 0: MPI_Send(from, view->count, view->type, to, 7, comm); return;
    case 1: MPI_Ssend(from, view->count, view->type, to, 7, comm); return;
    case 2: MPI_Bsend(from, view->count, view->type, to, 7, comm); return;
    case 3: MPI_Isend(from, view->count, view->type, to, 7, comm, &request); break;
    case 4: MPI_Issend(from, view->count, view->type, to, 7, comm, &request); break;
    default: MPI_Ibsend(from, view->count, view->type, to, 7, comm, &request); break;
    }
    complete(1, &request, form % WAYS, &bytes);
}

static int receive_one(char *to, const struct view *view, int from, int form, MPI_Comm comm) {
    MPI_Status status;
    MPI_Message message;
    MPI_Request request;
    int bytes = -1, flag = 0, source = form & 64 ? MPI_ANY_SOURCE : from;
    int tag = form & 128 ? MPI_ANY_TAG : 7;
    switch (form % 6) {
    case 0: MPI_Recv(to, view->count, view->type, source, tag, comm, &status); break;
    case 1: MPI_Recv(to, view->count, view->type, source, tag, comm, MPI_STATUS_IGNORE); return -1;
    case 2:
        MPI_Probe(source, tag, comm, &status);
        CHECK(status.MPI_SOURCE == from && status.MPI_TAG == 7);
        MPI_Recv(to, view->count, view->type, status.MPI_SOURCE, tag, comm, &status);
        break;
    case 3:
        MPI_Mprobe(source, tag, comm, &message, &status);
        MPI_Mrecv(to, view->count, view->type, &message, &status);
        break;
    case 4:
        while (!flag) MPI_Improbe(source, tag, comm, &flag, &message, &status);
        MPI_Imrecv(to, view->count, view->type, &message, &request);
        MPI_Wait(&request, &status);
        break;
    default:
        MPI_Irecv(to, view->count, view->type, source, tag, comm, &request);
        complete(1, &request, form % WAYS, &bytes);
        return bytes;
    }
    CHECK(status.MPI_SOURCE == from && status.MPI_TAG == 7);
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    return bytes;
}

void case_message(struct scene *scene) {
    int elements = random_below(4) == 0 ? random_below(4) : 12 * random_below(30);
    /* The receiver may have more room than is sent. */
    int room = elements + (random_below(3) == 0 ? random_below(40) : 0);
    int form = random_below(1 << 12), other = random_below(1 << 12), got[2] = {0, 0};
    view_make(&scene->out, scene->base, elements, 1);
    view_make(&scene->in, scene->base, room, 1);
    scene_fill(scene);
    int partner = scene->rank ^ 1;
    if (partner >= scene->ranks) partner = MPI_PROC_NULL;
    EACH_RUN(scene, from, to) {
        if (partner == MPI_PROC_NULL) {
            send_one(from, &scene->out, partner, form % 6 == 4 ? 0 : form, scene->comm);
            MPI_Recv(to, 1, scene->base, partner, 7, scene->comm, MPI_STATUS_IGNORE);
        } else if (scene->rank % 2 == 0) {
            send_one(from + scene->out.offset, &scene->out, partner, form, scene->comm);
        } else {
            got[run_] = receive_one(to + scene->in.offset, &scene->in, partner, other, scene->comm);
        }
    }
    CHECK(got[0] == got[1]);
    scene_compare(scene, "message");
}

enum { MESSAGES_MAX = 24 };

void case_many(struct scene *scene) {
    int messages = 1 + random_below(MESSAGES_MAX), way = random_below(WAYS);
    size_t slice = AREA_BYTES / MESSAGES_MAX;
    int elements[MESSAGES_MAX], bytes[2][2 * MESSAGES_MAX], next, before;
    MPI_Request requests[2 * MESSAGES_MAX];
    scene_fill(scene);
    for (int m = 0; m < messages; m++) elements[m] = random_below((int)(slice / 64));
    next = (scene->rank + 1) % scene->ranks;
    before = (scene->rank + scene->ranks - 1) % scene->ranks;
    memset(bytes, 0, sizeof bytes);
    EACH_RUN(scene, from, to) {
        int reversed = way % 2;
        for (int m = 0; m < messages; m++) {
            int at = reversed ? messages - 1 - m : m;
            MPI_Irecv(to + (size_t)at * slice, elements[at] + 1, scene->base, before, at,
                      scene->comm, &requests[2 * at]);
        }
        for (int m = 0; m < messages; m++)
            MPI_Isend(from + (size_t)m * slice, elements[m], scene->base, next, m, scene->comm,
                      &requests[2 * m + 1]);
        complete(2 * messages, requests, way, bytes[run_]);
        for (int r = 0; r < 2 * messages; r++) CHECK(requests[r] == MPI_REQUEST_NULL);
        /* What a status says of a send has no meaning. */
        for (int m = 0; m < messages; m++) bytes[run_][2 * m + 1] = 0;
    }
    CHECK(memcmp(bytes[0], bytes[1], sizeof bytes[0]) == 0);
    scene_compare(scene, "many");
}

void case_persistent(struct scene *scene) {
    int elements = 12 * random_below(20), way = random_below(WAYS), kind = random_below(3);
    int next = (scene->rank + 1) % scene->ranks, bytes[2];
    int before = (scene->rank + scene->ranks - 1) % scene->ranks;
    MPI_Request requests[2][2];
    view_make(&scene->out, scene->base, elements, 1);
    view_make(&scene->in, scene->base, elements, 1);
    scene_fill(scene);
    EACH_RUN(scene, from, to) {
        char *source = from + scene->out.offset;
        MPI_Request *send = &requests[run_][1];
        int count = scene->out.count;
        MPI_Datatype type = scene->out.type;
        MPI_Recv_init(to + scene->in.offset, scene->in.count, scene->in.type, before, 3,
                      scene->comm, &requests[run_][0]);
        switch (kind) {
        case 0: MPI_Send_init(source, count, type, next, 3, scene->comm, send); break;
        case 1: MPI_Ssend_init(source, count, type, next, 3, scene->comm, send); break;
        default: MPI_Bsend_init(source, count, type, next, 3, scene->comm, send); break;
        }
    }
    for (int round = 0; round < 3; round++) {
        area_change(&scene->from, (char)(round + 1));
        for (int run = 0; run < 2; run++) {
            if (round == 1) {
                for (int r = 0; r < 2; r++) MPI_Start(&requests[run][r]);
            } else {
                MPI_Startall(2, requests[run]);
            }
            complete(2, requests[run], way, bytes);
            /* An inactive request ends at once and receives nothing. */
            MPI_Wait(&requests[run][0], MPI_STATUS_IGNORE);
        }
        scene_compare(scene, "persistent");
        area_change(&scene->to, 1);
        for (int run = 0; run < 2; run++) MPI_Waitall(2, requests[run], MPI_STATUSES_IGNORE);
        scene_compare(scene, "persistent, inactive");
    }
    for (int r = 0; r < 4; r++) MPI_Request_free(&requests[r / 2][r % 2]);
}

void case_sendrecv(struct scene *scene) {
    int elements = 12 * random_below(20), replaces = random_below(2), got[2];
    int next = (scene->rank + 1) % scene->ranks;
    int before = (scene->rank + scene->ranks - 1) % scene->ranks;
    /* A chain instead of a ring: its ends have no partner. */
    if (random_below(3) == 0) {
        if (scene->rank == scene->ranks - 1) next = MPI_PROC_NULL;
        if (scene->rank == 0) before = MPI_PROC_NULL;
    }
    view_make(&scene->out, scene->base, elements, 1);
    view_make(&scene->in, scene->base, elements, 1);
    scene_fill(scene);
    EACH_RUN(scene, from, to) {
        MPI_Status status;
        if (replaces)
            MPI_Sendrecv_replace(to + scene->in.offset, scene->in.count, scene->in.type, next, 5,
                                 before, 5, scene->comm, &status);
        else
            MPI_Sendrecv(from + scene->out.offset, scene->out.count, scene->out.type, next, 5,
                         to + scene->in.offset, scene->in.count, scene->in.type, before, 5,
                         scene->comm, run_ ? MPI_STATUS_IGNORE : &status);
        got[run_] = 0;
        if (replaces) MPI_Get_count(&status, MPI_BYTE, &got[run_]);
    }
    CHECK(got[0] == got[1] || !replaces);
    scene_compare(scene, "sendrecv");
}
