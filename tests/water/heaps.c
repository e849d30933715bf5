/* What the heaps of wtr_ext.h promise, beside the two applications of examples/ggas: what is
 * refused and why, parts as buffers, launches in order, abort, and the end of a wait.
 *
 *   heaps            with two devices at least; prints what fails, and returns 1
 *   heaps pool       the same on the pool's daemons, where parts are only read and written
 *   heaps none       devices that have no heaps: only that they say why
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <wtr_ext.h>

static const char *const SOURCE =
    "#include <ggas.h>\n"
    "kernel void ring(global ggas_heap_t *heap, global ulong *own, const ulong rounds, const ulong epoch, local ulong *unused) {\n"
    "    ggas_t g = ggas_open(heap);\n"
    "    const uint me = ggas_my_pe(g), pes = ggas_n_pes(g);\n"
    "    ulong sum = 0;\n"
    "    for (ulong r = 1; r <= rounds; r++) {\n"
    "        ggas_p64(g, 64, r * 100 + me, (me + 1) % pes);\n"
    "        ggas_signal(g, 0, epoch + r, (me + 1) % pes);\n"
    "        if (ggas_wait_until(g, 0, GGAS_CMP_GE, epoch + r) != GGAS_OK) { own[0] = ~0ul; return; }\n"
    "        sum += *(global ulong *)ggas_ptr(g, 64, me);\n"
    "        if (ggas_barrier_all(g) != GGAS_OK) { own[0] = ~0ul; return; }\n"
    "    }\n"
    "    own[0] = sum;\n"
    "    own[1] = pes;\n"
    "}\n"
    "kernel void lonely(global ggas_heap_t *heap, global ulong *own) {\n"
    "    ggas_t g = ggas_open(heap);\n"
    "    own[0] = 7;\n"
    "    own[0] = 100 - ggas_wait_until(g, 128, GGAS_CMP_GE, 1);\n" /* nobody signals there */
    "}\n"
    "kernel void partial(global ggas_heap_t *heap, global ulong *own) {\n" /* PE 0 alone comes to
                                                                              the barrier */
    "    ggas_t g = ggas_open(heap);\n"
    "    own[0] = 100;\n"
    "    if (ggas_my_pe(g) == 0) own[0] = 100 - ggas_barrier_all(g);\n"
    "}\n"
    "kernel void plain(global ulong *data) { data[0] += 1; }\n";

