/* Random programs against a simple model: many commands on many queues of all devices in one context, ordered only as
 * far as they conflict, and every content compared with what the host computed.
 *
 * STRESS_SEED    seed of the first round (default 1); round n uses seed + n, so a failure names the seed that repeats it
 * STRESS_ROUNDS  rounds of each case (default 12)
 * STRESS_OPS     commands of a round (default 80)
 * STRESS_TRACE   print each command
 * STRESS_NO_USER_EVENTS  without those
 * STRESS_STRICT  before a wait, end only the user events that must have ended by the specification. PoCL needs more where it
 *                has several devices: it orders their commands by the buffers that they use.
 */
#include "harness.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <unistd.h>

#define BUFFERS 5
#define SUBS 3                      /* of each buffer, all but the last part */
#define PARTS (SUBS + 1)
#define IMAGES 2
#define OBJECTS (BUFFERS * (1 + SUBS) + IMAGES)
#define ROOTS (BUFFERS + IMAGES)
#define QUEUES_MAX 24
#define THREADS 4
#define USERS 6
#define PENDING_MAX 64
#define ROUND_SECONDS_MAX 60

typedef struct {
    cl_event event;
    int queue;
    unsigned serial;                /* in its queue */
    unsigned held;                  /* which user events must end before it can */
    int refs;
} Done;

typedef struct {
    Done *writer;
    Done *readers[PENDING_MAX];
    int reader_count;
} Part;

/* A buffer or image with its content as it must be when all commands so far have run. */
typedef struct {
    cl_uint *model;
    size_t words, part_words;       /* an image is one part */
    size_t width, height;           /* of an image */
    int parts;
    Part part[PARTS];
    void *host;                     /* of CL_MEM_USE_HOST_PTR */
} Root;

typedef struct {
    cl_mem mem;
    Root *root;
    size_t from, words;             /* its words of the root */
    bool image;
} Object;

typedef struct {
    cl_command_queue queue;
    bool in_order, shared;
    unsigned serial, barrier;       /* of the last command; of the last barrier */
    unsigned held, gate;            /* user events of any command so far; of those before the last barrier */
} Lane;

/* A read that is checked when its event has ended. */
typedef struct {
    cl_uint *got, *want;
    size_t words;
    Done *done;
} Look;

typedef struct {
    unsigned long long seed, state;
    cl_context in;
    Lane lanes[QUEUES_MAX];
    int lane_count;
    Root roots[ROOTS];
    Object objects[OBJECTS];
    int object_count, buffer_objects;
    cl_event users[USERS];
    bool user_events;
    Look looks[PENDING_MAX];
    int look_count;
    cl_kernel add, mix, picture;
    unsigned ops;
    char now[200];
} World;

static __thread World *here;
static bool trace;

static void tell_failed(int root, int part, const Done *done) {
    cl_int status = 0;
    if (!done) return;
    clGetEventInfo(done->event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL);
    if (status < 0)
        printf("  the writer of part %d of root %d, command %u of queue %d, ended with %d\n", part, root, done->serial,
               done->queue, status);
}

static _Noreturn void wrong(const char *format, ...) {
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    printf("FAIL stress: seed %llu, command %u (%s): %s\n", here->seed, here->ops, here->now, text);
    for (int r = 0; r < ROOTS; r++)
        for (int p = 0; p < here->roots[r].parts; p++) tell_failed(r, p, here->roots[r].part[p].writer);
    fflush(stdout);
    _exit(1);
}

static unsigned long long watched;

static void too_long(int signal) {
    char text[100];
    (void)signal;
    int size = snprintf(text, sizeof text, "FAIL stress: seed %llu: a round hangs\n", watched);
    if (write(1, text, (size_t)size) < 0) _exit(3);
    if (getenv("STRESS_PAUSE")) pause();
    _exit(1);
}

