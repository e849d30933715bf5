/* Profiling: the four times of a command are in order, and the times of an in-order queue do not go
 * backwards. */
#include "harness.h"

#include <unistd.h>

struct times {
    cl_ulong queued, submitted, start, end;
};

static struct times times_of(cl_event event) {
    struct times t = {0, 0, 0, 0};
    OK(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_QUEUED, 8, &t.queued, NULL));
    OK(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_SUBMIT, 8, &t.submitted, NULL));
    OK(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, 8, &t.start, NULL));
    OK(clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, 8, &t.end, NULL));
    return t;
}

static cl_command_queue profiled(void) {
    return make_queue(context, device, CL_QUEUE_PROFILING_ENABLE);
}

TEST(times_of_every_command) {
    unsigned char bytes[4096] = {0};
    cl_command_queue own = profiled();
    cl_mem a = make_buffer(context, 0, 4096, NULL), b = make_buffer(context, 0, 4096, NULL);
    cl_kernel kernel =
        kernel_from(context, "kernel void k(global uint *w) { w[get_global_id(0)] += 1; }", "k");
    const size_t items = 1024;
    cl_event events[8];
    cl_int code;
    set_mem(kernel, 0, a);
    OK(clEnqueueWriteBuffer(own, a, CL_FALSE, 0, 4096, bytes, 0, NULL, &events[0]));
    OK(clEnqueueNDRangeKernel(own, kernel, 1, NULL, &items, NULL, 0, NULL, &events[1]));
    OK(clEnqueueCopyBuffer(own, a, b, 0, 0, 4096, 0, NULL, &events[2]));
    OK(clEnqueueFillBuffer(own, b, bytes, 4, 0, 4096, 0, NULL, &events[3]));
    void *at =
        clEnqueueMapBuffer(own, b, CL_FALSE, CL_MAP_READ, 0, 4096, 0, NULL, &events[4], &code);
    OK(code);
    OK(clEnqueueUnmapMemObject(own, b, at, 0, NULL, &events[5]));
    OK(clEnqueueMarkerWithWaitList(own, 0, NULL, &events[6]));
    OK(clEnqueueReadBuffer(own, a, CL_FALSE, 0, 4096, bytes, 0, NULL, &events[7]));
    OK(clFinish(own));
    struct times last = {0, 0, 0, 0};
    for (int i = 0; i < 8; i++) {
        struct times t = times_of(events[i]);
        CHECK(t.queued > 0);
        CHECK(t.queued <= t.submitted);
        CHECK(t.submitted <= t.start);
        CHECK(t.start <= t.end);
        /* LAMMPS and hashcat subtract times of different commands, so the times must not go
         * backwards. */
        CHECK(t.queued >= last.queued);
        CHECK(t.end >= last.end);
        last = t;
        OK(clReleaseEvent(events[i]));
    }
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(a));
    OK(clReleaseMemObject(b));
    OK(clReleaseCommandQueue(own));
}

static void has_times(cl_event event) {
    struct times t = times_of(event);
    CHECK(status_of(event) == CL_COMPLETE);
    CHECK(t.queued > 0 && t.queued <= t.submitted && t.submitted <= t.start && t.start <= t.end);
    OK(clReleaseEvent(event));
}

/* Drivers return from a blocking call when its command has ended, and programs query its times at
 * once. */
