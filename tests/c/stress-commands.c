/* The commands of the random programs of stress.c: each is enqueued and applied to the model. */
#include "stress.h"

static void range(World *w, const Object *object, size_t *from, size_t *words) {
    if (chance(w, 30)) {
        *from = 0;
        *words = object->words;
        return;
    }
    *from = pick(w, (unsigned)object->words);
    *words = 1 + pick(w, (unsigned)(object->words - *from));
}

static void op_write(World *w, int q, Object *o) {
    size_t from, words;
    range(w, o, &from, &words);
    Waits waits = {0};
    uses(w, &waits, q, o, from, words, true);
    bool blocking = chance(w, 30);
    if (!blocking) maybe_user_event(w, &waits);
    say(w, "write%s of object %d words %zu+%zu on queue %d", blocking ? " now" : "",
        (int)(o - w->objects), from, words, q);
    cl_uint *bytes = random_words(w, words);
    if (blocking) release_for(w, q, &waits);
    cl_event event;
    MUST(clEnqueueWriteBuffer(w->lanes[q].queue, o->mem, blocking, from * 4, words * 4, bytes,
                              waits.count, list(&waits), &event));
    memcpy(model(o) + from, bytes, words * 4);
    Done *done = enqueued(w, q, event, &waits);
    used(o, from, words, true, done);
    if (blocking) {
        free(bytes);
    } else if (w->look_count < PENDING_MAX) {
        /* The bytes must stay until the command has ended, so they are kept as a look that compares
         * them with themselves. */
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
    say(w, "read%s of object %d words %zu+%zu on queue %d", blocking ? " now" : "",
        (int)(o - w->objects), from, words, q);
    cl_uint *got = malloc(words * 4);
    memset(got, 0xEE, words * 4);
    if (blocking) release_for(w, q, &waits);
    cl_event event;
    MUST(clEnqueueReadBuffer(w->lanes[q].queue, o->mem, blocking, from * 4, words * 4, got,
                             waits.count, list(&waits), &event));
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
    MUST(clEnqueueFillBuffer(w->lanes[q].queue, o->mem, &value, 4, from * 4, words * 4, waits.count,
                             list(&waits), &event));
    for (size_t i = 0; i < words; i++) model(o)[from + i] = value;
    Done *done = enqueued(w, q, event, &waits);
    used(o, from, words, true, done);
    drop(done);
}

static void op_copy(World *w, int q, Object *from, Object *to) {
    if (from->root == to->root) return;
    size_t most = from->words < to->words ? from->words : to->words;
    size_t words = chance(w, 30) ? most : 1 + pick(w, (unsigned)most);
    size_t start = pick(w, (unsigned)(from->words - words + 1)),
           end = pick(w, (unsigned)(to->words - words + 1));
    Waits waits = {0};
    uses(w, &waits, q, from, start, words, false);
    uses(w, &waits, q, to, end, words, true);
    maybe_user_event(w, &waits);
    say(w, "copy of object %d words %zu+%zu to object %d word %zu on queue %d",
        (int)(from - w->objects), start, words, (int)(to - w->objects), end, q);
    cl_event event;
    MUST(clEnqueueCopyBuffer(w->lanes[q].queue, from->mem, to->mem, start * 4, end * 4, words * 4,
                             waits.count, list(&waits), &event));
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
    /* The second kernel does not declare that it only reads its second argument. Even so, it may
     * run beside other readers. */
    bool mix = chance(w, 50);
    uses(w, &waits, q, a, 0, a->words, false);
    uses(w, &waits, q, b, 0, b->words, false);
    uses(w, &waits, q, to, 0, to->words, true);
    maybe_user_event(w, &waits);
    cl_kernel kernel = mix ? w->mix : w->add;
    cl_uint by = pick(w, 1u << 20), loops = chance(w, 30) ? pick(w, 500) : 0;
    say(w, "kernel %s of objects %d, %d to %d on queue %d", mix ? "mix" : "add",
        (int)(a - w->objects), (int)(b - w->objects), (int)(to - w->objects), q);
    MUST(clSetKernelArg(kernel, 0, sizeof(cl_mem), &a->mem));
    MUST(clSetKernelArg(kernel, 1, sizeof(cl_mem), &b->mem));
    MUST(clSetKernelArg(kernel, 2, sizeof(cl_mem), &to->mem));
    MUST(clSetKernelArg(kernel, 3, sizeof by, &by));
    MUST(clSetKernelArg(kernel, 4, sizeof loops, &loops));
    cl_event event;
    MUST(clEnqueueNDRangeKernel(w->lanes[q].queue, kernel, 1, NULL, &words, NULL, waits.count,
                                list(&waits), &event));
    for (size_t i = 0; i < words; i++) {
        cl_uint v = model(a)[i] * 3u + by +
                    (mix ? model(b)[i] ^ model(to)[i] : model(b)[i] + model(to)[i] * 5u);
        for (cl_uint j = 0; j < loops; j++) v = v * 1664525u + 1013904223u;
        model(to)[i] = v;
    }
    Done *done = enqueued(w, q, event, &waits);
    used(a, 0, a->words, false, done);
    used(b, 0, b->words, false, done);
    used(to, 0, to->words, true, done);
    drop(done);
}

static void op_map(World *w, int q, Object *o) {
    static const cl_map_flags kinds[] = {CL_MAP_READ, CL_MAP_WRITE, CL_MAP_READ | CL_MAP_WRITE,
                                         CL_MAP_WRITE_INVALIDATE_REGION};
    cl_map_flags flags = kinds[pick(w, 4)];
    size_t from, words;
    range(w, o, &from, &words);
    bool writes = flags != CL_MAP_READ, blocking = chance(w, 50);
    Waits waits = {0};
    uses(w, &waits, q, o, from, words, writes);
    say(w, "map of object %d words %zu+%zu flags %d on queue %d", (int)(o - w->objects), from,
        words, (int)flags, q);
    release_for(w, q, &waits);
    cl_int code;
    cl_event event;
    cl_uint *at = clEnqueueMapBuffer(w->lanes[q].queue, o->mem, blocking, flags, from * 4,
                                     words * 4, waits.count, list(&waits), &event, &code);
    MUST(code);
    if (!blocking) MUST(clWaitForEvents(1, &event));
    MUST(clReleaseEvent(event));
    if (flags != CL_MAP_WRITE_INVALIDATE_REGION) check_words(at, model(o) + from, words, "a map");
    if (writes) {
        cl_uint value = pick(w, 1u << 30);
        bool some = flags != CL_MAP_WRITE_INVALIDATE_REGION && chance(w, 50);
        for (size_t i = some ? words / 2 : 0; i < words; i++)
            model(o)[from + i] = at[i] = value += 77;
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
    say(w, "%s of a rectangle of object %d on queue %d", writes ? "write" : "read",
        (int)(o - w->objects), q);
    release_for(w, q, &waits);
    cl_uint *bytes = random_words(w, width * height);
    cl_event event;
    if (writes)
        MUST(clEnqueueWriteBufferRect(w->lanes[q].queue, o->mem, CL_TRUE, origin, zero, region,
                                      pitch * 4, 0, width * 4, 0, bytes, waits.count, list(&waits),
                                      &event));
    else
        MUST(clEnqueueReadBufferRect(w->lanes[q].queue, o->mem, CL_TRUE, origin, zero, region,
                                     pitch * 4, 0, width * 4, 0, bytes, waits.count, list(&waits),
                                     &event));
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
        MUST(clEnqueueWriteImage(w->lanes[q].queue, o->mem, CL_TRUE, origin, region, 0, 0, bytes,
                                 waits.count, list(&waits), &event));
    else
        MUST(clEnqueueReadImage(w->lanes[q].queue, o->mem, CL_TRUE, origin, region, 0, 0, bytes,
                                waits.count, list(&waits), &event));
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

/* A copy between an image and a buffer, or between two images by a kernel or a copy. */
static void op_image(World *w, int q, Object *image, Object *other) {
    Root *root = image->root;
    const size_t zero[3] = {0}, region[3] = {root->width, root->height, 1};
    size_t words = root->words;
    bool to = chance(w, 50);
    /* PoCL 3.1 crashes if the buffer is a sub-buffer. */
    if (!other->image) other -= (other - w->objects) % (1 + SUBS);
    if (other->words < words || other == image) return;
    Waits waits = {0};
    Object *from = to ? other : image, *into = to ? image : other;
    uses(w, &waits, q, from, 0, words, false);
    uses(w, &waits, q, into, 0, words, true);
    maybe_user_event(w, &waits);
    say(w, "copy of image %d %s object %d on queue %d", (int)(image - w->objects),
        to ? "from" : "to", (int)(other - w->objects), q);
    cl_event event;
    cl_command_queue queue_ = w->lanes[q].queue;
    cl_uint add = 0;
    if (other->image) {
        if (from->root->width != into->root->width || from->root->height != into->root->height)
            return;
        if (chance(w, 50)) {
            add = 1;
            MUST(clSetKernelArg(w->picture, 0, sizeof(cl_mem), &from->mem));
            MUST(clSetKernelArg(w->picture, 1, sizeof(cl_mem), &into->mem));
            MUST(clEnqueueNDRangeKernel(queue_, w->picture, 2, NULL, region, NULL, waits.count,
                                        list(&waits), &event));
        } else {
            MUST(clEnqueueCopyImage(queue_, from->mem, into->mem, zero, zero, region, waits.count,
                                    list(&waits), &event));
        }
    } else if (to) {
        MUST(clEnqueueCopyBufferToImage(queue_, other->mem, image->mem, 0, zero, region,
                                        waits.count, list(&waits), &event));
    } else {
        MUST(clEnqueueCopyImageToBuffer(queue_, image->mem, other->mem, zero, region, 0,
                                        waits.count, list(&waits), &event));
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
    MUST(clEnqueueMigrateMemObjects(w->lanes[q].queue, count, mems,
                                    chance(w, 10) ? CL_MIGRATE_MEM_OBJECT_HOST : 0, waits.count,
                                    list(&waits), &event));
    Done *done = enqueued(w, q, event, &waits);
    for (cl_uint i = 0; i < count; i++) used(which[i], 0, which[i]->words, false, done);
    drop(done);
}

/* A marker or barrier that replaces all earlier commands on one object. */
static void op_marker(World *w, int q, Object *o) {
    Waits waits = {0};
    uses(w, &waits, q, o, 0, o->words, true);
    maybe_user_event(w, &waits);
    say(w, "marker for object %d on queue %d", (int)(o - w->objects), q);
    Lane *lane = &w->lanes[q];
    /* "If event_wait_list is NULL ... this command waits until all previous enqueued commands have
     * completed." */
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

void step(World *w) {
    int q = (int)pick(w, (unsigned)w->lane_count);
    Object *any[3];
    for (int i = 0; i < 3; i++) any[i] = &w->objects[pick(w, (unsigned)w->buffer_objects)];
    Object *image = w->object_count > w->buffer_objects
                        ? &w->objects[w->buffer_objects +
                                      (int)pick(w, (unsigned)(w->object_count - w->buffer_objects))]
                        : NULL;
    /* Keeps the number of readers of each part within the limit. */
    for (int r = 0; r < ROOTS; r++)
        for (int p = 0; p < w->roots[r].parts; p++)
            if (w->roots[r].part[p].reader_count > PENDING_MAX / 2) {
                Object whole = {.root = &w->roots[r], .words = w->roots[r].words};
                Waits waits = {0};
                uses(w, &waits, q, &whole, 0, whole.words, true);
                if (waits.count == 0) waits.held |= w->lanes[q].held;
                cl_event event;
                MUST(clEnqueueMarkerWithWaitList(w->lanes[q].queue, waits.count, list(&waits),
                                                 &event));
                Done *done = enqueued(w, q, event, &waits);
                used(&whole, 0, whole.words, true, done);
                drop(done);
                break;
            }
    unsigned kind = pick(w, 100);
    if (w->user_events && chance(w, 10)) end_users(w, 1u << pick(w, USERS));
    if (kind < 14)
        op_write(w, q, any[0]);
    else if (kind < 28)
        op_read(w, q, any[0]);
    else if (kind < 34)
        op_fill(w, q, any[0]);
    else if (kind < 44)
        op_copy(w, q, any[0], any[1]);
    else if (kind < 70)
        op_kernel(w, q, any[0], any[1], any[2]);
    else if (kind < 76)
        op_map(w, q, any[0]);
    else if (kind < 80)
        op_rect(w, q, any[0]);
    else if (kind < 84)
        op_migrate(w, q);
    else if (kind < 87)
        op_marker(w, q, any[0]);
    else if (kind < 90)
        op_sync(w, q);
    else if (kind < 94 && image)
        op_image_host(w, q, image);
    else if (image)
        op_image(w, q, image,
                 chance(w, 50)
                     ? any[0]
                     : &w->objects[w->buffer_objects +
                                   (int)pick(w, (unsigned)(w->object_count - w->buffer_objects))]);
}
