/* The floor of a device that another process or node serves. Preloaded into an OpenCL program on
 * the local driver, this library costs what such a device costs at least, and nothing else.
 *
 * FLOOR=tcp moves the bytes of each buffer transfer through a bare TCP connection within this
 * host, and makes each wait one round trip on it. One thread of this process serves the other
 * end. It receives straight into the device's memory, sends straight from it, and waits for the
 * driver itself. So each transfer is copied into the kernel and out of it, and nowhere else.
 * FLOOR=unix moves no bytes, because processes of one host can share the device's memory. Each
 * wait is two wake-ups: of a thread that waits for the driver, and of the program.
 *
 * Enqueues stay local calls in both cases and cost nothing. So no system that serves this device
 * to this program in that way can be much faster. Works with drivers whose devices compute in
 * host memory (PoCL, Intel's runtime for CPUs), and with programs of one thread that use in-order
 * queues, as LAMMPS does. Anything else ends the program with a message. */
#define _GNU_SOURCE
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BUFFERS_MAX 4096

enum kind { WRITE, READ, FINISH, EVENTS };

/* Both ends are in one process, so a request carries addresses. */
struct request {
    enum kind kind;
    char *device;
    size_t bytes;
    cl_command_queue queue;
    cl_uint count;
    const cl_event *events;
};

struct mapped {
    cl_mem buffer;
    char *address;
};

static int over_tcp, program_end = -1, device_end = -1;
/* What the two ends share with FLOOR=unix. */
static struct request shared_request;
static cl_int shared_status;
static sem_t asked_for, answered;
static struct mapped mapped[BUFFERS_MAX];
static int mapped_count;
static atomic_ulong writes_sent, writes_done;
static pthread_t user;

static void stop(const char *what) {
    fprintf(stderr, "floor: %s\n", what);
    _exit(70);
}

static void *loader_has(const char *name) {
    static void *loader;
    if (!loader) loader = dlopen("libOpenCL.so.1", RTLD_LAZY);
    void *found = loader ? dlsym(loader, name) : NULL;
    if (!found) stop(name);
    return found;
}

/* Processes that the program starts (of MPI) are none of this library's concern. */
__attribute__((constructor)) static void leave_children_alone(void) { unsetenv("LD_PRELOAD"); }