TEST(times_of_blocking_calls) {
    enum { SIZE = 1 << 20, ROUNDS = 50 };
    const size_t zero[3] = {0, 0, 0}, box[3] = {64, 64, 4};
    unsigned char *bytes = calloc(1, SIZE);
    cl_command_queue own = profiled();
    cl_mem mem = make_buffer(context, 0, SIZE, NULL);
    cl_event event;
    for (int i = 0; i < ROUNDS; i++) {
        const size_t size = i % 2 ? SIZE : 64;
        OK(clEnqueueWriteBuffer(own, mem, CL_TRUE, 0, size, bytes, 0, NULL, &event));
        has_times(event);
        OK(clEnqueueWriteBufferRect(own, mem, CL_TRUE, zero, zero, box, 0, 0, 0, 0, bytes, 0, NULL,
                                    &event));
        has_times(event);
        OK(clEnqueueReadBuffer(own, mem, CL_TRUE, 0, size, bytes, 0, NULL, &event));
        has_times(event);
    }
    if (device_has_images(device)) {
        const cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
        const cl_image_desc shape = {
            .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 64, .image_height = 64};
        const size_t all[3] = {64, 64, 1};
        cl_int code;
        cl_mem image = clCreateImage(context, CL_MEM_READ_WRITE, &format, &shape, NULL, &code);
        OK(code);
        for (int i = 0; i < ROUNDS; i++) {
            OK(clEnqueueWriteImage(own, image, CL_TRUE, zero, all, 0, 0, bytes, 0, NULL, &event));
            has_times(event);
        }
        OK(clReleaseMemObject(image));
    }
    OK(clReleaseMemObject(mem));
    OK(clReleaseCommandQueue(own));
    free(bytes);
}

/* A copy within host memory is an ordinary command, although no device takes part in it. */
TEST(times_of_copies_within_host_memory) {
    cl_device_svm_capabilities can = 0;
    clGetDeviceInfo(device, CL_DEVICE_SVM_CAPABILITIES, sizeof can, &can, NULL);
    if (can == 0) test_skip("no shared virtual memory");
    cl_command_queue own = profiled();
    unsigned char from[64] = {3}, to[64] = {0};
    cl_event copied;
    OK(clEnqueueSVMMemcpy(own, CL_FALSE, to, from, sizeof to, 0, NULL, &copied));
    OK(clFinish(own));
    CHECK(to[0] == 3);
    has_times(copied);
    OK(clReleaseCommandQueue(own));
}

/* As in clpeak: after clFinish every earlier event is complete, and its times are available. */
TEST(times_after_finish) {
    cl_command_queue own = profiled();
    cl_kernel kernel =
        kernel_from(context,
                    "kernel void work(global float *w) { size_t i = get_global_id(0);"
                    "    float s = 0; for (int k = 0; k < 16; k++) s += w[i + k]; w[i] = s; }",
                    "work");
    cl_mem mem = make_buffer(context, 0, 65536, NULL);
    const size_t items = 4096;
    set_mem(kernel, 0, mem);
    for (int i = 0; i < 20000; i++) {
        cl_event event;
        cl_int status = 99;
        OK(clEnqueueNDRangeKernel(own, kernel, 1, NULL, &items, NULL, 0, NULL, &event));
        OK(clFinish(own));
        struct times t = times_of(event);
        OK(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL));
        CHECK(status == CL_COMPLETE);
        CHECK(t.queued <= t.submitted && t.submitted <= t.start && t.start <= t.end);
        OK(clReleaseEvent(event));
    }
    OK(clReleaseMemObject(mem));
    OK(clReleaseKernel(kernel));
    OK(clReleaseCommandQueue(own));
}

TEST(a_longer_kernel_takes_longer) {
    const char *source =
        "kernel void spin(global float *w, uint n) { float x = *w; for (uint i = 0; i < n; i++) x = sin(x) + 1; *w = x; }";
    cl_command_queue own = profiled();
    float zero = 0;
    cl_mem mem = make_buffer(context, CL_MEM_COPY_HOST_PTR, 4, &zero);
    cl_kernel kernel = kernel_from(context, source, "spin");
    const size_t one = 1;
    cl_uint counts[2] = {1000, 1000000};
    cl_ulong took[2] = {~(cl_ulong)0, ~(cl_ulong)0};
    set_mem(kernel, 0, mem);
    /* The shortest of several launches of each kind, because a busy machine may interrupt a single
     * one. */
    for (int round = 0; round < 40; round++) {
        int i = round % 8 == 7;
        cl_event event;
        OK(clSetKernelArg(kernel, 1, 4, &counts[i]));
        OK(clEnqueueNDRangeKernel(own, kernel, 1, NULL, &one, NULL, 0, NULL, &event));
        OK(clWaitForEvents(1, &event));
        struct times t = times_of(event);
        if (t.end - t.start < took[i]) took[i] = t.end - t.start;
        OK(clReleaseEvent(event));
    }
    CHECK(took[1] > 10 * took[0]);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(mem));
    OK(clReleaseCommandQueue(own));
}

