/* What events promise: a command that waits for another finds what that one made, whatever the
 * driver could start early.
 *
 *   order [ROUNDS]   with two devices at least; prints what fails, and returns 1
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wtr_ext.h>

#define COUNT ((size_t)1 << 14)
#define BYTES (COUNT * sizeof(uint32_t))

/* Slow, so that a command that does not wait comes too early. Of a value v it makes v + 1. */
static const char *const SOURCE =
    "kernel void slow(global uint *data, const uint rounds) {\n"
    "    const size_t i = get_global_id(0);\n"
    "    uint x = i;\n"
    "    for (uint k = 0; k < rounds; k++) x = x * 1664525u + 1013904223u;\n"
    "    data[i] += x == 0x12345678u ? 2 : 1;\n"
    "}\n";

static const uint32_t SLOW = 2000;
static wtr_device *devices[2];
static uint32_t host[COUNT], other[COUNT], third[COUNT];
static int failures;

static void check(bool right, const char *what) {
    if (right) return;
    printf("order: not so: %s\n", what);
    failures++;
}

static bool all_are(const uint32_t *values, uint32_t wanted) {
    for (size_t i = 0; i < COUNT; i++)
        if (values[i] != wanted) return false;
    return true;
}

static void fill(uint32_t *values, uint32_t value) {
    for (size_t i = 0; i < COUNT; i++) values[i] = value;
}

/* One buffer and the slow kernel on one device; `last` is the event of the last command, which the
 * next one waits for. */
struct chain {
    wtr_kernel *kernel;
    wtr_buffer *buffer;
    wtr_event *last;
};

static struct chain begin(wtr_device *device) {
    struct chain chain = {0};
    wtr_event *made[2] = {0};
    chain.kernel = wtr_create_kernel(device, SOURCE, "slow", "", WTR_SOURCE_STRING, made + 0);
    chain.buffer = wtr_create_buffer(device, WTR_MEM_READ_WRITE, BYTES, made + 1);
    chain.last = wtr_merge_events(2, made + 0, made + 1);
    wtr_release_event_array(2, made);
    return chain;
}

static void run(struct chain *chain) {
    wtr_run_kernel(chain->kernel, 1, (size_t[]){COUNT}, NULL, &chain->last, &chain->last, 2,
                   WTR_BUF(chain->buffer), WTR_ARG(SLOW));
}

static void end(struct chain *chain) {
    wtr_release_buffer(chain->buffer, &chain->last, &chain->last);
    wtr_release_kernel(chain->kernel, &chain->last, &chain->last);
    wtr_wait_for_events(1, &chain->last);
    wtr_release_event(chain->last);
}

/* The event of a release has ended only when what the release waited for has. */
static void a_release_waits(void) {
    struct chain chain = begin(devices[0]);
    wtr_event *released = NULL;
    fill(host, 5);
    fill(other, 0);
    wtr_write_buffer(chain.buffer, BYTES, host, &chain.last, &chain.last);
    run(&chain);
    wtr_read_buffer(chain.buffer, BYTES, other, &chain.last, &chain.last);
    wtr_release_buffer(chain.buffer, &chain.last, &released);
    wtr_wait_for_events(1, &released);
    check(all_are(other, 6),
          "who waits for the release of a buffer has what was read from it before");
    check(wtr_event_status(chain.last) == 0,
          "what a release waited for has ended when the release has");
    wtr_release_kernel(chain.kernel, NULL, NULL);
    wtr_release_event_array(2, (wtr_event *[]){released, chain.last});
}

/* What one device's read brings to the host is what the write that waits for it takes to the other
 * device. */
static void a_write_takes_what_a_read_brought(void) {
    struct chain from = begin(devices[0]), to = begin(devices[1]);
    fill(host, 10);
    fill(other, 0);
    wtr_write_buffer(from.buffer, BYTES, host, &from.last, &from.last);
    run(&from);
    wtr_read_buffer(from.buffer, BYTES, other, &from.last, &from.last);
    wtr_event *both = wtr_merge_events(2, &from.last, &to.last);
    wtr_write_buffer(to.buffer, BYTES, other, &both, &to.last);
    run(&to);
    memset(third, 0, BYTES);
    wtr_read_buffer(to.buffer, BYTES, third, &to.last, &to.last);
    end(&to);
    check(all_are(other, 11), "a read brings what the kernel before it made");
    check(all_are(third, 12), "a write takes what the read before it brought");
    end(&from);
    wtr_release_event(both);
}

/* Steps that are read into the same memory, one after the other: the last one stays. */
static void later_reads_win(void) {
    struct chain chain = begin(devices[0]);
    fill(host, 0);
    wtr_write_buffer(chain.buffer, BYTES, host, &chain.last, &chain.last);
    for (int step = 0; step < 4; step++) {
        run(&chain);
        wtr_read_buffer(chain.buffer, BYTES, other, &chain.last, &chain.last);
    }
    end(&chain);
    check(all_are(other, 4), "of two reads into the same memory the later one stays");
}

/* Data goes round: device to device by copies, each after the kernel before. */
static void a_copy_waits(void) {
    struct chain chains[2] = {begin(devices[0]), begin(devices[1])};
    fill(host, 100);
    wtr_write_buffer(chains[0].buffer, BYTES, host, &chains[0].last, &chains[0].last);
    for (int step = 0; step < 4; step++) {
        struct chain *from = chains + step % 2, *to = chains + (step + 1) % 2;
        run(from);
        wtr_event *both = wtr_merge_events(2, &from->last, &to->last);
        wtr_copy_buffer(from->buffer, 0, to->buffer, 0, BYTES, &both, &to->last);
        /* The next kernel of `from` must not start before the copy from its buffer has ended. */
        wtr_event *copied = wtr_merge_events(2, &from->last, &to->last);
        wtr_release_event_array(2, (wtr_event *[]){from->last, both});
        from->last = copied;
    }
    memset(other, 0, BYTES);
    wtr_read_buffer(chains[0].buffer, BYTES, other, &chains[0].last, &chains[0].last);
    end(chains + 0);
    end(chains + 1);
    check(all_are(other, 104),
          "a copy takes what the kernel before it made, and the kernel after it what it brought");
}

/* Without an event, a call returns when its command has ended. */
static void calls_without_an_event_block(void) {
    struct chain chain = begin(devices[1]);
    fill(host, 7);
    memset(other, 0, BYTES);
    wtr_write_buffer(chain.buffer, BYTES, host, &chain.last, NULL);
    fill(host, 0);
    wtr_run_kernel(chain.kernel, 1, (size_t[]){COUNT}, NULL, NULL, NULL, 2, WTR_BUF(chain.buffer),
                   WTR_ARG(SLOW));
    wtr_read_buffer(chain.buffer, BYTES, other, NULL, NULL);
    check(all_are(other, 8), "calls without an event happen one after the other");
    end(&chain);
}

int main(int argc, char **argv) {
    const int rounds = argc > 1 ? atoi(argv[1]) : 3;
    wtr_init_devices("SELECT ALL");
    for (int i = 0; i < 2; i++) {
        devices[i] = wtr_get_device("SELECT POS %d", i + 1);
        if (!devices[i]) {
            printf("order: wants two devices\n");
            return 1;
        }
    }
    for (int round = 0; round < rounds; round++) {
        a_release_waits();
        a_write_takes_what_a_read_brought();
        later_reads_win();
        a_copy_waits();
        calls_without_an_event_block();
    }
    wtr_release_devices();
    printf("order: %d rounds, %d failed\n", rounds, failures);
    return failures != 0;
}
