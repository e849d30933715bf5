/* Devices of two nodes as devices of one program: what a query sees, copies from node to node,
 * order between nodes, large writes that have to wait, errors; and, with the argument `loss`, what
 * happens when the second node's daemon ends.
 *
 *   nodes            prints what fails, and returns 1
 *   nodes together   the same with two devices of the first node
 *   nodes loss       prints `ready`, waits for a line on standard input (then the daemon of the
 * second node is gone), and goes on
 *
 * NODES_HOST_0 and NODES_HOST_1 are the nodes' host names, if they are others than this one's.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <wtr_ext.h>

static const char *const SOURCE =
    "kernel void follow(global uint *data, uint add) { size_t i = get_global_id(0); data[i] = data[i] * 3 + add + (uint)i; }\n"
    "kernel void busy(global uint *data, uint rounds) {\n"
    "    size_t i = get_global_id(0); uint x = data[i];\n"
    "    for (uint r = 0; r < rounds; r++) x = x * 1664525u + 1013904223u;\n"
    "    data[i] = x;\n"
    "}\n";

static int failures;
static int told;
static char told_node[256], told_message[1024], told_log[1024];
static int told_code;

#define CHECK(what)                                           \
    do {                                                      \
        if (!(what)) {                                        \
            printf("line %d: not so: %s\n", __LINE__, #what); \
            failures++;                                       \
        }                                                     \
    } while (0)

static void hear(const wtr_error *error, void *user) {
    (void)user;
    told++;
    told_code = error->code;
    snprintf(told_node, sizeof told_node, "%s", error->node);
    snprintf(told_message, sizeof told_message, "%s", error->message);
    snprintf(told_log, sizeof told_log, "%s", error->log);
}

static const char *host_of(int node) {
    static char own[256];
    const char *host = getenv(node == 0 ? "NODES_HOST_0" : "NODES_HOST_1");
    gethostname(own, sizeof own - 1);
    return host ? host : own;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void nodes_are_told_apart(wtr_device *device[2]) {
    for (int i = 0; i < 2; i++) {
        char rank[32] = "", host[256] = "", index[32] = "";
        wtr_device_attribute(device[i], "rank", rank, sizeof rank);
        wtr_device_attribute(device[i], "hostname", host, sizeof host);
        wtr_device_attribute(device[i], "device_index", index, sizeof index);
        CHECK(atoi(rank) == i);
        CHECK(strcmp(host, host_of(i)) == 0);
        CHECK(strcmp(index, "0") == 0);
        if (strcmp(host_of(0), host_of(1)) != 0)
            CHECK(wtr_get_device("SELECT POS 1 FROM NODE '%s'", host_of(i)) == device[i]);
    }
    CHECK(wtr_get_device("SELECT POS 1 FROM NODE 2") == NULL);
    CHECK(wtr_get_device("SELECT POS 1 FROM NODE 1 WHERE rank = 0") == NULL);
    CHECK(wtr_get_device("SELECT POS 1 WHERE rank = 1") == device[1]);
}

/* Data that go from node to node and change on each: no wait of the host in between. */
static void copies_go_from_node_to_node_in_order(wtr_device *device[2], size_t items,
                                                 unsigned rounds) {
    const size_t bytes = items * sizeof(unsigned);
    unsigned *data = malloc(bytes), *back = malloc(bytes);
    for (size_t i = 0; i < items; i++) data[i] = back[i] = (unsigned)(i * 2654435761u);
    wtr_buffer *buffer[2];
    wtr_kernel *kernel[2];
    for (int i = 0; i < 2; i++) {
        buffer[i] = wtr_create_buffer(device[i], WTR_MEM_READ_WRITE, bytes, NULL);
        kernel[i] = wtr_create_kernel(device[i], SOURCE, "follow", "", WTR_SOURCE_STRING, NULL);
    }
    wtr_event *last = NULL;
    wtr_write_buffer(buffer[0], bytes, data, NULL, &last);
    for (unsigned round = 0; round < rounds; round++) {
        const unsigned at = round % 2;
        wtr_event *ran = NULL, *copied = NULL;
        wtr_run_kernel(kernel[at], 1, (size_t[]){items}, NULL, &last, &ran, 2, WTR_BUF(buffer[at]),
                       WTR_ARG(round));
        wtr_copy_buffer(buffer[at], 0, buffer[1 - at], 0, bytes, &ran, &copied);
        wtr_release_event(last);
        wtr_release_event(ran);
        last = copied;
    }
    wtr_event *read = NULL;
    memset(back, 0, bytes);
    wtr_read_buffer(buffer[rounds % 2], bytes, back, &last, &read);
    wtr_wait_for_events(1, &read);
    CHECK(wtr_event_status(read) == 0);
    size_t wrong = 0;
    for (size_t i = 0; i < items; i++) {
        unsigned x = data[i];
        for (unsigned round = 0; round < rounds; round++) x = x * 3 + round + (unsigned)i;
        wrong += x != back[i];
    }
    CHECK(wrong == 0);
    wtr_release_event(last);
    wtr_release_event(read);
    for (int i = 0; i < 2; i++) {
        wtr_release_buffer(buffer[i], NULL, NULL);
        wtr_release_kernel(kernel[i], NULL, NULL);
    }
    free(data);
    free(back);
}

