/* The order of messages: which message of a rank meets which receive of another rank.
 *
 * A lane is all messages from one rank to another with one communicator and one tag. MPI does not
 * let messages of a lane overtake each other, so the first message meets the first receive that
 * takes one from the lane, the second the second, and so on. So sender and receiver only count, and
 * both know which message belongs to which receive.
 *
 * A receive that names any source or any tag is counted when its status tells which message it got.
 * Until then, the number of the next receive is not known in the lanes that it matches, and these
 * lanes are closed. The same holds for a call that blocks while other threads call MPI.
 *
 * A lane is off at the receiver if a call could take a message that this file does not count, and
 * off at the sender if a call could send one. Each side decides alone about its side of a lane. */
#include "path.h"

#include <pthread.h>
#include <stdlib.h>

/* A power of two. */
enum { BUCKETS = 1024 };

/* Most lanes of a process, each of 48 bytes: 3 MiB. A program that takes a new tag for each message
 * would otherwise need memory without end. */
enum { LANES_MAX = 1 << 16 };

struct lane {
    struct pm_lane name;
    uint64_t count;
    /* Messages that MPI has got and that are not counted yet. */
    int under_way;
    int is_off;
    struct lane *next;
};

static struct lane *buckets[BUCKETS];
static int lanes;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void pm_order_lock(void) { pthread_mutex_lock(&lock); }
void pm_order_unlock(void) { pthread_mutex_unlock(&lock); }

static struct lane **bucket_of(const struct pm_lane *name) {
    uint64_t mixed = name->comm * UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ (uint32_t)name->partner) * UINT64_C(0x9e3779b97f4a7c15);
    mixed =
        (mixed ^ (uint32_t)name->tag ^ ((uint64_t)name->way << 32)) * UINT64_C(0x9e3779b97f4a7c15);
    return &buckets[mixed >> 54];
}

static int is_same(const struct pm_lane *a, const struct pm_lane *b) {
    return a->comm == b->comm && a->partner == b->partner && a->tag == b->tag && a->way == b->way;
}

static struct lane *find(const struct pm_lane *name) {
    struct lane *it = *bucket_of(name);
    while (it != NULL && !is_same(&it->name, name)) it = it->next;
    return it;
}

/* Returns a lane, or NULL if there is no room for it. */
static struct lane *find_or_make(const struct pm_lane *name) {
    struct lane *it = find(name), **bucket = bucket_of(name);
    if (it != NULL || lanes >= LANES_MAX) return it;
    it = calloc(1, sizeof *it);
    if (it == NULL) return NULL;
    it->name = *name;
    it->next = *bucket;
    *bucket = it;
    lanes++;
    return it;
}

/* Set when a lane did not fit. Then the count of some lane is not known. */
static int is_incomplete;

void pm_lane_count(const struct pm_lane *name, int by) {
    struct lane *it = find_or_make(name);
    if (it == NULL)
        is_incomplete = 1;
    else
        it->count += (uint64_t)by;
}

void pm_lane_enter(const struct pm_lane *name) {
    struct lane *it = find_or_make(name);
    if (it == NULL)
        is_incomplete = 1;
    else
        it->under_way++;
}

void pm_lane_leave(const struct pm_lane *name) {
    struct lane *it = find(name);
    if (it != NULL) it->under_way--;
}

uint64_t pm_lane_counted(const struct pm_lane *name) {
    const struct lane *it = find(name);
    return it == NULL ? 0 : it->count;
}

void pm_lane_stop(const struct pm_lane *name) {
    struct lane *it = find_or_make(name);
    if (it == NULL)
        is_incomplete = 1;
    else
        it->is_off = 1;
}

void pm_lane_passed(const struct pm_lane *name, int code) {
    pm_lane_count(name, 1);
    if (code != MPI_SUCCESS) pm_lane_stop(name);
}

static int is_closed(struct pm_lane name, int partner, int tag) {
    name.partner = partner;
    name.tag = tag;
    const struct lane *it = find(&name);
    return it != NULL && (it->is_off || it->under_way > 0);
}

int pm_lane_is_closed(const struct pm_lane *name) {
    return is_incomplete || is_closed(*name, name->partner, name->tag) ||
           is_closed(*name, MPI_ANY_SOURCE, name->tag) ||
           is_closed(*name, name->partner, MPI_ANY_TAG) ||
           is_closed(*name, MPI_ANY_SOURCE, MPI_ANY_TAG);
}

void pm_lanes_forget(uint64_t comm, int tag) {
    pm_order_lock();
    for (int b = 0; b < BUCKETS; b++)
        for (struct lane **at = &buckets[b]; *at != NULL;) {
            struct lane *it = *at;
            int is_group = it->name.comm == 0 && it->name.tag == tag && tag != 0;
            if (it->name.comm != comm && !is_group) {
                at = &it->next;
                continue;
            }
            *at = it->next;
            free(it);
            lanes--;
        }
    pm_order_unlock();
}
