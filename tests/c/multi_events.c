/* Events across devices of one context: wait lists, user events, failures, markers. */
#include "harness.h"

#include <unistd.h>

#define DEVICES 2

static cl_context both;
static cl_command_queue on[DEVICES];

static void need_two(void) {
    if (device_count < DEVICES) test_skip("one device only");
    if (both) return;
    both = make_context(DEVICES, devices);
    for (int d = 0; d < DEVICES; d++) on[d] = make_queue(both, devices[d], 0);
}

TEST(one_waits_for_the_other) {
    need_two();
    for (int d = 0; d < 2; d++) {
        unsigned char bytes[1024], back[1024];
        cl_mem mem = make_buffer(both, 0, 1024, NULL);
        cl_event gate = make_user_event(both), written, read;
        pattern(bytes, 1024, 5);
        OK(clEnqueueWriteBuffer(on[d], mem, CL_FALSE, 0, 1024, bytes, 1, &gate, &written));
        OK(clEnqueueReadBuffer(on[1 - d], mem, CL_FALSE, 0, 1024, back, 1, &written, &read));
        OK(clFlush(on[d]));
        OK(clFlush(on[1 - d]));
        usleep(5000);
        CHECK(status_of(read) > CL_COMPLETE);
        OK(clSetUserEventStatus(gate, CL_COMPLETE));
        OK(clWaitForEvents(1, &read));
        CHECK(status_of(written) == CL_COMPLETE);
        CHECK(same_pattern(back, 1024, 5));
        OK(clReleaseEvent(gate));
        OK(clReleaseEvent(written));
        OK(clReleaseEvent(read));
        OK(clReleaseMemObject(mem));
    }
}

/* When an event has ended, the events that it depends on have ended too, whichever node reports
 * first. */
TEST(ends_are_seen_in_order) {
    need_two();
    for (int round = 0; round < 3000; round++) {
        cl_event chain[4];
        for (int i = 0; i < 4; i++) {
            OK(clEnqueueMarkerWithWaitList(on[i % 2], i > 0, i > 0 ? &chain[i - 1] : NULL,
                                           &chain[i]));
        }
        for (int d = 0; d < 2; d++) OK(clFlush(on[d]));
        OK(clWaitForEvents(1, &chain[3]));
        for (int i = 0; i < 4; i++) {
            CHECK(status_of(chain[i]) == CL_COMPLETE);
            OK(clReleaseEvent(chain[i]));
        }
    }
}

TEST(one_gate_for_both) {
    need_two();
    cl_event gate = make_user_event(both), markers[2];
    for (int d = 0; d < 2; d++) {
        OK(clEnqueueMarkerWithWaitList(on[d], 1, &gate, &markers[d]));
        OK(clFlush(on[d]));
    }
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clWaitForEvents(2, markers));
    for (int d = 0; d < 2; d++) {
        CHECK(status_of(markers[d]) == CL_COMPLETE);
        OK(clReleaseEvent(markers[d]));
    }
    OK(clReleaseEvent(gate));
}

TEST(long_zigzag) {
    need_two();
    cl_event last = make_user_event(both), gate = last;
    OK(clRetainEvent(gate));
    for (int i = 0; i < 200; i++) {
        cl_event next;
        OK(clEnqueueMarkerWithWaitList(on[i % 2], 1, &last, &next));
        OK(clFlush(on[i % 2]));
        OK(clReleaseEvent(last));
        last = next;
    }
    CHECK(status_of(last) > CL_COMPLETE);
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clWaitForEvents(1, &last));
    OK(clReleaseEvent(gate));
    OK(clReleaseEvent(last));
}

TEST(failure_crosses) {
    need_two();
    cl_command_queue own[2] = {make_queue(both, devices[0], 0), make_queue(both, devices[1], 0)};
    cl_event gate = make_user_event(both), first, second;
    OK(clEnqueueMarkerWithWaitList(own[0], 1, &gate, &first));
    OK(clEnqueueMarkerWithWaitList(own[1], 1, &first, &second));
    OK(clFlush(own[0]));
    OK(clFlush(own[1]));
    OK(clSetUserEventStatus(gate, -5));
    GIVES(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, clWaitForEvents(1, &second));
    CHECK(status_of(first) < 0 && status_of(second) < 0);
    OK(clReleaseEvent(gate));
    OK(clReleaseEvent(first));
    OK(clReleaseEvent(second));
    for (int d = 0; d < 2; d++) OK(clReleaseCommandQueue(own[d]));
}