/* What a kernel prints comes where the program's own words are. */
static void what_kernels_print_is_in_order(wtr_device *device[2]) {
    for (int i = 0; i < 2; i++) {
        const char *source =
            "kernel void say(int node) { printf(\"  a kernel on node %d\\n\", node); }";
        wtr_kernel *kernel =
            wtr_create_kernel(device[i], source, "say", "", WTR_SOURCE_STRING, NULL);
        printf("  before the kernel on node %d\n", i);
        wtr_run_kernel(kernel, 1, (size_t[]){1}, NULL, NULL, NULL, 1, WTR_ARG(i));
        wtr_release_kernel(kernel, NULL, NULL);
    }
}

/* A part of a buffer to another place of one on the other node. */
static void a_part_is_copied_and_the_rest_stays(wtr_device *device[2]) {
    unsigned char from[5000], to[9000], back[9000];
    for (size_t i = 0; i < sizeof from; i++) from[i] = (unsigned char)(i * 13);
    memset(to, 0xEE, sizeof to);
    wtr_buffer *source = wtr_create_buffer(device[0], WTR_MEM_READ_WRITE, sizeof from, NULL);
    wtr_buffer *target = wtr_create_buffer(device[1], WTR_MEM_READ_WRITE, sizeof to, NULL);
    wtr_write_buffer(source, sizeof from, from, NULL, NULL);
    wtr_write_buffer(target, sizeof to, to, NULL, NULL);
    wtr_copy_buffer(source, 1001, target, 4003, 3000, NULL, NULL);
    wtr_read_buffer(target, sizeof back, back, NULL, NULL);
    memcpy(to + 4003, from + 1001, 3000);
    CHECK(memcmp(to, back, sizeof to) == 0);
    wtr_read_buffer_at(target, 4003, 3000, back, NULL, NULL);
    CHECK(memcmp(back, from + 1001, 3000) == 0);
    wtr_release_buffer(source, NULL, NULL);
    wtr_release_buffer(target, NULL, NULL);
}

/* Together more than is sent ahead. Calls return at once, and other commands do not wait behind
 * them. */
