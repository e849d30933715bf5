/* Model of the random programs of stress.c: the enqueued commands, the order in which they must
 * run, and the resulting contents. */
#include "stress.h"

#include <stdarg.h>
#include <unistd.h>

__thread World *here;
bool trace;

static void tell_failed(int root, int part, const Done *done) {
    cl_int status = 0;
    if (!done) return;
    clGetEventInfo(done->event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL);
    if (status < 0)
        printf("  the writer of part %d of root %d, command %u of queue %d, ended with %d\n", part,
               root, done->serial, done->queue, status);
}

_Noreturn void wrong(const char *format, ...) {
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    printf("FAIL stress: seed %llu, command %u (%s): %s\n", here->seed, here->ops, here->now, text);
    for (int r = 0; r < ROOTS; r++)
        for (int p = 0; p < here->roots[r].parts; p++)
            tell_failed(r, p, here->roots[r].part[p].writer);
    fflush(stdout);
    _exit(1);
}

unsigned pick(World *w, unsigned below) {
    w->state ^= w->state << 13;
    w->state ^= w->state >> 7;
    w->state ^= w->state << 17;
    return (unsigned)((w->state >> 20) % (below ? below : 1));
}

bool chance(World *w, unsigned percent) { return pick(w, 100) < percent; }

void say(World *w, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(w->now, sizeof w->now, format, args);
    va_end(args);
    w->ops++;
    if (trace) printf("  %u %s\n", w->ops, w->now);
}

void drop(Done *done) {
    if (!done || --done->refs > 0) return;
    MUST(clReleaseEvent(done->event));
    free(done);
}

Done *keep(Done *done) {
    done->refs++;
    return done;
}

void end_users(World *w, unsigned which) {
    for (int u = 0; u < USERS; u++) {
        if (!(which & 1u << u) || !w->users[u]) continue;
        MUST(clSetUserEventStatus(w->users[u], CL_COMPLETE));
        MUST(clReleaseEvent(w->users[u]));
        w->users[u] = NULL;
    }
}

unsigned open_users(const World *w) {
    unsigned open = 0;
    for (int u = 0; u < USERS; u++) open |= w->users[u] ? 1u << u : 0;
    return open;
}

const cl_event *list(const Waits *waits) { return waits->count ? waits->list : NULL; }

static void await(World *w, Waits *waits, int queue, const Done *done) {
    if (!done) return;
    waits->held |= done->held;
    const Lane *lane = &w->lanes[queue];
    bool ordered = done->queue == queue && (lane->in_order || done->serial < lane->barrier);
    if (ordered && chance(w, 70)) return;
    for (cl_uint i = 0; i < waits->count; i++)
        if (waits->list[i] == done->event) return;
    if (waits->count == PENDING_MAX * 4) {
        end_users(w, ~0u);
        MUST(clWaitForEvents(1, &done->event));
        return;
    }
    waits->list[waits->count++] = done->event;
}

static int part_of(const Root *root, size_t word) {
    size_t part = word / root->part_words;
    return part < (size_t)root->parts ? (int)part : root->parts - 1;
}

void uses(World *w, Waits *waits, int queue, const Object *object, size_t from, size_t words,
          bool writes) {
    Root *root = object->root;
    int last = part_of(root, object->from + from + words - 1);
    for (int p = part_of(root, object->from + from); p <= last; p++) {
        Part *part = &root->part[p];
        await(w, waits, queue, part->writer);
        for (int r = 0; writes && r < part->reader_count; r++)
            await(w, waits, queue, part->readers[r]);
    }
}

void used(const Object *object, size_t from, size_t words, bool writes, Done *done) {
    Root *root = object->root;
    int last = part_of(root, object->from + from + words - 1);
    for (int p = part_of(root, object->from + from); p <= last; p++) {
        Part *part = &root->part[p];
        if (writes) {
            for (int r = 0; r < part->reader_count; r++) drop(part->readers[r]);
            part->reader_count = 0;
            drop(part->writer);
            part->writer = keep(done);
        } else if (part->reader_count < PENDING_MAX) {
            part->readers[part->reader_count++] = keep(done);
        } else {
            wrong("too many readers");
        }
    }
}

/* Records a command that was enqueued. */
Done *enqueued(World *w, int queue, cl_event event, const Waits *waits) {
    Lane *lane = &w->lanes[queue];
    Done *done = calloc(1, sizeof *done);
    done->event = event;
    done->queue = queue;
    done->serial = ++lane->serial;
    done->held = (waits->held | (lane->in_order ? lane->held : lane->gate)) & open_users(w);
    if (!lane->shared) lane->held |= done->held;
    done->refs = 1;
    return done;
}

void release_for(World *w, int queue, const Waits *waits) {
    end_users(w, getenv("STRESS_STRICT") ? waits->held | w->lanes[queue].held : ~0u);
    for (int q = 0; q < w->lane_count; q++)
        if (!w->lanes[q].shared) w->lanes[q].held &= open_users(w);
}

void maybe_user_event(World *w, Waits *waits) {
    if (!w->user_events || !chance(w, 12)) return;
    int u = (int)pick(w, USERS);
    if (!w->users[u]) {
        cl_int code;
        w->users[u] = clCreateUserEvent(w->in, &code);
        MUST(code);
    }
    waits->list[waits->count++] = w->users[u];
    waits->held |= 1u << u;
}

void check_words(const cl_uint *got, const cl_uint *want, size_t words, const char *what) {
    for (size_t i = 0; i < words; i++)
        if (got[i] != want[i])
            wrong("%s: word %zu of %zu is %08x, not %08x", what, i, words, got[i], want[i]);
}

void check_looks(World *w, bool all) {
    for (int i = 0; i < w->look_count;) {
        Look *look = &w->looks[i];
        cl_int status;
        MUST(clGetEventInfo(look->done->event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status,
                            &status, NULL));
        if (status < 0) wrong("a read ended with %s", error_name(status));
        if (status != CL_COMPLETE && all) {
            end_users(w, ~0u);
            MUST(clWaitForEvents(1, &look->done->event));
            status = CL_COMPLETE;
        }
        if (status != CL_COMPLETE) {
            i++;
            continue;
        }
        check_words(look->got, look->want, look->words, "a read that was not waited for");
        free(look->got);
        free(look->want);
        drop(look->done);
        *look = w->looks[--w->look_count];
    }
}

cl_uint *random_words(World *w, size_t words) {
    cl_uint *bytes = malloc(words * 4);
    cl_uint value = pick(w, 1u << 30);
    for (size_t i = 0; i < words; i++) bytes[i] = value = value * 1664525u + 1013904223u;
    return bytes;
}

cl_uint *model(const Object *object) { return object->root->model + object->from; }
