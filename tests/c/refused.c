/* Launches that cannot run. The call that enqueues the launch reports the failure if the client can
 * know it then. Otherwise the launch's event reports it or, without an event, the next call that
 * waits for the queue, once. No call reports success for work that did not run. */
#include "harness.h"

#include <unistd.h>

static const size_t one = 1;

/* Returns the code with which the call refuses a launch of one work-item, or CL_SUCCESS. */
static cl_int enqueue(cl_command_queue on, cl_kernel kernel, cl_event *event) {
    return clEnqueueNDRangeKernel(on, kernel, 1, NULL, &one, NULL, 0, NULL, event);
}

/* A kernel with one buffer too many for the node's memory. Drivers refuse the buffer, or find room
 * for it. A platform that creates buffers without waiting for the node learns of the failure later.
 * No command writes to the large buffers, so they take no memory. */
#define LARGE_MAX 64
typedef struct {
    cl_kernel kernel;
    cl_mem word, large[LARGE_MAX];
    int count;
    cl_int code; /* of the creating call */
} wrong_t;

static wrong_t make_wrong(void) {
    if (on_pocl()) test_skip("PoCL creates buffers of any total size");
    const cl_uint zero = 0;
    const cl_ulong each = device_ulong(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    /* The pool has as much memory as the host for buffers that it shares with this process, and as
     * much as the devices for other buffers. */
    cl_ulong all = (cl_ulong)sysconf(_SC_PHYS_PAGES) * (cl_ulong)sysconf(_SC_PAGESIZE);
    for (cl_uint i = 0; i < device_count; i++)
        all += device_ulong(devices[i], CL_DEVICE_GLOBAL_MEM_SIZE);
    wrong_t made = {.kernel = kernel_from(
                        context,
                        "kernel void k(global uint *x, global uint *y) { x[0] = 42; y[0] = 42; }",
                        "k")};
    if (each == 0 || all / each + 2 > LARGE_MAX)
        test_skip("it takes too many buffers to use up the memory");
    made.word = make_buffer(context, CL_MEM_COPY_HOST_PTR, 4, (void *)&zero);
    for (cl_ulong sum = 0; sum <= all && made.code == CL_SUCCESS; sum += each) {
        made.large[made.count] = clCreateBuffer(context, 0, (size_t)each, NULL, &made.code);
        made.count += made.code == CL_SUCCESS;
    }
    if (made.code == CL_SUCCESS) {
        set_mem(made.kernel, 0, made.word);
        set_mem(made.kernel, 1, made.large[made.count - 1]);
    }
    return made;
}

static void drop(wrong_t wrong) {
    for (int i = 0; i < wrong.count; i++) OK(clReleaseMemObject(wrong.large[i]));
    OK(clReleaseMemObject(wrong.word));
    OK(clReleaseKernel(wrong.kernel));
}

/* Whether a call that the program can check refused the launch that cannot run. */
static bool told_at_once(wrong_t wrong, cl_command_queue on, cl_event *event) {
    cl_int code = wrong.code ? wrong.code : enqueue(on, wrong.kernel, event);
    if (code != CL_SUCCESS) test_note("refused at the call with %s", error_name(code));
    return code != CL_SUCCESS;
}

static cl_int read_word(cl_command_queue on, cl_mem mem, cl_bool blocking, cl_event *event) {
    static cl_uint word;
    return clEnqueueReadBuffer(on, mem, blocking, 0, 4, &word, 0, NULL, event);
}

/* After the failure was reported, the queue works, and the failure is not reported again. */
static void works_again(wrong_t wrong, cl_command_queue on) {
    cl_uint word = 7, back = 0;
    OK(clEnqueueWriteBuffer(on, wrong.word, CL_TRUE, 0, 4, &word, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(on, wrong.word, CL_TRUE, 0, 4, &back, 0, NULL, NULL));
    CHECK(back == 7);
    OK(clFinish(on));
    drop(wrong);
}

TEST(a_blocking_read_tells) {
    for (int round = 0; round < 3; round++) {
        wrong_t wrong = make_wrong();
        if (!told_at_once(wrong, queue, NULL))
            CHECK(read_word(queue, wrong.word, CL_TRUE, NULL) != CL_SUCCESS);
        works_again(wrong, queue);
    }
}

TEST(a_finish_tells) {
    wrong_t wrong = make_wrong();
    if (!told_at_once(wrong, queue, NULL)) CHECK(clFinish(queue) != CL_SUCCESS);
    works_again(wrong, queue);
}

TEST(a_finish_of_an_out_of_order_queue_tells) {
    if (!device_supports_queue(device, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE))
        test_skip("no out-of-order queues");
    cl_command_queue on = make_queue(context, device, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    wrong_t wrong = make_wrong();
    if (!told_at_once(wrong, on, NULL)) CHECK(clFinish(on) != CL_SUCCESS);
    works_again(wrong, on);
    OK(clReleaseCommandQueue(on));
}

TEST(a_blocking_map_tells) {
    wrong_t wrong = make_wrong();
    if (!told_at_once(wrong, queue, NULL)) {
        cl_int code = CL_SUCCESS;
        void *mapped =
            clEnqueueMapBuffer(queue, wrong.word, CL_TRUE, CL_MAP_READ, 0, 4, 0, NULL, NULL, &code);
        CHECK(code != CL_SUCCESS && mapped == NULL);
    }
    works_again(wrong, queue);
}

/* When a later command has ended, the program assumes that all earlier ones have ended. */
TEST(waiting_for_a_later_event_tells) {
    for (int way = 0; way < 2; way++) {
        wrong_t wrong = make_wrong();
        if (!told_at_once(wrong, queue, NULL)) {
            cl_event later = NULL;
            if (way == 0)
                OK(read_word(queue, wrong.word, CL_FALSE, &later));
            else
                OK(clEnqueueMarkerWithWaitList(queue, 0, NULL, &later));
            CHECK(clWaitForEvents(1, &later) != CL_SUCCESS);
            OK(clReleaseEvent(later));
        }
        works_again(wrong, queue);
    }
}

/* If a failure was not reported when the queue became idle, the next call reports it. */
TEST(an_idle_queue_tells) {
    wrong_t wrong = make_wrong();
    if (!told_at_once(wrong, queue, NULL)) {
        cl_event later = NULL;
        OK(clEnqueueMarkerWithWaitList(queue, 0, NULL, &later));
        OK(clFlush(queue));
        while (status_of(later) > CL_COMPLETE) {}
        CHECK(read_word(queue, wrong.word, CL_TRUE, NULL) != CL_SUCCESS);
        OK(clReleaseEvent(later));
    }
    works_again(wrong, queue);
}

TEST(its_event_tells) {
    wrong_t wrong = make_wrong();
    cl_event event = NULL;
    if (!told_at_once(wrong, queue, &event)) {
        GIVES(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, clWaitForEvents(1, &event));
        CHECK(status_of(event) < 0);
        OK(clFinish(queue));
        OK(clReleaseEvent(event));
    }
    works_again(wrong, queue);
}

/* "CL_OUT_OF_RESOURCES if there is a failure to queue the execution instance of kernel on the
 * command-queue because of insufficient resources needed to execute the kernel." The client knows
 * everything it needs for this check. */
TEST(too_much_local_memory_is_refused_at_the_call) {
    if (on_pocl()) test_skip("PoCL runs the kernel, or ends the process");
    cl_ulong most = device_ulong(device, CL_DEVICE_LOCAL_MEM_SIZE);
    cl_uint zero = 0;
    cl_kernel kernel = kernel_from(
        context, "kernel void k(global uint *x, local uint *l) { l[0] = 42; x[0] = l[0]; }", "k");
    cl_mem mem = make_buffer(context, CL_MEM_COPY_HOST_PTR, 4, &zero);
    cl_event event = NULL;
    set_mem(kernel, 0, mem);
    cl_int set = clSetKernelArg(kernel, 1, (size_t)most + 4, NULL);
    if (set == CL_SUCCESS) {
        GIVES(CL_OUT_OF_RESOURCES, enqueue(queue, kernel, NULL));
        GIVES(CL_OUT_OF_RESOURCES, enqueue(queue, kernel, &event));
        GIVES(CL_OUT_OF_RESOURCES, clEnqueueTask(queue, kernel, 0, NULL, NULL));
        CHECK(event == NULL);
    }
    OK(clFinish(queue));
    OK(clSetKernelArg(kernel, 1, 64, NULL));
    OK(enqueue(queue, kernel, NULL));
    OK(clEnqueueReadBuffer(queue, mem, CL_TRUE, 0, 4, &zero, 0, NULL, NULL));
    CHECK(zero == 42);
    OK(clReleaseMemObject(mem));
    OK(clReleaseKernel(kernel));
}

TEST(work_groups_that_can_not_be_are_refused_at_the_call) {
    const char *source =
        "kernel void k(global uint *x) { x[get_global_id(0)] = 1; }\n"
        "kernel __attribute__((reqd_work_group_size(4, 1, 1))) void r(global uint *x) { x[get_global_id(0)] = 1; }";
    cl_program program = build(context, source, "");
    cl_kernel free_size = make_kernel(program, "k"), fixed = make_kernel(program, "r");
    cl_mem mem = make_buffer(context, 0, 65536, NULL);
    size_t most = 0, items[3] = {0}, wrong, global;
    set_mem(free_size, 0, mem);
    set_mem(fixed, 0, mem);
    OK(clGetKernelWorkGroupInfo(free_size, device, CL_KERNEL_WORK_GROUP_SIZE, sizeof most, &most,
                                NULL));
    OK(clGetDeviceInfo(device, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof items, items, NULL));
    wrong = (most > items[0] ? most : items[0]) * 2;
    GIVES_EITHER(CL_INVALID_WORK_GROUP_SIZE, CL_INVALID_WORK_ITEM_SIZE,
                 clEnqueueNDRangeKernel(queue, free_size, 1, NULL, &wrong, &wrong, 0, NULL, NULL));
    global = 8, wrong = 2;
    GIVES(CL_INVALID_WORK_GROUP_SIZE,
          clEnqueueNDRangeKernel(queue, fixed, 1, NULL, &global, &wrong, 0, NULL, NULL));
    OK(clFinish(queue));
    OK(clReleaseMemObject(mem));
    OK(clReleaseKernel(free_size));
    OK(clReleaseKernel(fixed));
    OK(clReleaseProgram(program));
}

/* A command that the program itself cancels is not a refused one: PoCL and Intel's runtime return
 * success for later calls. */
TEST(a_cancelled_command_is_no_failure_of_its_queue) {
    cl_event gate = make_user_event(context);
    cl_uint zero = 0, seven = 7, back = 99;
    cl_mem mem = make_buffer(context, CL_MEM_COPY_HOST_PTR, 4, &zero);
    OK(clEnqueueFillBuffer(queue, mem, &seven, 4, 0, 4, 1, &gate, NULL));
    OK(clFlush(queue));
    OK(clSetUserEventStatus(gate, -7));
    OK(clFinish(queue));
    OK(clEnqueueReadBuffer(queue, mem, CL_TRUE, 0, 4, &back, 0, NULL, NULL));
    CHECK(back == 0);
    OK(clReleaseEvent(gate));
    OK(clReleaseMemObject(mem));
}