static void large_writes_wait_where_they_hold_nobody_up(wtr_device *device[2]) {
    enum { WRITES = 5 };
    const size_t bytes = (size_t)72 << 20;
    unsigned char *data = malloc(bytes), *back = malloc(bytes);
    for (size_t i = 0; i < bytes; i++) data[i] = (unsigned char)(i ^ i >> 8 ^ i >> 16);
    const unsigned rounds = 200000000;
    wtr_buffer *held = wtr_create_buffer(device[1], WTR_MEM_READ_WRITE, 64, NULL);
    wtr_kernel *busy = wtr_create_kernel(device[1], SOURCE, "busy", "", WTR_SOURCE_STRING, NULL);
    wtr_buffer *buffer[WRITES];
    wtr_event *ran = NULL, *written[WRITES] = {0};
    for (int i = 0; i < WRITES; i++)
        buffer[i] = wtr_create_buffer(device[1], WTR_MEM_READ_WRITE, bytes, NULL);
    const double start = seconds();
    wtr_run_kernel(busy, 1, (size_t[]){4}, NULL, NULL, &ran, 2, WTR_BUF(held), WTR_ARG(rounds));
    for (int i = 0; i < WRITES; i++) wtr_write_buffer(buffer[i], bytes, data, &ran, written + i);
    const double issued = seconds() - start;
    /* The other node answers meanwhile. */
    unsigned char some[64] = {1, 2, 3}, same[64] = {0};
    wtr_buffer *other = wtr_create_buffer(device[0], WTR_MEM_READ_WRITE, sizeof some, NULL);
    wtr_write_buffer(other, sizeof some, some, NULL, NULL);
    wtr_read_buffer(other, sizeof same, same, NULL, NULL);
    const double answered = seconds() - start;
    const int before = wtr_event_status(written[WRITES - 1]);
    CHECK(memcmp(some, same, sizeof some) == 0);
    for (int i = 0; i < WRITES; i++) wtr_wait_for_events(1, written + i);
    const double all = seconds() - start;
    for (int i = 0; i < WRITES; i++) {
        memset(back, 0, bytes);
        wtr_read_buffer(buffer[i], bytes, back, NULL, NULL);
        CHECK(memcmp(data, back, bytes) == 0);
    }
    printf(
        "  %d writes of %zu MiB behind a kernel: calls %.3f s, the other node answered after %.3f s%s, all there after %.3f s\n",
        WRITES, bytes >> 20, issued, answered, before == 1 ? " (not all written yet)" : "", all);
    CHECK(before == 1);
    for (int i = 0; i < WRITES; i++) {
        wtr_release_buffer(buffer[i], NULL, NULL);
        wtr_release_event(written[i]);
    }
    wtr_release_event(ran);
    wtr_release_buffer(held, NULL, NULL);
    wtr_release_buffer(other, NULL, NULL);
    wtr_release_kernel(busy, NULL, NULL);
    free(data);
    free(back);
}

/* The later of two ordered reads into the same memory is the one whose bytes stay, though the
 * earlier one has far more to bring. */
static void reads_into_one_place_keep_their_order(wtr_device *device[2]) {
    const size_t bytes = (size_t)16 << 20, few = 4096;
    unsigned char *data = malloc(bytes), *back = malloc(bytes);
    wtr_buffer *buffer[2];
    for (int i = 0; i < 2; i++) {
        buffer[i] = wtr_create_buffer(device[i], WTR_MEM_READ_WRITE, bytes, NULL);
        memset(data, i + 1, bytes);
        wtr_write_buffer(buffer[i], bytes, data, NULL, NULL);
    }
    for (int round = 0; round < 4; round++) {
        const int large = round % 2;
        wtr_event *first = NULL, *second = NULL;
        wtr_read_buffer(buffer[large], bytes, back, NULL, &first);
        wtr_read_buffer(buffer[1 - large], few, back + bytes - few, &first, &second);
        wtr_wait_for_events(1, &second);
        size_t wrong = 0;
        for (size_t i = 0; i < bytes; i++)
            wrong += back[i] != (i < bytes - few ? large + 1 : 2 - large);
        CHECK(wrong == 0);
        wtr_release_event(first);
        wtr_release_event(second);
    }
    for (int i = 0; i < 2; i++) wtr_release_buffer(buffer[i], NULL, NULL);
    free(data);
    free(back);
}

static void many_commands_keep_their_order(wtr_device *device[2]) {
    enum { COMMANDS = 2000 };
    wtr_buffer *buffer[2];
    wtr_kernel *kernel[2];
    wtr_event *last[2] = {0};
    unsigned data[2][16] = {{0}}, right[16] = {0};
    for (int i = 0; i < 2; i++) {
        buffer[i] = wtr_create_buffer(device[i], WTR_MEM_READ_WRITE, sizeof data[i], NULL);
        kernel[i] = wtr_create_kernel(device[i], SOURCE, "follow", "", WTR_SOURCE_STRING, NULL);
        wtr_write_buffer(buffer[i], sizeof data[i], data[i], NULL, last + i);
    }
    const double start = seconds();
    for (unsigned c = 0; c < COMMANDS; c++)
        for (int i = 0; i < 2; i++) {
            wtr_event *next = NULL;
            wtr_run_kernel(kernel[i], 1, (size_t[]){16}, NULL, last + i, &next, 2,
                           WTR_BUF(buffer[i]), WTR_ARG(c));
            wtr_release_event(last[i]);
            last[i] = next;
        }
    for (int i = 0; i < 2; i++) wtr_wait_for_events(1, last + i);
    printf("  %d kernels in two chains: %.1f us each\n", 2 * COMMANDS,
           (seconds() - start) / (2 * COMMANDS) * 1e6);
    for (unsigned c = 0; c < COMMANDS; c++)
        for (unsigned i = 0; i < 16; i++) right[i] = right[i] * 3 + c + i;
    for (int i = 0; i < 2; i++) {
        wtr_read_buffer(buffer[i], sizeof data[i], data[i], last + i, NULL);
        CHECK(memcmp(data[i], right, sizeof right) == 0);
        wtr_release_event(last[i]);
        wtr_release_buffer(buffer[i], NULL, NULL);
        wtr_release_kernel(kernel[i], NULL, NULL);
    }
}

