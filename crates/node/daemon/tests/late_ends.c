/* A loader in front of the system's that reports the end of every fill late, so that the ends of
 * other commands overtake it, as ends from several threads of a driver may. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

/* Longer than anything behind a fill takes in these tests, so that it is sure to overtake. */
enum { LATE_MS = 300, HELD_MAX = 64 };

typedef void(CL_CALLBACK *callback)(cl_event, cl_int, void *);

struct late {
    cl_event event;
    callback tell;
    void *data;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cl_event held[HELD_MAX];

/* Replaces `from` by `to` in the list; returns whether `from` was there. */
static int replace(cl_event from, cl_event to) {
    int found = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < HELD_MAX && !found; i++) {
        found = held[i] == from;
        if (found) held[i] = to;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static void *tell_late(void *argument) {
    struct late *late = argument;
    const struct timespec pause = {0, LATE_MS * 1000000L};
    nanosleep(&pause, NULL);
    replace(late->event, NULL);
    late->tell(late->event, CL_COMPLETE, late->data);
    free(late);
    return NULL;
}

static void CL_CALLBACK ended(cl_event event, cl_int status, void *argument) {
    pthread_t thread;
    (void)event, (void)status;
    pthread_create(&thread, NULL, tell_late, argument);
    pthread_detach(thread);
}

/* Functions of the system's loader. */
#define REAL(name) ((__typeof__(&name))real(#name))
extern void *dlsym(void *, const char *);
extern void *dlopen(const char *, int);
static void *real(const char *name) { return dlsym(dlopen("libOpenCL.so.1", 1), name); }

cl_int clSetEventCallback(cl_event event, cl_int type, callback tell, void *data) {
    cl_command_type kind = 0;
    REAL(clGetEventInfo)(event, CL_EVENT_COMMAND_TYPE, sizeof kind, &kind, NULL);
    if (kind != CL_COMMAND_FILL_BUFFER || !replace(NULL, event))
        return REAL(clSetEventCallback)(event, type, tell, data);
    struct late *late = malloc(sizeof *late);
    *late = (struct late){event, tell, data};
    return REAL(clSetEventCallback)(event, type, ended, late);
}

cl_int clGetEventInfo(cl_event event, cl_event_info name, size_t size, void *value,
                      size_t *true_size) {
    cl_int code = REAL(clGetEventInfo)(event, name, size, value, true_size);
    if (code == CL_SUCCESS && name == CL_EVENT_COMMAND_EXECUTION_STATUS && value &&
        *(cl_int *)value == CL_COMPLETE && replace(event, event))
        *(cl_int *)value = CL_RUNNING;
    return code;
}
