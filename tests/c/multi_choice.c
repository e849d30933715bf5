/* The devices that a program without queries sees: the query in PENSTOCK_DEVICES decides. A process
 * opens the pool only once, so each query runs in its own process: this program again, which then
 * only counts devices. */
#include "harness.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNTER_VARIABLE "PENSTOCK_TEST_COUNTS"
/* Exit status of the counting process: the number of platforms, and of the first one's devices. */
#define SEEN(platforms, devices) ((platforms) * 16 + (int)(devices))
#define NO_PLATFORM SEEN(0, 0)

/* Runs before main. */
__attribute__((constructor)) static void count_if_asked(void) {
    if (!getenv(COUNTER_VARIABLE)) return;
    cl_platform_id first;
    cl_uint platforms = 0, count = 0;
    if (clGetPlatformIDs(1, &first, &platforms) != CL_SUCCESS || platforms == 0) _exit(NO_PLATFORM);
    if (clGetDeviceIDs(first, CL_DEVICE_TYPE_ALL, 0, NULL, &count) != CL_SUCCESS) count = 0;
    _exit(SEEN((int)platforms, count));
}

/* Returns the exit status of a program with this query, and its messages on request. */
static int seen(const char *query, char *messages, size_t messages_size) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        setenv(COUNTER_VARIABLE, "1", 1);
        setenv("PENSTOCK_DEVICES", query, 1);
        setenv("PENSTOCK_LOG", "1", 1);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        execl("/proc/self/exe", "counter", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    size_t length = 0;
    ssize_t got;
    char rest[256];
    while ((got = messages && length + 1 < messages_size
                      ? read(ends[0], messages + length, messages_size - 1 - length)
                      : read(ends[0], rest, sizeof rest)) > 0)
        if (messages && length + 1 < messages_size) length += (size_t)got;
    if (messages) messages[length] = 0;
    close(ends[0]);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void need_a_pool(void) {
    if (!on_penstock()) test_skip("needs a pool of devices");
}

TEST(a_program_sees_what_the_query_selects) {
    need_a_pool();
    CHECK(seen("", NULL, 0) == SEEN(1, device_count));
    CHECK(seen("SELECT ALL", NULL, 0) == SEEN(1, device_count));
    CHECK(seen("SELECT TOP 1 ORDER BY global_memory DESC", NULL, 0) == SEEN(1, 1));
    CHECK(seen("SELECT POS 1 FROM NODE 0", NULL, 0) == SEEN(1, 1));
    cl_uint cpus = 0;
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_CPU, 0, NULL, &cpus));
    CHECK(seen("SELECT WHERE type = cpu", NULL, 0) == SEEN(1, cpus));
}

TEST(a_node_without_a_selected_device_is_no_platform) {
    need_a_pool();
    setenv("PENSTOCK_PLATFORMS", "node", 1);
    int first = seen("SELECT FROM NODE 0", NULL, 0),
        one = seen("SELECT TOP 1 ORDER BY rank DESC", NULL, 0);
    unsetenv("PENSTOCK_PLATFORMS");
    CHECK(first / 16 == 1 && first % 16 >= 1 && first % 16 <= (int)device_count);
    CHECK(one == SEEN(1, 1));
}

TEST(no_device_is_no_platform_and_said) {
    need_a_pool();
    char messages[512], expected[128];
    CHECK(seen("SELECT WHERE load > 1000", messages, sizeof messages) == NO_PLATFORM);
    snprintf(expected, sizeof expected,
             "penstock: PENSTOCK_DEVICES selects none of the pool's %u devices\n", device_count);
    CHECK(strcmp(messages, expected) == 0);
}

TEST(a_wrong_query_is_told_in_one_line) {
    need_a_pool();
    char messages[512];
    CHECK(seen("SELECT WHERE typ = gpu", messages, sizeof messages) == NO_PLATFORM);
    CHECK(
        strcmp(
            messages,
            "penstock: variable PENSTOCK_DEVICES: there is no attribute `typ`, at line 1, character 14; "
            "did you mean `type`?\n") == 0);
}