static void errors_say_what_and_where(wtr_device *device[2]) {
    wtr_event *made = NULL;
    told = 0;
    wtr_kernel *kernel =
        wtr_create_kernel(device[1], "kernel void broken(global int *a) { a[0] = unknown; }",
                          "broken", "", WTR_SOURCE_STRING, &made);
    wtr_wait_for_events(1, &made);
    CHECK(wtr_event_status(made) == -11);
    CHECK(told == 1 && strstr(told_log, "unknown"));
    wtr_release_event(made);
    (void)kernel;
    made = NULL;
    told = 0;
    wtr_create_kernel(device[1], SOURCE, "nothing", "", WTR_SOURCE_STRING, &made);
    wtr_wait_for_events(1, &made);
    CHECK(wtr_event_status(made) == -46);
    CHECK(told == 1 && strstr(told_message, "it has: ") && strstr(told_message, "follow"));
    wtr_release_event(made);
    /* What comes after a command that could not even be sent does not run. */
    told = 0;
    wtr_event *refused = NULL, *later = NULL, *ready = NULL;
    unsigned number = 5;
    wtr_buffer *small = wtr_create_buffer(device[1], WTR_MEM_READ_WRITE, 4, &ready);
    wtr_kernel *follow =
        wtr_create_kernel(device[1], SOURCE, "follow", "", WTR_SOURCE_STRING, NULL);
    wtr_run_kernel(follow, 1, (size_t[]){1}, NULL, &ready, &refused, 1, WTR_BUF(small));
    wtr_read_buffer(small, sizeof number, &number, &refused, &later);
    wtr_wait_for_events(1, &later);
    CHECK(wtr_event_status(refused) == -30 && wtr_event_status(later) == -30);
    CHECK(number == 5);
    CHECK(told == 1 && strstr(told_message, "takes 2 arguments, 1 were given"));
    wtr_release_event_array(3, (wtr_event *[]){refused, later, ready});
    wtr_release_buffer(small, NULL, NULL);
    wtr_release_kernel(follow, NULL, NULL);
    /* What is too large is the creation's own error, and what comes after it carries that. */
    made = NULL;
    told = 0;
    wtr_event *written = NULL;
    char byte = 1;
    wtr_buffer *large = wtr_create_buffer(device[1], WTR_MEM_READ_WRITE, (size_t)1 << 46, &made);
    wtr_write_buffer(large, 1, &byte, &made, &written);
    wtr_wait_for_events(1, &written);
    CHECK(wtr_event_status(made) == -61 || wtr_event_status(made) == -4);
    CHECK(wtr_event_status(written) == wtr_event_status(made));
    CHECK(told == 1 && strstr(told_message, "create a buffer"));
    wtr_release_event(made);
    wtr_release_event(written);
    /* Nothing of that keeps the device from working. */
    copies_go_from_node_to_node_in_order(device, 100, 2);
}