static int failures, told_code, on_pool;
static char told[1024];

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            printf("line %d: not so: %s (last told: %d, %s)\n", __LINE__, #what, told_code, told); \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

static void hear(const wtr_error *error, void *user) {
    (void)user;
    told_code = error->code;
    snprintf(told, sizeof told, "%s", error->message);
}

static void forget(void) {
    told_code = 0;
    told[0] = 0;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

enum { PES = 2 };
static wtr_device *devices[PES];
static wtr_kernel *ring[PES], *lonely[PES], *half[PES], *plain[PES];
static wtr_buffer *own[PES];
static const size_t ONE = 1;

static wtr_heap *make(size_t bytes, const wtr_heap_options *options) {
    return wtr_create_heap(PES, devices, bytes, options, NULL);
}

static void bad_arguments(void) {
    wtr_device *same[] = {devices[0], devices[0]};
    forget();
    CHECK(!wtr_create_heap(2, same, 64, NULL, NULL) && told_code == WTR_EINVAL &&
          strstr(told, "same"));
    CHECK(!wtr_create_heap(0, devices, 64, NULL, NULL) && told_code == WTR_EINVAL);
    CHECK(!wtr_create_heap(65, devices, 64, NULL, NULL) && strstr(told, "64"));
    CHECK(!wtr_create_heap(2, NULL, 64, NULL, NULL) && strstr(told, "NULL"));
    CHECK(!wtr_create_heap(2, devices, 0, NULL, NULL) && strstr(told, "0 bytes"));
    const wtr_heap_options short_options = {.size = 4};
    CHECK(!make(64, &short_options) && strstr(told, "sizeof"));
    /* More than a part can have: told by the ranks that were to make it, and nobody waits for
     * nobody. */
    forget();
    CHECK(!make((size_t)1 << 50, NULL) && told_code < 0 && strstr(told, "heap"));
}

/* As other buffers: data[i] is i * i in part 0. */
static void parts_are_copied(wtr_buffer *const *part, const unsigned long long *data) {
    unsigned long long back[8];
    wtr_copy_buffer(part[0], 8, part[1], 16, 64, NULL, NULL);
    wtr_copy_buffer(part[1], 16, own[0], 0, 8, NULL, NULL);
    wtr_read_buffer_at(part[1], 16, 64, back, NULL, NULL);
    CHECK(memcmp(back, data + 1, 64) == 0);
    wtr_read_buffer(own[0], 8, back, NULL, NULL);
    CHECK(back[0] == 1);
    wtr_run_kernel(plain[0], 1, &ONE, &ONE, NULL, NULL, 1, WTR_BUF(part[0]));
    wtr_read_buffer(part[0], 8, back, NULL, NULL);
    CHECK(back[0] == 1);
}

static void parts_are_buffers(void) {
    wtr_heap *heap = make(4096, NULL);
    CHECK(heap && wtr_heap_num_pes(heap) == PES);
    wtr_buffer *part[] = {wtr_heap_part(heap, 0), wtr_heap_part(heap, 1)};
    CHECK(part[0] && part[1] && part[0] != part[1]);
    forget();
    CHECK(!wtr_heap_part(heap, PES) && strstr(told, "PE 2"));
    unsigned long long data[512], zero[512] = {0};
    memset(data, 0xee, sizeof data);
    wtr_read_buffer(part[1], 4096, data, NULL, NULL);
    CHECK(memcmp(data, zero, sizeof data) == 0);
    for (int i = 0; i < 512; i++) data[i] = (unsigned long long)i * i;
    wtr_write_buffer(part[0], 4096, data, NULL, NULL);
    if (on_pool) {
        forget();
        wtr_copy_buffer(part[0], 8, part[1], 16, 64, NULL, NULL);
        CHECK(told_code < 0 && strstr(told, "only be read and written"));
        forget();
        wtr_run_kernel(plain[0], 1, &ONE, &ONE, NULL, NULL, 1, WTR_BUF(part[0]));
        CHECK(told_code < 0 && strstr(told, "only be read and written"));
    } else {
        parts_are_copied(part, data);
    }
    forget();
    wtr_read_buffer(part[0], 4097, data, NULL, NULL);
    CHECK(told_code == WTR_EINVAL);
    wtr_release_buffer(part[0], NULL, NULL);
    CHECK(told_code == WTR_EINVAL && strstr(told, "wtr_release_heap"));
    for (unsigned from = 0; from < PES; from++)
        for (unsigned to = 0; to < PES; to++)
            CHECK(wtr_heap_path(heap, from, to) >= WTR_PATH_OWN &&
                  wtr_heap_path(heap, from, to) <= WTR_PATH_PROXY);
    CHECK(wtr_heap_path(heap, 0, 0) == WTR_PATH_OWN &&
          wtr_heap_path(heap, 0, 1) == wtr_heap_path(heap, 1, 0));
    CHECK(wtr_heap_path(heap, 0, 9) == WTR_EINVAL);
    wtr_release_heap(heap, NULL, NULL);
    forget();
    wtr_read_buffer(part[0], 8, data, NULL, NULL);
    CHECK(told_code == WTR_EINVAL && strstr(told, "released"));
    wtr_release_heap(heap, NULL, NULL);
    CHECK(told_code == WTR_EINVAL);
}

static void run_ring(wtr_heap *heap, unsigned long long rounds, unsigned long long epoch,
                     wtr_event **wait, wtr_event **evt) {
    wtr_run_collective(heap, ring, 1, &ONE, &ONE, wait, evt, 5, WTR_HEAP(heap), WTR_BUFS(own),
                       WTR_ARG(rounds), WTR_ARG(epoch), WTR_LOCAL(64));
}

/* PE i hears from the one before it: r * 100 + (i - 1), for each round. */
static int sums_are_right(unsigned long long rounds) {
    int right = 1;
    for (unsigned i = 0; i < PES; i++) {
        unsigned long long got[2];
        wtr_read_buffer(own[i], sizeof got, got, NULL, NULL);
        right &= got[0] == rounds * (rounds + 1) / 2 * 100 + rounds * ((i + PES - 1) % PES) &&
                 got[1] == PES;
    }
    return right;
}

static void kernels_talk(const wtr_heap_options *options) {
    wtr_heap *heap = make(4096, options), *other = make(65536, options);
    forget();
    run_ring(heap, 100, 0, NULL, NULL);
    CHECK(told_code == 0 && sums_are_right(100));
    /* Over two heaps in turns, without an event between: in one order on all devices. */
    wtr_event *last = NULL;
    for (unsigned long long k = 0; k < 20; k++) {
        run_ring(heap, 10, 500 + k * 10, NULL, NULL);
        run_ring(other, 10, k * 10, NULL, &last);
    }
    wtr_wait_for_events(1, &last);
    CHECK(wtr_event_status(last) == 0 && sums_are_right(10));
    wtr_event *once = NULL, *twice = NULL;
    run_ring(heap, 10, 700, &last, &once);
    run_ring(heap, 20, 710, &once, &twice);
    wtr_release_heap(heap, NULL, NULL); /* waits for them */
    wtr_wait_for_events(1, &twice);
    CHECK(told_code == 0 && sums_are_right(20));
    wtr_release_event(last);
    wtr_release_event(once);
    wtr_release_event(twice);
    wtr_release_heap(other, NULL, NULL);
}

/* Launches of two threads at the same time, each over a heap of its own: blocking ones, and such
 * that an event stands for. */
static void *launch_often(void *arg) {
    wtr_heap *heap = arg;
    for (unsigned long long k = 0; k < 100; k++) {
        wtr_event *evt = NULL;
        run_ring(heap, 3, k * 3, NULL, k % 2 ? &evt : NULL);
        if (evt) {
            wtr_wait_for_events(1, &evt);
            wtr_release_event(evt);
        }
    }
    wtr_release_heap(heap, NULL, NULL);
    return NULL;
}

static void threads_take_turns(void) {
    const wtr_heap_options soon = {.size = sizeof soon, .timeout_ms = 10000};
    pthread_t threads[2];
    forget();
    for (unsigned i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, launch_often, make(4096, &soon)) == 0);
    for (unsigned i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    CHECK(told_code == 0 && sums_are_right(3));
}

static void bad_launches(void) {
    wtr_heap *heap = make(4096, NULL);
    const unsigned long long none = 0;
    wtr_kernel *crossed[] = {ring[1], ring[0]};
    forget();
    wtr_run_collective(heap, crossed, 1, &ONE, &ONE, NULL, NULL, 5, WTR_HEAP(heap), WTR_BUFS(own),
                       WTR_ARG(none), WTR_ARG(none), WTR_LOCAL(64));
    CHECK(told_code == WTR_EINVAL && strstr(told, "another device"));
    wtr_run_collective(heap, plain, 1, &ONE, &ONE, NULL, NULL, 1, WTR_BUFS(own));
    CHECK(told_code == WTR_EINVAL && strstr(told, "WTR_HEAP"));
    wtr_run_collective(heap, ring, 1, &ONE, NULL, NULL, NULL, 5, WTR_HEAP(heap), WTR_BUFS(own),
                       WTR_ARG(none), WTR_ARG(none), WTR_LOCAL(64));
    CHECK(told_code == WTR_EINVAL && strstr(told, "local work size"));
    const size_t many = 1 << 20;
    wtr_run_collective(heap, ring, 1, &many, &ONE, NULL, NULL, 5, WTR_HEAP(heap), WTR_BUFS(own),
                       WTR_ARG(none), WTR_ARG(none), WTR_LOCAL(64));
    CHECK(told_code == WTR_ERESIDENT && strstr(told, "1048576 work-groups") &&
          strstr(told, "never start"));
    wtr_run_kernel(lonely[0], 1, &ONE, &ONE, NULL, NULL, 2, WTR_HEAP(heap), WTR_BUF(own[0]));
    CHECK(told_code == WTR_EINVAL && strstr(told, "wtr_run_collective"));
    /* A wrong argument is told by the device; the other devices' kernels do not wait for ever, nor
     * until their bound. */
    const wtr_heap_options patient = {.size = sizeof patient, .timeout_ms = 600000};
    wtr_heap *other = make(4096, &patient);
    forget();
    const double start = seconds();
    wtr_run_collective(other, lonely, 1, &ONE, &ONE, NULL, NULL, 1, WTR_HEAP(other));
    CHECK(told_code < 0 && seconds() - start < 300);
    wtr_release_heap(other, NULL, NULL);
    wtr_release_heap(heap, NULL, NULL);
}

static void run_lonely(wtr_heap *heap, wtr_event **evt) {
    wtr_run_collective(heap, lonely, 1, &ONE, &ONE, NULL, evt, 2, WTR_HEAP(heap), WTR_BUFS(own));
}

/* An aborted heap, in which nothing runs, and then one in which something does. */
static void resets_help(wtr_heap *heap) {
    const unsigned long long written = 4711, zero = 0;
    unsigned long long got[2] = {0};
    wtr_event *ran = NULL, *again = NULL;
    wtr_write_buffer_at(wtr_heap_part(heap, 1), 256, 8, &written, NULL, NULL);
    forget();
    wtr_reset_heap(heap, NULL, NULL);
    run_ring(heap, 10, 0, NULL, NULL);
    CHECK(told_code == 0 && sums_are_right(10));
    wtr_read_buffer_at(wtr_heap_part(heap, 1), 256, 8, got, NULL, NULL);
    CHECK(got[0] == written);
    /* The reset waits for the launch that is aborted, and what is launched next for the reset. */
    run_lonely(heap, &ran);
    wtr_flush();
    wtr_abort_heap(heap, "the sea");
    wtr_reset_heap(heap, NULL, &again);
    for (unsigned i = 0; i < PES; i++)
        wtr_write_buffer_at(wtr_heap_part(heap, i), 0, 8, &zero, &again, NULL);
    forget();
    run_ring(heap, 20, 0, NULL, NULL);
    CHECK(told_code == 0 && sums_are_right(20) && wtr_event_status(again) == 0 &&
          wtr_event_status(ran) == WTR_EABORTED);
    wtr_release_event(ran);
    wtr_release_event(again);
}

static void run_half(wtr_heap *heap) {
    wtr_run_collective(heap, half, 1, &ONE, &ONE, NULL, NULL, 2, WTR_HEAP(heap), WTR_BUFS(own));
}

/* A barrier that has failed fails until the heap is reset, however often that has to be. */
static void resets_help_after_timeouts(const wtr_heap_options *options) {
    unsigned long long got[2];
    const wtr_heap_options hasty = {
        .size = sizeof hasty, .timeout_ms = 1500, .force_proxy = options && options->force_proxy};
    wtr_heap *heap = make(4096, &hasty);
    forget();
    for (unsigned long long k = 0; k < 2; k++) {
        run_half(heap);
        wtr_read_buffer(own[0], 8, got, NULL, NULL);
        CHECK(got[0] == 101); /* GGAS_TIMEOUT is -1 */
        run_half(heap);
        wtr_read_buffer(own[0], 8, got, NULL, NULL);
        CHECK(got[0] == 101);
        wtr_reset_heap(heap, NULL, NULL);
        run_ring(heap, 10, 100 * k, NULL, NULL);
        CHECK(told_code == 0 && sums_are_right(10));
    }
    wtr_release_heap(heap, NULL, NULL);
    forget();
    wtr_reset_heap(heap, NULL, NULL);
    CHECK(told_code == WTR_EINVAL && strstr(told, "released"));
}

static void waits_end(const wtr_heap_options *options) {
    unsigned long long got = 0;
    const wtr_heap_options hasty = {
        .size = sizeof hasty, .timeout_ms = 200, .force_proxy = options && options->force_proxy};
    wtr_heap *heap = make(4096, &hasty);
    const double start = seconds();
    forget();
    run_lonely(heap, NULL);
    const double took = seconds() - start;
    wtr_read_buffer(own[1], 8, &got, NULL, NULL);
    CHECK(told_code == 0 && got == 101 && took > 0.15); /* GGAS_TIMEOUT is -1 */
    wtr_release_heap(heap, NULL, NULL);

    heap = make(4096, options);
    wtr_event *ran = NULL;
    run_lonely(heap, &ran);
    wtr_flush();
    const struct timespec nap = {.tv_nsec = 300000000};
    nanosleep(&nap, NULL);
    CHECK(wtr_event_status(ran) == 1);
    wtr_abort_heap(heap, "the weather");
    wtr_wait_for_events(1, &ran);
    CHECK(wtr_event_status(ran) == WTR_EABORTED &&
          strstr(wtr_event_error(ran)->message, "the weather"));
    for (unsigned i = 0; i < PES; i++) {
        wtr_read_buffer(own[i], 8, &got, NULL, NULL);
        CHECK(got == 102); /* GGAS_ABORTED is -2 */
    }
    forget();
    run_lonely(heap, NULL);
    /* The cause was told already; the call that fails because of it says it again. */
    CHECK(told_code == 0 && wtr_last_error() && wtr_last_error()->code == WTR_EABORTED &&
          strstr(wtr_last_error()->message, "the weather"));
    wtr_release_event(ran);
    resets_help(heap);
    wtr_release_heap(heap, NULL, NULL);
    forget();
    heap = make(4096, options);
    run_ring(heap, 10, 0, NULL, NULL);
    CHECK(told_code == 0 && sums_are_right(10)); /* the next heap works */
    wtr_release_heap(heap, NULL, NULL);
}

int main(int argc, char **argv) {
    wtr_init_devices("SELECT ALL");
    wtr_set_error_handler(hear, NULL);
    if (argc > 1 && strcmp(argv[1], "none") == 0) {
        devices[0] = wtr_get_device("SELECT POS 1");
        CHECK(!wtr_create_heap(1, devices, 64, NULL, NULL) && told_code == WTR_EINVAL &&
              strstr(told, "there are no heaps here"));
        printf("%s\n", told);
        wtr_release_devices();
        return failures > 0;
    }
    on_pool = argc > 1 && strcmp(argv[1], "pool") == 0;
    if (wtr_get_num_devices() < PES) {
        printf("two devices are needed, there are %d\n", wtr_get_num_devices());
        return 77;
    }
    for (unsigned i = 0; i < PES; i++) {
        devices[i] = wtr_get_device("SELECT POS %u", i + 1);
        ring[i] = wtr_create_kernel(devices[i], SOURCE, "ring", NULL, WTR_SOURCE_STRING, NULL);
        lonely[i] = wtr_create_kernel(devices[i], SOURCE, "lonely", NULL, WTR_SOURCE_STRING, NULL);
        half[i] = wtr_create_kernel(devices[i], SOURCE, "partial", NULL, WTR_SOURCE_STRING, NULL);
        plain[i] = wtr_create_kernel(devices[i], SOURCE, "plain", NULL, WTR_SOURCE_STRING, NULL);
        own[i] = wtr_create_buffer(devices[i], WTR_MEM_READ_WRITE, 64, NULL);
    }
    const wtr_heap_options proxy = {.size = sizeof proxy, .force_proxy = 1};
    bad_arguments();
    parts_are_buffers();
    kernels_talk(NULL);
    kernels_talk(&proxy);
    threads_take_turns();
    bad_launches();
    waits_end(NULL);
    waits_end(&proxy);
    resets_help_after_timeouts(NULL);
    resets_help_after_timeouts(&proxy);
    for (unsigned i = 0; i < PES; i++) {
        wtr_release_kernel(ring[i], NULL, NULL);
        wtr_release_kernel(lonely[i], NULL, NULL);
        wtr_release_kernel(half[i], NULL, NULL);
        wtr_release_kernel(plain[i], NULL, NULL);
        wtr_release_buffer(own[i], NULL, NULL);
    }
    wtr_release_devices();
    if (failures == 0) printf("heaps: as promised\n");
    return failures > 0;
}
