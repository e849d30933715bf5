/* The limits of this machine, to compare the benchmark's figures with: memcpy, raw sockets, waking
 * a thread. Prints one JSON object. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static _Noreturn void fail(const char *what) {
    perror(what);
    exit(1);
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *samples, size_t count) {
    qsort(samples, count, sizeof *samples, compare);
    return samples[count / 2];
}

static void row(const char *name, const char *unit, double value) {
    static bool first = true;
    printf("%s\n    {\"name\": \"%s\", \"unit\": \"%s\", \"value\": %.9g}", first ? "" : ",", name,
           unit, value);
    first = false;
}

static void measure_memcpy(const char *name, size_t size, int rounds) {
    double samples[64];
    unsigned char *from = aligned_alloc(4096, size), *to = aligned_alloc(4096, size);
    if (!from || !to) fail("memory");
    memset(from, 1, size);
    memset(to, 2, size);
    for (int i = 0; i < rounds; i++) {
        const double start_s = seconds();
        for (size_t done = 0; done < (64u << 20); done += size) {
            memcpy(to, from, size);
            __asm__ volatile("" : : "r"(to) : "memory");
        }
        const size_t bytes = size > (64u << 20) ? size : ((64u << 20) + size - 1) / size * size;
        samples[i] = (double)bytes / (seconds() - start_s);
    }
    row(name, "B/s", median(samples, (size_t)rounds));
    free(from);
    free(to);
}

static bool paces(int socket, const char *congestion) {
    return !congestion || setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, congestion,
                                     (socklen_t)strlen(congestion)) == 0;
}

/* Connects two sockets. `congestion` is TCP's congestion control; NULL selects the system's
 * default. Returns `false` if the system does not have it. */
