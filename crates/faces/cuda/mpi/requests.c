/* Operations with requests, found by MPI's own handles, which the program has. */
#include "path.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* A power of two. A program with more operations under way than this searches longer lists. */
enum { BUCKETS = 1024 };

/* Longest time for which MPI_Finalize waits for requests that the program has freed: longer than
 * any transfer that still moves, and short enough for a person to wait for. */
enum { FREED_WAIT_S = 30 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pm_operation *buckets[BUCKETS];
/* Held by the thread that works on the list of abandoned operations. */
static pthread_mutex_t reaping = PTHREAD_MUTEX_INITIALIZER;
static struct pm_operation *abandoned;
/* Numbers of entered and of abandoned operations, for calls that have nothing to do. */
static atomic_size_t entered, freed;

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

static void leave(struct pm_operation *operation) {
    pthread_mutex_lock(&lock);
    struct pm_operation **at = bucket_of(operation->request);
    while (*at != NULL && *at != operation) at = &(*at)->next;
    if (*at != NULL) *at = operation->next;
    atomic_fetch_sub(&entered, 1);
    pthread_mutex_unlock(&lock);
}

static void release(struct pm_operation *operation) {
    pm_close(&operation->stage);
    free(operation);
}

void pm_drop(struct pm_operation *operation) {
    leave(operation);
    release(operation);
}

int pm_finish(struct pm_operation *operation, MPI_Status *status) {
    int code = pm_claim_end(&operation->stage);
    if (operation->is_wild && operation->is_active) pm_post_matched(&operation->lane, status);
    if (operation->is_delivered && status != NULL) pm_tell_arrived(&operation->stage, status);
    if (operation->is_receive && operation->is_active && !operation->is_delivered && status != NULL)
        code = pm_store_received(&operation->stage, status);
    operation->is_active = operation->is_delivered = operation->is_stubbed = 0;
    if (operation->is_persistent)
        pm_unclaim(operation);
    else
        pm_drop(operation);
    return code;
}

void pm_abandon(struct pm_operation *operation) {
    leave(operation);
    pthread_mutex_lock(&reaping);
    operation->next = abandoned;
    abandoned = operation;
    atomic_fetch_add(&freed, 1);
    pthread_mutex_unlock(&reaping);
}

void pm_reap(void) {
    if (atomic_load_explicit(&freed, memory_order_relaxed) == 0) return;
    /* Another thread does it, or an error handler calls MPI. */
    if (pthread_mutex_trylock(&reaping) != 0) return;
    for (struct pm_operation **at = &abandoned; *at != NULL;) {
        struct pm_operation *it = *at;
        MPI_Status status;
        int has_ended = 0;
        int code = PMPI_Test(&it->request, &has_ended, &status);
        if (code == MPI_SUCCESS && !has_ended) {
            at = &it->next;
            continue;
        }
        if (it->is_wild) pm_post_matched(&it->lane, code == MPI_SUCCESS ? &status : NULL);
        if (code == MPI_SUCCESS && it->is_receive && !it->is_delivered)
            pm_store_received(&it->stage, &status);
        pm_claim_end(&it->stage);
        if (it->request != MPI_REQUEST_NULL) PMPI_Request_free(&it->request);
        *at = it->next;
        atomic_fetch_sub(&freed, 1);
        release(it);
    }
    pthread_mutex_unlock(&reaping);
}

PM_EXPORT int MPI_Finalize(void) {
    struct timespec start, now, pause = {0, 100000};
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (pm_reap(); atomic_load(&freed) > 0; pm_reap()) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - start.tv_sec > FREED_WAIT_S) {
            fprintf(stderr,
                    "penstock: MPI_Finalize: %zu requests that the program has freed did "
                    "not end\n",
                    atomic_load(&freed));
            break;
        }
        nanosleep(&pause, NULL);
    }
    pm_path_close();
    return PMPI_Finalize();
}
