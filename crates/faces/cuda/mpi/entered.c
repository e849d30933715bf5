/* Operations with requests, found by MPI's own handles, which the program has. */
#include "pm.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

/* A power of two. A program with more operations under way than this searches longer lists. */
enum { BUCKETS = 1024 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pm_operation *buckets[BUCKETS];
/* Number of entered operations, for calls that have nothing to do. */
static atomic_size_t entered;

static struct pm_operation **bucket_of(MPI_Request request) {
    /* Handles are addresses of objects of some hundred bytes, or small numbers. */
    uint64_t mixed = (uint64_t)(uintptr_t)request * UINT64_C(0x9e3779b97f4a7c15);
    return &buckets[mixed >> 54];
}

struct pm_operation *pm_operation_new(void) { return calloc(1, sizeof(struct pm_operation)); }

void pm_enter(struct pm_operation *operation) {
    struct pm_operation **bucket = bucket_of(operation->request);
    pthread_mutex_lock(&lock);
    /* The newest is found first. An older one with the same handle has ended: another thread is
     * just about to remove it. Sends that have ended at once may share one handle, too. */
    operation->next = *bucket;
    *bucket = operation;
    atomic_fetch_add(&entered, 1);
    pthread_mutex_unlock(&lock);
}

struct pm_operation *pm_claim(MPI_Request request) {
    if (atomic_load_explicit(&entered, memory_order_relaxed) == 0) return NULL;
    pthread_mutex_lock(&lock);
    struct pm_operation *it = *bucket_of(request);
    while (it != NULL && (it->request != request || it->is_claimed)) it = it->next;
    if (it != NULL) it->is_claimed = 1;
    pthread_mutex_unlock(&lock);
    return it;
}

void pm_unclaim(struct pm_operation *operation) {
    pthread_mutex_lock(&lock);
    operation->is_claimed = 0;
    pthread_mutex_unlock(&lock);
}

void pm_leave(struct pm_operation *operation) {
    pthread_mutex_lock(&lock);
    struct pm_operation **at = bucket_of(operation->request);
    while (*at != NULL && *at != operation) at = &(*at)->next;
    if (*at != NULL) *at = operation->next;
    atomic_fetch_sub(&entered, 1);
    pthread_mutex_unlock(&lock);
}