/* What a lost node had fails, in time and with its name; the other one works on. */
static void a_lost_node_fails_its_commands_and_no_others(wtr_device *device[2]) {
    const size_t bytes = 1 << 20;
    unsigned *data = calloc(1, bytes);
    wtr_buffer *buffer[2];
    wtr_kernel *kernel[2];
    for (int i = 0; i < 2; i++) {
        buffer[i] = wtr_create_buffer(device[i], WTR_MEM_READ_WRITE, bytes, NULL);
        kernel[i] = wtr_create_kernel(device[i], SOURCE, "busy", "", WTR_SOURCE_STRING, NULL);
        wtr_write_buffer(buffer[i], bytes, data, NULL, NULL);
    }
    /* Under way when the node is lost: some minutes of work, a copy to the other node behind it, a
     * read behind that. */
    const unsigned rounds = 4000000000u;
    wtr_event *ran = NULL, *copied = NULL, *read = NULL, *after = NULL;
    for (int i = 0; i < 20; i++) {
        wtr_event *next = NULL;
        wtr_run_kernel(kernel[1], 1, (size_t[]){64}, NULL, &ran, &next, 2, WTR_BUF(buffer[1]),
                       WTR_ARG(rounds));
        if (ran) wtr_release_event(ran);
        ran = next;
    }
    wtr_copy_buffer(buffer[1], 0, buffer[0], 0, bytes, &ran, &copied);
    wtr_read_buffer(buffer[0], bytes, data, &copied, &read);
    wtr_flush();
    char line[16];
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) exit(2);
    const double start = seconds();
    wtr_wait_for_events(3, &ran, &copied, &read);
    const double took = seconds() - start;
    printf("  the commands of the lost node ended after %.3f s: %s\n", took, told_message);
    CHECK(wtr_event_status(ran) == WTR_ENODE);
    CHECK(wtr_event_status(copied) == WTR_ENODE);
    CHECK(wtr_event_status(read) == WTR_ENODE);
    CHECK(strcmp(told_node, host_of(1)) == 0);
    CHECK(strstr(told_message, "rank 1") && strstr(told_message, "(unix:"));
    /* New commands there fail too, at once. */
    wtr_write_buffer(buffer[1], bytes, data, NULL, &after);
    wtr_wait_for_events(1, &after);
    CHECK(wtr_event_status(after) == WTR_ENODE);
    wtr_release_event(after);
    /* The first node works on, and can still build. */
    const unsigned few = 2;
    memset(data, 0, bytes);
    wtr_kernel *again =
        wtr_create_kernel(device[0], SOURCE, "busy", "-DAGAIN", WTR_SOURCE_STRING, NULL);
    wtr_write_buffer(buffer[0], bytes, data, NULL, NULL);
    wtr_run_kernel(again, 1, (size_t[]){16}, NULL, NULL, NULL, 2, WTR_BUF(buffer[0]), WTR_ARG(few));
    wtr_read_buffer(buffer[0], bytes, data, NULL, NULL);
    CHECK(data[0] == 1013904223u * 1664525u + 1013904223u);
    CHECK(data[16] == 0);
    CHECK(wtr_last_error() == NULL);
    wtr_release_kernel(again, NULL, NULL);
    for (int i = 0; i < 2; i++) {
        wtr_release_buffer(buffer[i], NULL, NULL);
        wtr_release_kernel(kernel[i], NULL, NULL);
    }
    wtr_release_event(ran);
    wtr_release_event(copied);
    wtr_release_event(read);
    free(data);
}

int main(int argc, char **argv) {
    wtr_set_error_handler(hear, NULL);
    /* Twice: a run leaves nothing behind that the next one minds. */
    const char *mode = argc > 1 ? argv[1] : "";
    const int together = strcmp(mode, "together") == 0;
    wtr_init_devices("SELECT ALL FROM NODE %d", !together);
    wtr_release_devices();
    wtr_init_devices("SELECT ALL");
    wtr_device *device[2] = {
        wtr_get_device("SELECT POS 1 FROM NODE 0"),
        wtr_get_device("SELECT POS %d FROM NODE %d", together ? 2 : 1, !together)};
    if (!device[0] || !device[1]) {
        puts("there are no two devices");
        return 1;
    }
    if (strcmp(mode, "loss") == 0) {
        a_lost_node_fails_its_commands_and_no_others(device);
    } else {
        told = 0;
        if (!together) nodes_are_told_apart(device);
        copies_go_from_node_to_node_in_order(device, 1000, 9);
        copies_go_from_node_to_node_in_order(device, 3 << 20, 6);
        a_part_is_copied_and_the_rest_stays(device);
        what_kernels_print_is_in_order(device);
        reads_into_one_place_keep_their_order(device);
        many_commands_keep_their_order(device);
        if (!together) large_writes_wait_where_they_hold_nobody_up(device);
        if (told > 0) printf("%d errors, the last one: %s\n", told, told_message);
        CHECK(told == 0);
        errors_say_what_and_where(device);
    }
    wtr_release_devices();
    if (failures) printf("%d failed\n", failures);
    return failures > 0;
}