TEST(two_devices_at_work_together) {
    need_two();
    const char *source =
        "kernel void spin(global float *w, uint n) { float x = *w; for (uint i = 0; i < n; i++) x = sin(x) + 1; *w = x; }";
    float zero = 0, back[2];
    cl_uint n = 300000;
    cl_kernel kernel = kernel_from(both, source, "spin");
    cl_mem mems[2];
    for (int d = 0; d < 2; d++) {
        mems[d] = make_buffer(both, CL_MEM_COPY_HOST_PTR, 4, &zero);
        set_mem(kernel, 0, mems[d]);
        OK(clSetKernelArg(kernel, 1, 4, &n));
        launch(on[d], kernel, 1);
        OK(clFlush(on[d]));
    }
    for (int d = 0; d < 2; d++)
        OK(clEnqueueReadBuffer(on[d], mems[d], CL_TRUE, 0, 4, &back[d], 0, NULL, NULL));
    CHECK(back[0] == back[1] && back[0] > 1);
    for (int d = 0; d < 2; d++) OK(clReleaseMemObject(mems[d]));
    OK(clReleaseKernel(kernel));
}

TEST(programs_for_all_devices) {
    need_two();
    const char *source = "kernel void k(global uint *w) { *w = 5; }";
    cl_int code;
    cl_program program = clCreateProgramWithSource(both, 1, &source, NULL, &code);
    OK(code);
    /* Built only for the second device, so the first cannot run it. */
    OK(clBuildProgram(program, 1, &devices[1], NULL, NULL, NULL));
    cl_build_status status[2];
    for (int d = 0; d < 2; d++)
        OK(clGetProgramBuildInfo(program, devices[d], CL_PROGRAM_BUILD_STATUS, sizeof *status,
                                 &status[d], NULL));
    GAP_BEGIN;
    CHECK(status[0] == CL_BUILD_NONE && status[1] == CL_BUILD_SUCCESS);
    GAP_END;
    cl_kernel kernel = make_kernel(program, "k");
    cl_mem mem = make_buffer(both, 0, 4, NULL);
    cl_uint back = 0;
    const size_t one = 1;
    set_mem(kernel, 0, mem);
    if (!on_pocl()) /* PoCL 3.1 aborts the program. */
        GIVES(CL_INVALID_PROGRAM_EXECUTABLE,
              clEnqueueNDRangeKernel(on[0], kernel, 1, NULL, &one, NULL, 0, NULL, NULL));
    launch(on[1], kernel, 1);
    OK(clEnqueueReadBuffer(on[1], mem, CL_TRUE, 0, 4, &back, 0, NULL, NULL));
    CHECK(back == 5);
    OK(clReleaseKernel(kernel));
    OK(clBuildProgram(program, 0, NULL, NULL, NULL, NULL));
    size_t sizes[2] = {0, 0};
    OK(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof sizes, sizes, NULL));
    CHECK(sizes[0] > 0 && sizes[1] > 0);
    unsigned char *binaries[2] = {malloc(sizes[0]), malloc(sizes[1])};
    OK(clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binaries, binaries, NULL));
    cl_int loaded[2];
    cl_program again = clCreateProgramWithBinary(both, 2, devices, sizes,
                                                 (const unsigned char **)binaries, loaded, &code);
    OK(code);
    OK(clBuildProgram(again, 0, NULL, NULL, NULL, NULL));
    kernel = make_kernel(again, "k");
    for (int d = 0; d < 2; d++) {
        const cl_uint zero = 0;
        OK(clEnqueueWriteBuffer(on[d], mem, CL_TRUE, 0, 4, &zero, 0, NULL, NULL));
        set_mem(kernel, 0, mem);
        launch(on[d], kernel, 1);
        OK(clEnqueueReadBuffer(on[d], mem, CL_TRUE, 0, 4, &back, 0, NULL, NULL));
        CHECK(back == 5);
        free(binaries[d]);
    }
    OK(clReleaseKernel(kernel));
    OK(clReleaseProgram(again));
    OK(clReleaseProgram(program));
    OK(clReleaseMemObject(mem));
}

TEST(context_information) {
    need_two();
    cl_device_id list[DEVICES_MAX];
    cl_uint count = 0;
    size_t size = 0;
    OK(clGetContextInfo(both, CL_CONTEXT_NUM_DEVICES, sizeof count, &count, NULL));
    OK(clGetContextInfo(both, CL_CONTEXT_DEVICES, sizeof list, list, &size));
    CHECK(count == 2 && size == 2 * sizeof *list && list[0] == devices[0] && list[1] == devices[1]);
    if (device_count > 2)
        REFUSED(CL_INVALID_DEVICE, clCreateCommandQueue(both, devices[2], 0, &err));
    cl_context single = make_context(1, &devices[0]);
    REFUSED(CL_INVALID_DEVICE, clCreateCommandQueue(single, devices[1], 0, &err));
    OK(clReleaseContext(single));
}

TEST(no_more) {
    need_two();
    for (int d = 0; d < DEVICES; d++) OK(clReleaseCommandQueue(on[d]));
    OK(clReleaseContext(both));
}
