/* Random programs against a simple model. Many commands run on many queues of all devices in one
 * context, and only conflicting commands are ordered. Every content is compared with the one that
 * the host computed.
 *
 *     STRESS_SEED    seed of the first round (default 1); round n uses seed + n, so a failure names
 *                    the seed that reproduces it
 *     STRESS_ROUNDS  rounds of each case (default 12)
 *     STRESS_OPS     commands of a round (default 80)
 *     STRESS_TRACE   print each command
 *     STRESS_NO_USER_EVENTS  use no user events
 *     STRESS_STRICT  before a wait, complete only the user events that must be complete by the
 *                    specification. PoCL with several devices needs more: it orders their commands
 *                    by the buffers that they use. */
#include "harness.h"
#include "stress.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#define THREADS 4
#define ROUND_SECONDS_MAX 60

static unsigned long long watched;

static void too_long(int signal) {
    char text[100];
    (void)signal;
    int size = snprintf(text, sizeof text, "FAIL stress: seed %llu: a round hangs\n", watched);
    if (write(1, text, (size_t)size) < 0) _exit(3);
    if (getenv("STRESS_PAUSE")) pause();
    _exit(1);
}

static void make_objects(World *w, bool images, size_t part_align) {
    const cl_mem_flags kinds[] = {0, CL_MEM_COPY_HOST_PTR, CL_MEM_USE_HOST_PTR,
                                  CL_MEM_ALLOC_HOST_PTR, CL_MEM_COPY_HOST_PTR};
    for (int b = 0; b < BUFFERS; b++) {
        Root *root = &w->roots[b];
        /* Parts of whole pages, or parts that share pages. */
        root->part_words = chance(w, 50) || getenv("STRESS_STRICT")
                               ? 1024 * (1 + pick(w, 4))
                               : part_align / 4 * (1 + pick(w, 3));
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
            cl_mem sub = clCreateSubBuffer(mem, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION,
                                           &part, &code);
            MUST(code);
            w->objects[w->object_count++] =
                (Object){sub, root, (size_t)s * root->part_words, root->part_words, false};
        }
        if (!host) {
            /* The initial content is undefined. */
            MUST(clEnqueueWriteBuffer(w->lanes[0].queue, mem, CL_TRUE, 0, root->words * 4,
                                      root->model, 0, NULL, NULL));
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
        cl_image_desc desc = {.image_type = CL_MEM_OBJECT_IMAGE2D,
                              .image_width = root->width,
                              .image_height = root->height};
        cl_int code;
        cl_mem mem = clCreateImage(w->in, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, &format, &desc,
                                   root->model, &code);
        MUST(code);
        w->objects[w->object_count++] = (Object){mem, root, 0, root->words, true};
    }
}

/* Checks all contents, each from a random queue, and releases everything. */
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
            MUST(clEnqueueReadImage(w->lanes[q].queue, object->mem, CL_TRUE, zero, region, 0, 0,
                                    got, waits.count, list(&waits), NULL));
        else
            MUST(clEnqueueReadBuffer(w->lanes[q].queue, object->mem, CL_TRUE, 0, object->words * 4,
                                     got, waits.count, list(&waits), NULL));
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
            cl_command_queue_properties properties =
                n == 2 ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0;
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
    program =
        build(shared, source, with_images ? "-cl-kernel-arg-info -DIMAGES" : "-cl-kernel-arg-info");
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
    for (unsigned long long round = 0; round < share->rounds; round++)
        run_round(share->seed + round, false);
    return NULL;
}

/* Several threads with their own objects on the same queues. */
TEST(random_commands_of_several_threads) {
    prepare();
    signal(SIGALRM, too_long);
    unsigned long long seed = setting("STRESS_SEED", 1),
                       rounds = setting("STRESS_ROUNDS", 12) / THREADS + 1;
    for (unsigned long long done = 0; done < rounds; done += 10) {
        pthread_t threads[THREADS];
        Share shares[THREADS];
        watched = seed + done;
        alarm(ROUND_SECONDS_MAX * 3);
        for (int t = 0; t < THREADS; t++) {
            unsigned long long left = rounds - done;
            shares[t] =
                (Share){seed + done + 1000000ull * (unsigned long long)t, left < 10 ? left : 10};
            pthread_create(&threads[t], NULL, run_share, &shares[t]);
        }
        for (int t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
    }
    alarm(0);
    CHECK(true);
}