/* A second of the device's clock is a second of the host's. */
TEST(clock_rate) {
    cl_command_queue own = profiled();
    cl_event events[2];
    double before[2], after[2];
    struct times t[2];
    for (int i = 0; i < 2; i++) {
        before[i] = seconds();
        OK(clEnqueueMarkerWithWaitList(own, 0, NULL, &events[i]));
        OK(clWaitForEvents(1, &events[i]));
        after[i] = seconds();
        t[i] = times_of(events[i]);
        OK(clReleaseEvent(events[i]));
        usleep(300000);
    }
    /* Each marker ended between its two readings of the host's clock, even if this thread was late.
     * So the device's time lies between two times of the host. */
    double device_s = 1e-9 * (double)(t[1].end - t[0].end), least_s = before[1] - after[0],
           most_s = after[1] - before[0];
    if (device_s < 0.8 * least_s || device_s > 1.2 * most_s)
        test_fail(__FILE__, __LINE__, "%g s on the device, %g s to %g s on the host", device_s,
                  least_s, most_s);
    OK(clReleaseCommandQueue(own));
}

TEST(errors) {
    cl_event plain, held;
    cl_ulong value;
    cl_int code;
    cl_command_queue own = profiled();
    OK(clEnqueueMarkerWithWaitList(queue, 0, NULL, &plain));
    OK(clFinish(queue));
    GIVES(CL_PROFILING_INFO_NOT_AVAILABLE,
          clGetEventProfilingInfo(plain, CL_PROFILING_COMMAND_END, 8, &value, NULL));
    OK(clReleaseEvent(plain));
    cl_event gate = clCreateUserEvent(context, &code);
    OK(code);
    GIVES(CL_PROFILING_INFO_NOT_AVAILABLE,
          clGetEventProfilingInfo(gate, CL_PROFILING_COMMAND_END, 8, &value, NULL));
    OK(clEnqueueMarkerWithWaitList(own, 1, &gate, &held));
    OK(clFlush(own));
    GIVES(CL_PROFILING_INFO_NOT_AVAILABLE,
          clGetEventProfilingInfo(held, CL_PROFILING_COMMAND_END, 8, &value, NULL));
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clFinish(own));
    OK(clGetEventProfilingInfo(held, CL_PROFILING_COMMAND_END, 8, &value, NULL));
    GIVES(CL_INVALID_VALUE,
          clGetEventProfilingInfo(held, CL_PROFILING_COMMAND_END, 4, &value, NULL));
    GIVES(CL_INVALID_VALUE, clGetEventProfilingInfo(held, 0x1, 8, &value, NULL));
    GIVES(CL_INVALID_EVENT,
          clGetEventProfilingInfo(NULL, CL_PROFILING_COMMAND_END, 8, &value, NULL));
    OK(clReleaseEvent(gate));
    OK(clReleaseEvent(held));
    OK(clReleaseCommandQueue(own));
}

TEST(timers) {
    cl_ulong on_device = 0, on_host = 0, alone = 0;
    cl_ulong resolution = 0;
    OK(clGetPlatformInfo(platform, CL_PLATFORM_HOST_TIMER_RESOLUTION, 8, &resolution, NULL));
    cl_int code = clGetDeviceAndHostTimer(device, &on_device, &on_host);
    if (resolution == 0) {
        CHECK(code == CL_INVALID_OPERATION || code == CL_SUCCESS);
        return;
    }
    OK(code);
    OK(clGetHostTimer(device, &alone));
    CHECK(alone >= on_host);
    GIVES(CL_INVALID_VALUE, clGetDeviceAndHostTimer(device, NULL, &on_host));
    GIVES(CL_INVALID_VALUE, clGetHostTimer(device, NULL));
    GIVES(CL_INVALID_DEVICE, clGetHostTimer(NULL, &alone));
}