#define REAL(name)                             \
    ((__typeof__(&name))({                     \
        static void *found;                    \
        if (!found) found = loader_has(#name); \
        found;                                 \
    }))

static void send_all(int end, const void *from, size_t bytes) {
    for (const char *at = from; bytes;) {
        ssize_t sent = send(end, at, bytes, MSG_NOSIGNAL);
        if (sent <= 0) stop("cannot send");
        at += sent;
        bytes -= (size_t)sent;
    }
}

/* Returns 0 if the other end closed the connection. */
static int receive_all(int end, void *into, size_t bytes) {
    for (char *at = into; bytes;) {
        ssize_t got = recv(end, at, bytes, MSG_WAITALL);
        if (got <= 0) return 0;
        at += got;
        bytes -= (size_t)got;
    }
    return 1;
}

static cl_int wait_for_driver(const struct request *asked) {
    if (asked->kind == EVENTS) return REAL(clWaitForEvents)(asked->count, asked->events);
    return REAL(clFinish)(asked->queue);
}

static void *serve_shared(void *unused) {
    while (!sem_wait(&asked_for)) {
        shared_status = wait_for_driver(&shared_request);
        sem_post(&answered);
    }
    return unused;
}

static void *serve_tcp(void *unused) {
    struct request asked;
    while (receive_all(device_end, &asked, sizeof asked)) {
        if (asked.kind == WRITE) {
            if (!receive_all(device_end, asked.device, asked.bytes)) break;
            atomic_fetch_add(&writes_done, 1);
            continue;
        }
        cl_int status = wait_for_driver(&asked);
        send_all(device_end, &status, sizeof status);
        if (asked.kind == READ) send_all(device_end, asked.device, asked.bytes);
    }
    return unused;
}

static void connect_ends(void) {
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof place;
    program_end = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&place, length) || listen(listener, 1) ||
        getsockname(listener, (struct sockaddr *)&place, &length) ||
        connect(program_end, (struct sockaddr *)&place, length))
        stop("no TCP connection within this host");
    device_end = accept(listener, NULL, NULL);
    close(listener);
    setsockopt(program_end, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(device_end, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/* Returns whether transfers move their bytes. */
static int is_over_tcp(void) {
    static int started;
    if (!started) {
        const char *way = getenv("FLOOR");
        if (!way || (strcmp(way, "tcp") && strcmp(way, "unix"))) stop("FLOOR is tcp or unix");
        over_tcp = !strcmp(way, "tcp");
        if (over_tcp) connect_ends();
        if (sem_init(&asked_for, 0, 0) || sem_init(&answered, 0, 0)) stop("no semaphore");
        pthread_t server;
        user = pthread_self();
        if (pthread_create(&server, NULL, over_tcp ? serve_tcp : serve_shared, NULL))
            stop("no thread");
        pthread_detach(server);
        started = 1;
    }
    if (!pthread_equal(user, pthread_self())) stop("a second thread of the program uses OpenCL");
    return over_tcp;
}

static cl_int wait_for(const struct request *request, void *into) {
    cl_int status;
    if (!is_over_tcp()) {
        shared_request = *request;
        sem_post(&asked_for);
        while (sem_wait(&answered)) continue;
        return shared_status;
    }
    send_all(program_end, request, sizeof *request);
    if (!receive_all(program_end, &status, sizeof status)) stop("the connection ended");
    if (into && !receive_all(program_end, into, request->bytes)) stop("the connection ended");
    return status;
}

/* Commands start only after the bytes of all earlier writes are in the device's memory. The program
 * polls, because a wake-up would cost more than the end of the copy. */
static void written(void) {
    while (atomic_load(&writes_done) != atomic_load(&writes_sent)) __builtin_ia32_pause();
}

/* Returns where the buffer lies. It stays mapped: for these drivers that changes nothing. */
static char *address_of(cl_command_queue queue, cl_mem buffer) {
    for (int i = 0; i < mapped_count; i++)
        if (mapped[i].buffer == buffer) return mapped[i].address;
    if (mapped_count == BUFFERS_MAX) stop("too many buffers");
    size_t bytes;
    cl_mem_flags flags;
    cl_int status;
    if (clGetMemObjectInfo(buffer, CL_MEM_SIZE, sizeof bytes, &bytes, NULL) ||
        clGetMemObjectInfo(buffer, CL_MEM_FLAGS, sizeof flags, &flags, NULL))
        stop("a buffer has no size");
    cl_map_flags access = flags & CL_MEM_HOST_READ_ONLY ? CL_MAP_READ : CL_MAP_WRITE;
    char *address =
        clEnqueueMapBuffer(queue, buffer, CL_TRUE, access, 0, bytes, 0, NULL, NULL, &status);
    if (status != CL_SUCCESS) stop("a buffer cannot be mapped");
    mapped[mapped_count++] = (struct mapped){buffer, address};
    return address;
}

cl_int clReleaseMemObject(cl_mem buffer) {
    cl_uint users = 0;
    clGetMemObjectInfo(buffer, CL_MEM_REFERENCE_COUNT, sizeof users, &users, NULL);
    for (int i = 0; users == 1 && i < mapped_count; i++)
        if (mapped[i].buffer == buffer) mapped[i] = mapped[--mapped_count];
    return REAL(clReleaseMemObject)(buffer);
}

/* A device behind a network has memory of its own, and LAMMPS copies only to those. */
cl_int clGetDeviceInfo(cl_device_id device, cl_device_info name, size_t size, void *value,
                       size_t *needed) {
    cl_int status = REAL(clGetDeviceInfo)(device, name, size, value, needed);
    if (name == CL_DEVICE_HOST_UNIFIED_MEMORY && status == CL_SUCCESS && value && is_over_tcp())
        memset(value, 0, sizeof(cl_bool));
    return status;
}

static cl_int no_event(cl_command_queue queue, cl_event *event) {
    return event ? REAL(clEnqueueMarkerWithWaitList)(queue, 0, NULL, event) : CL_SUCCESS;
}

cl_int clEnqueueWriteBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset,
                            size_t bytes, const void *from, cl_uint waits, const cl_event *list,
                            cl_event *event) {
    /* Over TCP, `blocking` changes nothing: the bytes have left the program's memory in any case.
     */
    if (!is_over_tcp())
        return REAL(clEnqueueWriteBuffer)(queue, buffer, blocking, offset, bytes, from, waits, list,
                                          event);
    if (waits && REAL(clWaitForEvents)(waits, list)) return CL_INVALID_EVENT_WAIT_LIST;
    char *device = address_of(queue, buffer);
    /* Earlier commands may still use the memory. In LAMMPS the queue holds only markers here. */
    cl_int status = REAL(clFinish)(queue);
    if (status) return status;
    struct request request = {.kind = WRITE, .device = device + offset, .bytes = bytes};
    send_all(program_end, &request, sizeof request);
    atomic_fetch_add(&writes_sent, 1);
    send_all(program_end, from, bytes);
    return no_event(queue, event);
}

cl_int clEnqueueReadBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset,
                           size_t bytes, void *into, cl_uint waits, const cl_event *list,
                           cl_event *event) {
    /* Over TCP, each read blocks. LAMMPS waits for its reads at once. */
    if (!is_over_tcp())
        return REAL(clEnqueueReadBuffer)(queue, buffer, blocking, offset, bytes, into, waits, list,
                                         event);
    if (waits && REAL(clWaitForEvents)(waits, list)) return CL_INVALID_EVENT_WAIT_LIST;
    char *device = address_of(queue, buffer);
    struct request request = {
        .kind = READ, .device = device + offset, .bytes = bytes, .queue = queue};
    cl_int status = wait_for(&request, into);
    return status ? status : no_event(queue, event);
}

cl_int clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions,
                              const size_t *offset, const size_t *global, const size_t *local,
                              cl_uint waits, const cl_event *list, cl_event *event) {
    written();
    return REAL(clEnqueueNDRangeKernel)(queue, kernel, dimensions, offset, global, local, waits,
                                        list, event);
}

cl_int clEnqueueCopyBuffer(cl_command_queue queue, cl_mem from, cl_mem to, size_t from_offset,
                           size_t to_offset, size_t bytes, cl_uint waits, const cl_event *list,
                           cl_event *event) {
    written();
    return REAL(clEnqueueCopyBuffer)(queue, from, to, from_offset, to_offset, bytes, waits, list,
                                     event);
}

cl_int clEnqueueFillBuffer(cl_command_queue queue, cl_mem buffer, const void *pattern, size_t size,
                           size_t offset, size_t bytes, cl_uint waits, const cl_event *list,
                           cl_event *event) {
    written();
    return REAL(clEnqueueFillBuffer)(queue, buffer, pattern, size, offset, bytes, waits, list,
                                     event);
}

cl_int clFinish(cl_command_queue queue) {
    written();
    return wait_for(&(struct request){.kind = FINISH, .queue = queue}, NULL);
}

cl_int clWaitForEvents(cl_uint count, const cl_event *events) {
    written();
    return wait_for(&(struct request){.kind = EVENTS, .count = count, .events = events}, NULL);
}
