/* The ends of operations with requests. */
#include "path.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Longest time for which MPI_Finalize waits for requests that the program has freed: longer than
 * any transfer that still moves, and short enough for a person to wait for. */
enum { FREED_WAIT_S = 30 };

/* Held by the thread that works on the list of abandoned operations. */
static pthread_mutex_t reaping = PTHREAD_MUTEX_INITIALIZER;
static struct pm_operation *abandoned;
/* Number of abandoned operations, for calls that have nothing to do. */
static atomic_size_t freed;

static void release(struct pm_operation *operation) {
    pm_close(&operation->stage);
    free(operation);
}

void pm_drop(struct pm_operation *operation) {
    pm_leave(operation);
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
    pm_leave(operation);
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