#define MUST(call)                                                        \
    do {                                                                  \
        cl_int code_ = (call);                                            \
        if (code_ != CL_SUCCESS) wrong("%s gave %s", #call, error_name(code_)); \
    } while (0)

static unsigned pick(World *w, unsigned below) {
    w->state ^= w->state << 13;
    w->state ^= w->state >> 7;
    w->state ^= w->state << 17;
    return (unsigned)((w->state >> 20) % (below ? below : 1));
}

static bool chance(World *w, unsigned percent) { return pick(w, 100) < percent; }

static void say(World *w, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(w->now, sizeof w->now, format, args);
    va_end(args);
    w->ops++;
    if (trace) printf("  %u %s\n", w->ops, w->now);
}

/* -- what has been enqueued ------------------------------------------------------------------------------------- */

static void drop(Done *done) {
    if (!done || --done->refs > 0) return;
    MUST(clReleaseEvent(done->event));
    free(done);
}

static Done *keep(Done *done) {
    done->refs++;
    return done;
}

static void end_users(World *w, unsigned which) {
    for (int u = 0; u < USERS; u++) {
        if (!(which & 1u << u) || !w->users[u]) continue;
        MUST(clSetUserEventStatus(w->users[u], CL_COMPLETE));
        MUST(clReleaseEvent(w->users[u]));
        w->users[u] = NULL;
    }
}

static unsigned open_users(const World *w) {
    unsigned open = 0;
    for (int u = 0; u < USERS; u++) open |= w->users[u] ? 1u << u : 0;
    return open;
}

/* What a command waits for. */
typedef struct {
    cl_event list[PENDING_MAX * 4];
    cl_uint count;
    unsigned held;
} Waits;

static const cl_event *list(const Waits *waits) { return waits->count ? waits->list : NULL; }

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

static void uses(World *w, Waits *waits, int queue, const Object *object, size_t from, size_t words, bool writes) {
    Root *root = object->root;
    int last = part_of(root, object->from + from + words - 1);
    for (int p = part_of(root, object->from + from); p <= last; p++) {
        Part *part = &root->part[p];
        await(w, waits, queue, part->writer);
        for (int r = 0; writes && r < part->reader_count; r++) await(w, waits, queue, part->readers[r]);
    }
}

static void used(const Object *object, size_t from, size_t words, bool writes, Done *done) {
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

/* A command has been enqueued. */
static Done *enqueued(World *w, int queue, cl_event event, const Waits *waits) {
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

/* Before the host waits for a command with these waits. */
static void release_for(World *w, int queue, const Waits *waits) {
    end_users(w, getenv("STRESS_STRICT") ? waits->held | w->lanes[queue].held : ~0u);
    for (int q = 0; q < w->lane_count; q++)
        if (!w->lanes[q].shared) w->lanes[q].held &= open_users(w);
}

static void maybe_user_event(World *w, Waits *waits) {
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

static void check_words(const cl_uint *got, const cl_uint *want, size_t words, const char *what) {
    for (size_t i = 0; i < words; i++)
        if (got[i] != want[i]) wrong("%s: word %zu of %zu is %08x, not %08x", what, i, words, got[i], want[i]);
}

static void check_looks(World *w, bool all) {
    for (int i = 0; i < w->look_count;) {
        Look *look = &w->looks[i];
        cl_int status;
        MUST(clGetEventInfo(look->done->event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
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

/* -- the commands ------------------------------------------------------------------------------------------------ */

static void range(World *w, const Object *object, size_t *from, size_t *words) {
    if (chance(w, 30)) {
        *from = 0;
        *words = object->words;
        return;
    }
    *from = pick(w, (unsigned)object->words);
    *words = 1 + pick(w, (unsigned)(object->words - *from));
}

static cl_uint *random_words(World *w, size_t words) {
    cl_uint *bytes = malloc(words * 4);
    cl_uint value = pick(w, 1u << 30);
    for (size_t i = 0; i < words; i++) bytes[i] = value = value * 1664525u + 1013904223u;
    return bytes;
}

static cl_uint *model(const Object *object) { return object->root->model + object->from; }

static void op_write(World *w, int q, Object *o) {
    size_t from, words;
    range(w, o, &from, &words);
    Waits waits = {0};
    uses(w, &waits, q, o, from, words, true);
    bool blocking = chance(w, 30);
    if (!blocking) maybe_user_event(w, &waits);
    say(w, "write%s of object %d words %zu+%zu on queue %d", blocking ? " now" : "", (int)(o - w->objects), from, words, q);
    cl_uint *bytes = random_words(w, words);
    if (blocking) release_for(w, q, &waits);
    cl_event event;
    MUST(clEnqueueWriteBuffer(w->lanes[q].queue, o->mem, blocking, from * 4, words * 4, bytes, waits.count,
                              list(&waits), &event));
    memcpy(model(o) + from, bytes, words * 4);
    Done *done = enqueued(w, q, event, &waits);
    used(o, from, words, true, done);
    if (blocking) {
        free(bytes);
    } else if (w->look_count < PENDING_MAX) {
        /* The bytes must stay until the command has ended: kept as a look at themselves. */
        cl_uint *same = malloc(words * 4);
        memcpy(same, bytes, words * 4);
        w->looks[w->look_count++] = (Look){bytes, same, words, keep(done)};
    } else {
        end_users(w, ~0u);
        MUST(clWaitForEvents(1, &event));
        free(bytes);
    }
    drop(done);
}

static void op_read(World *w, int q, Object *o) {
    size_t from, words;
    range(w, o, &from, &words);
    Waits waits = {0};
    uses(w, &waits, q, o, from, words, false);
    bool blocking = chance(w, 40) || w->look_count == PENDING_MAX;
    if (!blocking) maybe_user_event(w, &waits);
    say(w, "read%s of object %d words %zu+%zu on queue %d", blocking ? " now" : "", (int)(o - w->objects), from, words, q);
    cl_uint *got = malloc(words * 4);
    memset(got, 0xEE, words * 4);
    if (blocking) release_for(w, q, &waits);
    cl_event event;
    MUST(clEnqueueReadBuffer(w->lanes[q].queue, o->mem, blocking, from * 4, words * 4, got, waits.count, list(&waits),
                             &event));
    Done *done = enqueued(w, q, event, &waits);
    used(o, from, words, false, done);
    if (blocking) {
        check_words(got, model(o) + from, words, "a read");
        free(got);
    } else {
        cl_uint *want = malloc(words * 4);
        memcpy(want, model(o) + from, words * 4);
        w->looks[w->look_count++] = (Look){got, want, words, keep(done)};
    }
    drop(done);
}

static void op_fill(World *w, int q, Object *o) {
    size_t from, words;
    range(w, o, &from, &words);
    Waits waits = {0};
    uses(w, &waits, q, o, from, words, true);
    maybe_user_event(w, &waits);
    say(w, "fill of object %d words %zu+%zu on queue %d", (int)(o - w->objects), from, words, q);
    cl_uint value = pick(w, 1u << 30);
    cl_event event;
    MUST(clEnqueueFillBuffer(w->lanes[q].queue, o->mem, &value, 4, from * 4, words * 4, waits.count, list(&waits), &event));
    for (size_t i = 0; i < words; i++) model(o)[from + i] = value;
    Done *done = enqueued(w, q, event, &waits);
    used(o, from, words, true, done);
    drop(done);
}

static void op_copy(World *w, int q, Object *from, Object *to) {
    if (from->root == to->root) return;
    size_t most = from->words < to->words ? from->words : to->words;
    size_t words = chance(w, 30) ? most : 1 + pick(w, (unsigned)most);
    size_t start = pick(w, (unsigned)(from->words - words + 1)), end = pick(w, (unsigned)(to->words - words + 1));
    Waits waits = {0};
    uses(w, &waits, q, from, start, words, false);
    uses(w, &waits, q, to, end, words, true);
    maybe_user_event(w, &waits);
    say(w, "copy of object %d words %zu+%zu to object %d word %zu on queue %d", (int)(from - w->objects), start, words,
        (int)(to - w->objects), end, q);
    cl_event event;
    MUST(clEnqueueCopyBuffer(w->lanes[q].queue, from->mem, to->mem, start * 4, end * 4, words * 4, waits.count,
                             list(&waits), &event));
    memcpy(model(to) + end, model(from) + start, words * 4);
    Done *done = enqueued(w, q, event, &waits);
    used(from, start, words, false, done);
    used(to, end, words, true, done);
    drop(done);
}

static void op_kernel(World *w, int q, Object *a, Object *b, Object *to) {
    if (a->root == to->root || b->root == to->root) return;
    size_t words = a->words < b->words ? a->words : b->words;
    words = words < to->words ? words : to->words;
    Waits waits = {0};
    /* The second kernel does not say that it only reads its second argument; without user events, which could make one
     * reader wait for another, several may still run at once. */
    bool mix = chance(w, 50), lax = mix && w->user_events;
    uses(w, &waits, q, a, 0, a->words, false);
    uses(w, &waits, q, b, 0, b->words, lax);
    uses(w, &waits, q, to, 0, to->words, true);
    maybe_user_event(w, &waits);
    cl_kernel kernel = mix ? w->mix : w->add;
    cl_uint by = pick(w, 1u << 20), loops = chance(w, 30) ? pick(w, 500) : 0;
    say(w, "kernel %s of objects %d, %d to %d on queue %d", mix ? "mix" : "add", (int)(a - w->objects),
        (int)(b - w->objects), (int)(to - w->objects), q);
    MUST(clSetKernelArg(kernel, 0, sizeof(cl_mem), &a->mem));
    MUST(clSetKernelArg(kernel, 1, sizeof(cl_mem), &b->mem));
    MUST(clSetKernelArg(kernel, 2, sizeof(cl_mem), &to->mem));
    MUST(clSetKernelArg(kernel, 3, sizeof by, &by));
    MUST(clSetKernelArg(kernel, 4, sizeof loops, &loops));
    cl_event event;
    MUST(clEnqueueNDRangeKernel(w->lanes[q].queue, kernel, 1, NULL, &words, NULL, waits.count, list(&waits), &event));
    for (size_t i = 0; i < words; i++) {
        cl_uint v = model(a)[i] * 3u + by + (mix ? model(b)[i] ^ model(to)[i] : model(b)[i] + model(to)[i] * 5u);
        for (cl_uint j = 0; j < loops; j++) v = v * 1664525u + 1013904223u;
        model(to)[i] = v;
    }
    Done *done = enqueued(w, q, event, &waits);
    used(a, 0, a->words, false, done);
    used(b, 0, b->words, lax, done);
    used(to, 0, to->words, true, done);
    drop(done);
}

static void op_map(World *w, int q, Object *o) {
    static const cl_map_flags kinds[] = {CL_MAP_READ, CL_MAP_WRITE, CL_MAP_READ | CL_MAP_WRITE, CL_MAP_WRITE_INVALIDATE_REGION};
    cl_map_flags flags = kinds[pick(w, 4)];
    size_t from, words;
    range(w, o, &from, &words);
    bool writes = flags != CL_MAP_READ, blocking = chance(w, 50);
    Waits waits = {0};
    uses(w, &waits, q, o, from, words, writes);
    say(w, "map of object %d words %zu+%zu flags %d on queue %d", (int)(o - w->objects), from, words, (int)flags, q);
    release_for(w, q, &waits);
    cl_int code;
    cl_event event;
    cl_uint *at = clEnqueueMapBuffer(w->lanes[q].queue, o->mem, blocking, flags, from * 4, words * 4, waits.count,
                                     list(&waits), &event, &code);
    MUST(code);
    if (!blocking) MUST(clWaitForEvents(1, &event));
    MUST(clReleaseEvent(event));
    if (flags != CL_MAP_WRITE_INVALIDATE_REGION) check_words(at, model(o) + from, words, "a map");
    if (writes) {
        cl_uint value = pick(w, 1u << 30);
        bool some = flags != CL_MAP_WRITE_INVALIDATE_REGION && chance(w, 50);
        for (size_t i = some ? words / 2 : 0; i < words; i++) model(o)[from + i] = at[i] = value += 77;
    }
    Waits none = {0};
    MUST(clEnqueueUnmapMemObject(w->lanes[q].queue, o->mem, at, 0, NULL, &event));
    Done *done = enqueued(w, q, event, &none);
    used(o, from, words, writes, done);
    drop(done);
}

static void op_rect(World *w, int q, Object *o) {
    size_t pitch = 1 + pick(w, 32), rows = o->words / pitch;
    if (rows == 0) return;
    size_t x = pick(w, (unsigned)pitch), y = pick(w, (unsigned)rows);
    size_t width = 1 + pick(w, (unsigned)(pitch - x)), height = 1 + pick(w, (unsigned)(rows - y));
    size_t from = y * pitch + x, words = (height - 1) * pitch + width;
    const size_t origin[3] = {x * 4, y, 0}, zero[3] = {0}, region[3] = {width * 4, height, 1};
    bool writes = chance(w, 50);
    Waits waits = {0};
    uses(w, &waits, q, o, from, words, writes);
    say(w, "%s of a rectangle of object %d on queue %d", writes ? "write" : "read", (int)(o - w->objects), q);
    release_for(w, q, &waits);
    cl_uint *bytes = random_words(w, width * height);
    cl_event event;
    if (writes)
        MUST(clEnqueueWriteBufferRect(w->lanes[q].queue, o->mem, CL_TRUE, origin, zero, region, pitch * 4, 0, width * 4, 0,
                                      bytes, waits.count, list(&waits), &event));
    else
        MUST(clEnqueueReadBufferRect(w->lanes[q].queue, o->mem, CL_TRUE, origin, zero, region, pitch * 4, 0, width * 4, 0,
                                     bytes, waits.count, list(&waits), &event));
    for (size_t row = 0; row < height; row++) {
        cl_uint *of_model = model(o) + from + row * pitch;
        if (writes)
            memcpy(of_model, bytes + row * width, width * 4);
        else
            check_words(bytes + row * width, of_model, width, "a rectangle");
    }
    free(bytes);
    Done *done = enqueued(w, q, event, &waits);
    used(o, from, words, writes, done);
    drop(done);
}

static void op_image_host(World *w, int q, Object *o) {
    Root *root = o->root;
    size_t x = 0, y = 0, width = root->width, height = root->height;
    if (chance(w, 60)) {
        x = pick(w, (unsigned)width), y = pick(w, (unsigned)height);
        width = 1 + pick(w, (unsigned)(width - x)), height = 1 + pick(w, (unsigned)(height - y));
    }
    const size_t origin[3] = {x, y, 0}, region[3] = {width, height, 1};
    bool writes = chance(w, 50);
    Waits waits = {0};
    uses(w, &waits, q, o, 0, o->words, writes);
    say(w, "%s of image %d on queue %d", writes ? "write" : "read", (int)(o - w->objects), q);
    release_for(w, q, &waits);
    cl_uint *bytes = random_words(w, width * height);
    cl_event event;
    if (writes)
        MUST(clEnqueueWriteImage(w->lanes[q].queue, o->mem, CL_TRUE, origin, region, 0, 0, bytes, waits.count, list(&waits), &event));
    else
        MUST(clEnqueueReadImage(w->lanes[q].queue, o->mem, CL_TRUE, origin, region, 0, 0, bytes, waits.count, list(&waits), &event));
    for (size_t row = 0; row < height; row++) {
        cl_uint *of_model = root->model + (y + row) * root->width + x;
        if (writes)
            memcpy(of_model, bytes + row * width, width * 4);
        else
            check_words(bytes + row * width, of_model, width, "an image");
    }
    free(bytes);
    Done *done = enqueued(w, q, event, &waits);
    used(o, 0, o->words, writes, done);
    drop(done);
}

/* Between an image and a buffer, or from one image to the other by a kernel or a copy. */
static void op_image(World *w, int q, Object *image, Object *other) {
    Root *root = image->root;
    const size_t zero[3] = {0}, region[3] = {root->width, root->height, 1};
    size_t words = root->words;
    bool to = chance(w, 50);
    /* PoCL 3.1 crashes where the buffer is a part of another. */
    if (!other->image) other -= (other - w->objects) % (1 + SUBS);
    if (other->words < words || other == image) return;
    Waits waits = {0};
    Object *from = to ? other : image, *into = to ? image : other;
    uses(w, &waits, q, from, 0, words, false);
    uses(w, &waits, q, into, 0, words, true);
    maybe_user_event(w, &waits);
    say(w, "copy of image %d %s object %d on queue %d", (int)(image - w->objects), to ? "from" : "to", (int)(other - w->objects), q);
    cl_event event;
    cl_command_queue queue_ = w->lanes[q].queue;
    cl_uint add = 0;
    if (other->image) {
        if (from->root->width != into->root->width || from->root->height != into->root->height) return;
        if (chance(w, 50)) {
            add = 1;
            MUST(clSetKernelArg(w->picture, 0, sizeof(cl_mem), &from->mem));
            MUST(clSetKernelArg(w->picture, 1, sizeof(cl_mem), &into->mem));
            MUST(clEnqueueNDRangeKernel(queue_, w->picture, 2, NULL, region, NULL, waits.count, list(&waits), &event));
        } else {
            MUST(clEnqueueCopyImage(queue_, from->mem, into->mem, zero, zero, region, waits.count, list(&waits), &event));
        }
    } else if (to) {
        MUST(clEnqueueCopyBufferToImage(queue_, other->mem, image->mem, 0, zero, region, waits.count, list(&waits), &event));
    } else {
        MUST(clEnqueueCopyImageToBuffer(queue_, image->mem, other->mem, zero, region, 0, waits.count, list(&waits), &event));
    }
    for (size_t i = 0; i < words; i++) model(into)[i] = model(from)[i] + add;
    Done *done = enqueued(w, q, event, &waits);
    used(from, 0, words, false, done);
    used(into, 0, words, true, done);
    drop(done);
}

static void op_migrate(World *w, int q) {
    cl_mem mems[3];
    Object *which[3];
    cl_uint count = 1 + pick(w, 3);
    Waits waits = {0};
    for (cl_uint i = 0; i < count; i++) {
        which[i] = &w->objects[pick(w, (unsigned)w->object_count)];
        mems[i] = which[i]->mem;
        uses(w, &waits, q, which[i], 0, which[i]->words, false);
    }
    say(w, "migration of %u objects on queue %d", count, q);
    cl_event event;
    MUST(clEnqueueMigrateMemObjects(w->lanes[q].queue, count, mems, chance(w, 10) ? CL_MIGRATE_MEM_OBJECT_HOST : 0, waits.count,
                                    list(&waits), &event));
    Done *done = enqueued(w, q, event, &waits);
    for (cl_uint i = 0; i < count; i++) used(which[i], 0, which[i]->words, false, done);
    drop(done);
}

/* A marker or barrier that takes the place of everything before it on one object. */
static void op_marker(World *w, int q, Object *o) {
    Waits waits = {0};
    uses(w, &waits, q, o, 0, o->words, true);
    maybe_user_event(w, &waits);
    say(w, "marker for object %d on queue %d", (int)(o - w->objects), q);
    Lane *lane = &w->lanes[q];
    /* "If event_wait_list is NULL ... this command waits until all previous enqueued commands have completed." */
    if (waits.count == 0) waits.held |= lane->held;
    cl_event event;
    if (chance(w, 50)) {
        MUST(clEnqueueMarkerWithWaitList(lane->queue, waits.count, list(&waits), &event));
    } else {
        MUST(clEnqueueBarrierWithWaitList(lane->queue, waits.count, list(&waits), &event));
        lane->gate |= waits.held;
    }
    Done *done = enqueued(w, q, event, &waits);
    used(o, 0, o->words, true, done);
    drop(done);
}

static void op_sync(World *w, int q) {
    Lane *lane = &w->lanes[q];
    Waits none = {0};
    if (chance(w, 40) && !lane->in_order && !lane->shared) {
        say(w, "barrier on queue %d", q);
        cl_event event;
        MUST(clEnqueueBarrierWithWaitList(lane->queue, 0, NULL, &event));
        none.held = lane->gate = lane->held;
        Done *done = enqueued(w, q, event, &none);
        lane->barrier = done->serial;
        drop(done);
    } else if (chance(w, 50)) {
        say(w, "flush of queue %d", q);
        MUST(clFlush(lane->queue));
    } else {
        say(w, "finish of queue %d", q);
        release_for(w, q, &none);
        MUST(clFinish(lane->queue));
        lane->held = lane->shared ? 0 : lane->held & open_users(w);
        check_looks(w, false);
    }
}

static void step(World *w) {
    int q = (int)pick(w, (unsigned)w->lane_count);
    Object *any[3];
    for (int i = 0; i < 3; i++) any[i] = &w->objects[pick(w, (unsigned)w->buffer_objects)];
    Object *image = w->object_count > w->buffer_objects
                        ? &w->objects[w->buffer_objects + (int)pick(w, (unsigned)(w->object_count - w->buffer_objects))]
                        : NULL;
    /* No part has more readers than fit. */
    for (int r = 0; r < ROOTS; r++)
        for (int p = 0; p < w->roots[r].parts; p++)
            if (w->roots[r].part[p].reader_count > PENDING_MAX / 2) {
                Object whole = {.root = &w->roots[r], .words = w->roots[r].words};
                Waits waits = {0};
                uses(w, &waits, q, &whole, 0, whole.words, true);
                if (waits.count == 0) waits.held |= w->lanes[q].held;
                cl_event event;
                MUST(clEnqueueMarkerWithWaitList(w->lanes[q].queue, waits.count, list(&waits), &event));
                Done *done = enqueued(w, q, event, &waits);
                used(&whole, 0, whole.words, true, done);
                drop(done);
                break;
            }
    unsigned kind = pick(w, 100);
    if (w->user_events && chance(w, 10)) end_users(w, 1u << pick(w, USERS));
    if (kind < 14) op_write(w, q, any[0]);
    else if (kind < 28) op_read(w, q, any[0]);
    else if (kind < 34) op_fill(w, q, any[0]);
    else if (kind < 44) op_copy(w, q, any[0], any[1]);
    else if (kind < 70) op_kernel(w, q, any[0], any[1], any[2]);
    else if (kind < 76) op_map(w, q, any[0]);
    else if (kind < 80) op_rect(w, q, any[0]);
    else if (kind < 84) op_migrate(w, q);
    else if (kind < 87) op_marker(w, q, any[0]);
    else if (kind < 90) op_sync(w, q);
    else if (kind < 94 && image) op_image_host(w, q, image);
    else if (image) op_image(w, q, image, chance(w, 50) ? any[0] : &w->objects[w->buffer_objects + (int)pick(w, (unsigned)(w->object_count - w->buffer_objects))]);
}

/* -- rounds ------------------------------------------------------------------------------------------------------- */

static void make_objects(World *w, bool images, size_t part_align) {
    const cl_mem_flags kinds[] = {0, CL_MEM_COPY_HOST_PTR, CL_MEM_USE_HOST_PTR, CL_MEM_ALLOC_HOST_PTR, CL_MEM_COPY_HOST_PTR};
    for (int b = 0; b < BUFFERS; b++) {
        Root *root = &w->roots[b];
        /* Parts of whole pages, and parts that share some. */
        root->part_words = chance(w, 50) || getenv("STRESS_STRICT") ? 1024 * (1 + pick(w, 4)) : part_align / 4 * (1 + pick(w, 3));
        root->parts = PARTS;
        root->words = root->part_words * PARTS;
        root->model = random_words(w, root->words);
        cl_mem_flags flags = kinds[pick(w, 5)];
        void *host = NULL;
        if (flags == CL_MEM_USE_HOST_PTR) {
            root->host = aligned_alloc(4096, (root->words * 4 + 4095) / 4096 * 4096);
            host = memcpy(root->host, root->model, root->words * 4);
        } else if (flags == CL_MEM_COPY_HOST_PTR) {
            host = root->model;
        }
        cl_int code;
        cl_mem mem = clCreateBuffer(w->in, CL_MEM_READ_WRITE | flags, root->words * 4, host, &code);
        MUST(code);
        w->objects[w->object_count++] = (Object){mem, root, 0, root->words, false};
        for (int s = 0; s < SUBS; s++) {
            cl_buffer_region part = {(size_t)s * root->part_words * 4, root->part_words * 4};
            cl_mem sub = clCreateSubBuffer(mem, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &part, &code);
            MUST(code);
            w->objects[w->object_count++] = (Object){sub, root, (size_t)s * root->part_words, root->part_words, false};
        }
        if (!host) {
            /* What it holds before the first write is not said. */
            MUST(clEnqueueWriteBuffer(w->lanes[0].queue, mem, CL_TRUE, 0, root->words * 4, root->model, 0, NULL, NULL));
            MUST(clFinish(w->lanes[0].queue));
        }
    }
    w->buffer_objects = w->object_count;
    for (int i = 0; images && i < IMAGES; i++) {
        Root *root = &w->roots[BUFFERS + i];
        root->width = 8, root->height = 5;
        root->words = root->part_words = root->width * root->height;
        root->parts = 1;
        root->model = random_words(w, root->words);
        cl_image_format format = {CL_R, CL_UNSIGNED_INT32};
        cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = root->width, .image_height = root->height};
        cl_int code;
        cl_mem mem = clCreateImage(w->in, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, &format, &desc, root->model, &code);
        MUST(code);
        w->objects[w->object_count++] = (Object){mem, root, 0, root->words, true};
    }
}

/* All contents, from a random queue each; then everything goes. */
static void end_round(World *w) {
    say(w, "end");
    end_users(w, ~0u);
    check_looks(w, true);
    for (int o = 0; o < w->object_count; o++) {
        Object *object = &w->objects[o];
        int q = (int)pick(w, (unsigned)w->lane_count);
        Waits waits = {0};
        uses(w, &waits, q, object, 0, object->words, false);
        cl_uint *got = malloc(object->words * 4);
        const size_t zero[3] = {0}, region[3] = {object->root->width, object->root->height, 1};
        if (object->image)
            MUST(clEnqueueReadImage(w->lanes[q].queue, object->mem, CL_TRUE, zero, region, 0, 0, got, waits.count, list(&waits), NULL));
        else
            MUST(clEnqueueReadBuffer(w->lanes[q].queue, object->mem, CL_TRUE, 0, object->words * 4, got, waits.count, list(&waits), NULL));
        char what[60];
        snprintf(what, sizeof what, "object %d at the end on queue %d", o, q);
        check_words(got, model(object), object->words, what);
        free(got);
    }
    for (int r = 0; r < ROOTS; r++) {
        for (int p = 0; p < w->roots[r].parts; p++) {
            Part *part = &w->roots[r].part[p];
            drop(part->writer);
            for (int i = 0; i < part->reader_count; i++) drop(part->readers[i]);
        }
    }
    for (int q = 0; q < w->lane_count; q++) MUST(clFinish(w->lanes[q].queue));
    for (int o = w->object_count - 1; o >= 0; o--) MUST(clReleaseMemObject(w->objects[o].mem));
    for (int r = 0; r < ROOTS; r++) {
        free(w->roots[r].model);
        free(w->roots[r].host);
    }
}

static cl_program program;
static cl_context shared;
static cl_command_queue lanes[QUEUES_MAX];
static bool lane_in_order[QUEUES_MAX];
static int lane_count;
static bool with_images;
static size_t part_align;

static void prepare(void) {
    if (shared) return;
    trace = getenv("STRESS_TRACE") != NULL;
    shared = make_context(device_count, devices);
    with_images = true;
    part_align = 1024;
    for (cl_uint d = 0; d < device_count; d++) {
        with_images = with_images && device_has_images(devices[d]);
        size_t align = device_uint(devices[d], CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8;
        if (align > part_align) part_align = align;
        for (int n = 0; n < 3 && lane_count < QUEUES_MAX; n++) {
            cl_command_queue_properties properties = n == 2 ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0;
            if (!device_supports_queue(devices[d], properties)) continue;
            if (n == 1 && d == 1) properties = CL_QUEUE_PROFILING_ENABLE;
            lane_in_order[lane_count] = n != 2;
            lanes[lane_count++] = make_queue(shared, devices[d], properties);
        }
    }
    const char *source =
        "uint work(uint v, uint loops) { for (uint j = 0; j < loops; j++) v = v * 1664525u + 1013904223u; return v; }\n"
        "kernel void add(const global uint *a, const global uint *b, global uint *to, uint by, uint loops) {\n"
        "    size_t i = get_global_id(0); to[i] = work(a[i] * 3u + by + b[i] + to[i] * 5u, loops); }\n"
        "kernel void blend(const global uint *a, global uint *b, global uint *to, uint by, uint loops) {\n"
        "    size_t i = get_global_id(0); to[i] = work(a[i] * 3u + by + (b[i] ^ to[i]), loops); }\n"
        "#ifdef IMAGES\n"
        "kernel void picture(read_only image2d_t from, write_only image2d_t to) {\n"
        "    int2 at = (int2)(get_global_id(0), get_global_id(1));\n"
        "    const sampler_t plain = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_NONE | CLK_FILTER_NEAREST;\n"
        "    write_imageui(to, at, read_imageui(from, plain, at) + (uint4)(1)); }\n"
        "#endif\n";
    program = build(shared, source, with_images ? "-cl-kernel-arg-info -DIMAGES" : "-cl-kernel-arg-info");
}

static unsigned long long setting(const char *name, unsigned long long otherwise) {
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

static void run_round(unsigned long long seed, bool alone) {
    World world = {.seed = seed, .state = seed * 0x9E3779B97F4A7C15ull + 1, .in = shared};
    World *w = here = &world;
    for (int i = 0; i < 8; i++) pick(w, 2);
    w->user_events = alone && chance(w, 50) && !getenv("STRESS_NO_USER_EVENTS");
    for (int q = 0; q < lane_count; q++)
        w->lanes[q] = (Lane){.queue = lanes[q], .in_order = lane_in_order[q], .shared = !alone};
    w->lane_count = lane_count;
    w->add = make_kernel(program, "add");
    w->mix = make_kernel(program, "blend");
    w->picture = with_images ? make_kernel(program, "picture") : NULL;
    make_objects(w, with_images, part_align);
    unsigned ops = (unsigned)setting("STRESS_OPS", 80);
    ops = ops / 2 + pick(w, ops);
    while (w->ops < ops) step(w);
    end_round(w);
    MUST(clReleaseKernel(w->add));
    MUST(clReleaseKernel(w->mix));
    if (w->picture) MUST(clReleaseKernel(w->picture));
}

TEST(random_commands) {
    prepare();
    signal(SIGALRM, too_long);
    unsigned long long seed = setting("STRESS_SEED", 1), rounds = setting("STRESS_ROUNDS", 12);
    for (unsigned long long round = 0; round < rounds; round++) {
        watched = seed + round;
        alarm(ROUND_SECONDS_MAX);
        run_round(seed + round, true);
        if (round % 100 == 99) printf("  %llu rounds\n", round + 1), fflush(stdout);
    }
    alarm(0);
    CHECK(true);
}

typedef struct {
    unsigned long long seed, rounds;
} Share;

static void *run_share(void *arg) {
    const Share *share = arg;
    for (unsigned long long round = 0; round < share->rounds; round++) run_round(share->seed + round, false);
    return NULL;
}

/* Several threads with objects of their own on the same queues. */
TEST(random_commands_of_several_threads) {
    prepare();
    signal(SIGALRM, too_long);
    unsigned long long seed = setting("STRESS_SEED", 1), rounds = setting("STRESS_ROUNDS", 12) / THREADS + 1;
    for (unsigned long long done = 0; done < rounds; done += 10) {
        pthread_t threads[THREADS];
        Share shares[THREADS];
        watched = seed + done;
        alarm(ROUND_SECONDS_MAX * 3);
        for (int t = 0; t < THREADS; t++) {
            unsigned long long left = rounds - done;
            shares[t] = (Share){seed + done + 1000000ull * (unsigned long long)t, left < 10 ? left : 10};
            pthread_create(&threads[t], NULL, run_share, &shares[t]);
        }
        for (int t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
    }
    alarm(0);
    CHECK(true);
}