static bool pair(bool tcp, const char *congestion, int ends[2]) {
    const int one = 1;
    if (!tcp) {
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) fail("socketpair");
        return true;
    }
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    /* Set before the connection exists: a connection that starts with BBR keeps its timers under
     * any other choice. The accepted end inherits the choice. */
    bool paced = paces(listener, congestion);
    if (bind(listener, (struct sockaddr *)&address, length) != 0 || listen(listener, 1) != 0)
        fail("listen");
    getsockname(listener, (struct sockaddr *)&address, &length);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    paced &= paces(ends[0], congestion);
    if (connect(ends[0], (struct sockaddr *)&address, length) != 0) fail("connect");
    ends[1] = accept(listener, NULL, NULL);
    close(listener);
    for (int i = 0; i < 2; i++) setsockopt(ends[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return paced;
}

static void whole(int end, void *bytes, size_t size, bool sends) {
    for (size_t done = 0; done < size;) {
        const ssize_t step = sends ? send(end, (char *)bytes + done, size - done, MSG_NOSIGNAL)
                                   : recv(end, (char *)bytes + done, size - done, 0);
        if (step <= 0) fail(sends ? "send" : "recv");
        done += (size_t)step;
    }
}

enum { PINGS = 5000, STREAM_ROUNDS = 6 };
#define STREAM_BYTES ((size_t)256 << 20)
#define PIECE ((size_t)16 << 20)

static void *answers(void *argument) {
    const int end = *(int *)argument;
    char bytes[64];
    unsigned char *sink = malloc(PIECE);
    for (int i = 0; i < PINGS; i++) {
        whole(end, bytes, sizeof bytes, false);
        whole(end, bytes, sizeof bytes, true);
    }
    for (int round = 0; round < STREAM_ROUNDS; round++) {
        for (size_t done = 0; done < STREAM_BYTES; done += PIECE) whole(end, sink, PIECE, false);
        whole(end, bytes, 1, true);
    }
    free(sink);
    return NULL;
}

static void measure_sockets(const char *kind, bool tcp) {
    static double samples[PINGS];
    int ends[2];
    pthread_t thread;
    char bytes[64] = {0}, name[64];
    unsigned char *source = malloc(PIECE);
    memset(source, 3, PIECE);
    pair(tcp, NULL, ends);
    pthread_create(&thread, NULL, answers, &ends[1]);
    for (int i = 0; i < PINGS; i++) {
        const double start_s = seconds();
        whole(ends[0], bytes, sizeof bytes, true);
        whole(ends[0], bytes, sizeof bytes, false);
        samples[i] = seconds() - start_s;
    }
    snprintf(name, sizeof name, "%s: 64 B there and back", kind);
    row(name, "s", median(samples, PINGS));
    for (int round = 0; round < STREAM_ROUNDS; round++) {
        const double start_s = seconds();
        for (size_t done = 0; done < STREAM_BYTES; done += PIECE)
            whole(ends[0], source, PIECE, true);
        whole(ends[0], bytes, 1, false);
        samples[round] = (double)STREAM_BYTES / (seconds() - start_s);
    }
    snprintf(name, sizeof name, "%s: stream", kind);
    row(name, "B/s", median(samples, STREAM_ROUNDS));
    pthread_join(thread, NULL);
    close(ends[0]);
    close(ends[1]);
    free(source);
}

/* One message of 16 MiB, and one byte back when it has arrived; then the reverse. That is what a
 * plain program gets for one blocking transfer in each direction. It is measured with the system's
 * default and with Reno, which never waits for a timer before it sends; the better one is the
 * limit. */
enum { MESSAGE_ROUNDS = 40 };

static void *messages(void *argument) {
    const int end = *(int *)argument;
    char byte = 0;
    unsigned char *bytes = malloc(PIECE);
    if (!bytes) fail("memory");
    memset(bytes, 4, PIECE);
    for (int round = 0; round < MESSAGE_ROUNDS; round++) {
        whole(end, bytes, PIECE, false);
        whole(end, &byte, 1, true);
        whole(end, &byte, 1, false);
        whole(end, bytes, PIECE, true);
    }
    free(bytes);
    return NULL;
}

static void measure_messages(const char *kind, const char *congestion) {
    double there[MESSAGE_ROUNDS], back[MESSAGE_ROUNDS];
    int ends[2];
    pthread_t thread;
    char byte = 0, name[64];
    unsigned char *bytes = malloc(PIECE);
    if (!bytes) fail("memory");
    memset(bytes, 3, PIECE);
    if (pair(true, congestion, ends)) {
        pthread_create(&thread, NULL, messages, &ends[1]);
        for (int round = 0; round < MESSAGE_ROUNDS; round++) {
            const double start_s = seconds();
            whole(ends[0], bytes, PIECE, true);
            whole(ends[0], &byte, 1, false);
            const double answered_s = seconds();
            whole(ends[0], &byte, 1, true);
            whole(ends[0], bytes, PIECE, false);
            there[round] = (double)PIECE / (answered_s - start_s);
            back[round] = (double)PIECE / (seconds() - answered_s);
        }
        pthread_join(thread, NULL);
        snprintf(name, sizeof name, "%s: 16 MiB there, 1 B back", kind);
        row(name, "B/s", median(there, MESSAGE_ROUNDS));
        snprintf(name, sizeof name, "%s: 1 B there, 16 MiB back", kind);
        row(name, "B/s", median(back, MESSAGE_ROUNDS));
    }
    close(ends[0]);
    close(ends[1]);
    free(bytes);
}

/* A thread that sleeps on one core and is woken from another: the cost of any answer if no thread
 * spins. */
struct sleeper {
    int pipe[2];
    double woken_s[200];
};

static void on_core(int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

static void *sleeps(void *argument) {
    struct sleeper *sleeper = argument;
    char byte;
    on_core(1);
    for (int i = 0; i < 200; i++) {
        if (read(sleeper->pipe[0], &byte, 1) != 1) fail("read");
        sleeper->woken_s[i] = seconds();
    }
    return NULL;
}

static void measure_wake_up(void) {
    struct sleeper sleeper;
    double samples[200];
    pthread_t thread;
    cpu_set_t before;
    if (sysconf(_SC_NPROCESSORS_ONLN) < 2) return;
    pthread_getaffinity_np(pthread_self(), sizeof before, &before);
    if (pipe(sleeper.pipe) != 0) fail("pipe");
    pthread_create(&thread, NULL, sleeps, &sleeper);
    on_core(0);
    for (int i = 0; i < 200; i++) {
        usleep(1000);
        samples[i] = seconds();
        if (write(sleeper.pipe[1], "x", 1) != 1) fail("write");
    }
    pthread_join(thread, NULL);
    for (int i = 0; i < 200; i++) samples[i] = sleeper.woken_s[i] - samples[i];
    row("wake a sleeping core", "s", median(samples, 200));
    pthread_setaffinity_np(pthread_self(), sizeof before, &before);
    close(sleeper.pipe[0]);
    close(sleeper.pipe[1]);
}

int main(void) {
    printf("{\n  \"rows\": [");
    measure_memcpy("memcpy 64 KiB", 64 << 10, 9);
    measure_memcpy("memcpy 1 MiB", 1 << 20, 9);
    measure_memcpy("memcpy 16 MiB", 16 << 20, 9);
    measure_memcpy("memcpy 256 MiB", (size_t)256 << 20, 5);
    measure_wake_up();
    measure_sockets("Unix socket", false);
    measure_sockets("TCP loopback", true);
    measure_messages("TCP loopback", NULL);
    measure_messages("TCP loopback, Reno", "reno");
    printf("\n  ]\n}\n");
    return 0;
}
