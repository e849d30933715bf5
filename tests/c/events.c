/* Events: status, wait lists, user events, order, reference counts, and errors that propagate. */
#include "harness.h"

#include <unistd.h>

TEST(info) {
    unsigned char bytes[64];
    cl_mem mem = make_buffer(context, CL_MEM_READ_WRITE, 64, NULL);
    cl_event event;
    cl_command_type type = 0;
    cl_command_queue of = NULL;
    cl_context in = NULL;
    cl_uint references = 0;
    write_pattern(queue, mem, 64, 1);
    OK(clEnqueueReadBuffer(queue, mem, CL_FALSE, 0, 64, bytes, 0, NULL, &event));
    OK(clWaitForEvents(1, &event));
    CHECK(status_of(event) == CL_COMPLETE);
    CHECK(same_pattern(bytes, 64, 1));
    OK(clGetEventInfo(event, CL_EVENT_COMMAND_TYPE, sizeof type, &type, NULL));
    CHECK(type == CL_COMMAND_READ_BUFFER);
    OK(clGetEventInfo(event, CL_EVENT_COMMAND_QUEUE, sizeof of, &of, NULL));
    CHECK(of == queue);
    OK(clGetEventInfo(event, CL_EVENT_CONTEXT, sizeof in, &in, NULL));
    CHECK(in == context);
    OK(clGetEventInfo(event, CL_EVENT_REFERENCE_COUNT, sizeof references, &references, NULL));
    GAP_BEGIN; /* PoCL also counts its own references. */
    CHECK(references == 1);
    OK(clRetainEvent(event));
    OK(clGetEventInfo(event, CL_EVENT_REFERENCE_COUNT, sizeof references, &references, NULL));
    CHECK(references == 2);
    GAP_END;
    OK(clReleaseEvent(event));
    OK(clReleaseEvent(event));
    OK(clReleaseMemObject(mem));
}

TEST(command_types) {
    unsigned char bytes[64] = {0};
    cl_mem a = make_buffer(context, CL_MEM_READ_WRITE, 64, NULL),
           b = make_buffer(context, CL_MEM_READ_WRITE, 64, NULL);
    cl_event events[9];
    const cl_command_type expected[9] = {
        CL_COMMAND_WRITE_BUFFER, CL_COMMAND_COPY_BUFFER,      CL_COMMAND_FILL_BUFFER,
        CL_COMMAND_MAP_BUFFER,   CL_COMMAND_UNMAP_MEM_OBJECT, CL_COMMAND_NDRANGE_KERNEL,
        CL_COMMAND_MARKER,       CL_COMMAND_BARRIER,          CL_COMMAND_MIGRATE_MEM_OBJECTS};
    const size_t one = 1;
    cl_int code;
    cl_kernel kernel = kernel_from(context, "kernel void nothing(void) { }", "nothing");
    OK(clEnqueueWriteBuffer(queue, a, CL_FALSE, 0, 64, bytes, 0, NULL, &events[0]));
    OK(clEnqueueCopyBuffer(queue, a, b, 0, 0, 64, 0, NULL, &events[1]));
    OK(clEnqueueFillBuffer(queue, a, bytes, 4, 0, 64, 0, NULL, &events[2]));
    void *at =
        clEnqueueMapBuffer(queue, a, CL_FALSE, CL_MAP_READ, 0, 64, 0, NULL, &events[3], &code);
    OK(code);
    OK(clEnqueueUnmapMemObject(queue, a, at, 0, NULL, &events[4]));
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, &events[5]));
    OK(clEnqueueMarkerWithWaitList(queue, 0, NULL, &events[6]));
    OK(clEnqueueBarrierWithWaitList(queue, 0, NULL, &events[7]));
    OK(clEnqueueMigrateMemObjects(queue, 1, &a, 0, 0, NULL, &events[8]));
    OK(clWaitForEvents(9, events));
    for (int i = 0; i < 9; i++) {
        cl_command_type type = 0;
        OK(clGetEventInfo(events[i], CL_EVENT_COMMAND_TYPE, sizeof type, &type, NULL));
        if (type != expected[i]) test_note("command %d: type 0x%x, not 0x%x", i, type, expected[i]);
        CHECK(type == expected[i]);
        CHECK(status_of(events[i]) == CL_COMPLETE);
        OK(clReleaseEvent(events[i]));
    }
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(a));
    OK(clReleaseMemObject(b));
}

TEST(user_event_holds_a_command) {
    unsigned char bytes[64], back[64];
    cl_mem mem = make_buffer(context, CL_MEM_READ_WRITE, 64, NULL);
    cl_event gate = make_user_event(context), written;
    write_pattern(queue, mem, 64, 1);
    pattern(bytes, 64, 2);
    CHECK(status_of(gate) == CL_SUBMITTED);
    OK(clEnqueueWriteBuffer(queue, mem, CL_FALSE, 0, 64, bytes, 1, &gate, &written));
    OK(clFlush(queue));
    usleep(20000);
    CHECK(status_of(written) > CL_COMPLETE);
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clWaitForEvents(1, &written));
    CHECK(status_of(gate) == CL_COMPLETE);
    OK(clEnqueueReadBuffer(queue, mem, CL_TRUE, 0, 64, back, 0, NULL, NULL));
    CHECK(same_pattern(back, 64, 2));
    GIVES(CL_INVALID_OPERATION, clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clReleaseEvent(gate));
    OK(clReleaseEvent(written));
    OK(clReleaseMemObject(mem));
}

/* A user event that fails also fails the commands that wait for it. */
TEST(failed_user_event_ends_dependents) {
    unsigned char bytes[64] = {0};
    cl_mem mem = make_buffer(context, CL_MEM_READ_WRITE, 64, NULL);
    cl_command_queue own = make_queue(context, device, 0);
    cl_event gate = make_user_event(context), after;
    write_pattern(queue, mem, 64, 3);
    OK(clEnqueueWriteBuffer(own, mem, CL_FALSE, 0, 64, bytes, 1, &gate, &after));
    OK(clFlush(own));
    OK(clSetUserEventStatus(gate, -42));
    GIVES(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, clWaitForEvents(1, &after));
    CHECK(status_of(after) < 0);
    CHECK(read_pattern(queue, mem, 64, 3));
    OK(clReleaseEvent(gate));
    OK(clReleaseEvent(after));
    OK(clReleaseCommandQueue(own));
    OK(clReleaseMemObject(mem));
}

TEST(user_event_errors) {
    cl_event gate = make_user_event(context);
    REFUSED(CL_INVALID_CONTEXT, clCreateUserEvent(NULL, &err));
    GIVES(CL_INVALID_EVENT, clSetUserEventStatus(NULL, CL_COMPLETE));
    GIVES(CL_INVALID_VALUE, clSetUserEventStatus(gate, CL_RUNNING));
    GIVES(CL_INVALID_VALUE, clSetUserEventStatus(gate, CL_SUBMITTED));
    GIVES(CL_INVALID_VALUE, clSetUserEventStatus(gate, 5));
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clWaitForEvents(1, &gate));
    cl_command_queue of = queue;
    OK(clGetEventInfo(gate, CL_EVENT_COMMAND_QUEUE, sizeof of, &of, NULL));
    CHECK(of == NULL);
    cl_command_type type = 0;
    OK(clGetEventInfo(gate, CL_EVENT_COMMAND_TYPE, sizeof type, &type, NULL));
    CHECK(type == CL_COMMAND_USER);
    OK(clReleaseEvent(gate));
    cl_event marker;
    OK(clEnqueueMarkerWithWaitList(queue, 0, NULL, &marker));
    GIVES(CL_INVALID_EVENT, clSetUserEventStatus(marker, CL_COMPLETE));
    OK(clWaitForEvents(1, &marker));
    OK(clReleaseEvent(marker));
}

TEST(chain_over_two_queues) {
    enum { ROUNDS = 100 };
    const char *source = "kernel void advance(global uint *w, uint m) { *w = *w * 3 + m; }";
    cl_command_queue queues[2] = {make_queue(context, device, 0), make_queue(context, device, 0)};
    cl_kernel kernel = kernel_from(context, source, "advance");
    cl_mem mem = make_buffer(context, CL_MEM_READ_WRITE, 4, NULL);
    cl_uint value = 1, expected = 1;
    cl_event last = NULL;
    const size_t one = 1;
    OK(clEnqueueWriteBuffer(queue, mem, CL_TRUE, 0, 4, &value, 0, NULL, NULL));
    set_mem(kernel, 0, mem);
    for (cl_uint i = 0; i < ROUNDS; i++) {
        cl_event next;
        OK(clSetKernelArg(kernel, 1, sizeof i, &i));
        OK(clEnqueueNDRangeKernel(queues[i % 2], kernel, 1, NULL, &one, NULL, last ? 1 : 0,
                                  last ? &last : NULL, &next));
        OK(clFlush(queues[i % 2]));
        if (last) OK(clReleaseEvent(last));
        last = next;
        expected = expected * 3 + i;
    }
    OK(clEnqueueReadBuffer(queue, mem, CL_TRUE, 0, 4, &value, 1, &last, NULL));
    CHECK(value == expected);
    OK(clReleaseEvent(last));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(mem));
    for (int i = 0; i < 2; i++) OK(clReleaseCommandQueue(queues[i]));
}

TEST(diamond_of_events) {
    const char *source = "kernel void put(global uint *w, uint at, uint v) { w[at] = v; }"
                         "kernel void sum(global uint *w) { w[4] = w[0] + w[1] + w[2] + w[3]; }";
    cl_program program = build(context, source, NULL);
    cl_kernel put = make_kernel(program, "put"), sum = make_kernel(program, "sum");
    cl_command_queue queues[4];
    cl_event events[4], gate = make_user_event(context), done;
    cl_uint zero[5] = {0}, result = 0;
    const size_t one = 1;
    cl_mem mem = make_buffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof zero, zero);
    set_mem(put, 0, mem);
    set_mem(sum, 0, mem);
    for (cl_uint i = 0; i < 4; i++) {
        cl_uint value = 10 + i;
        queues[i] = make_queue(context, device, 0);
        OK(clSetKernelArg(put, 1, 4, &i));
        OK(clSetKernelArg(put, 2, 4, &value));
        OK(clEnqueueNDRangeKernel(queues[i], put, 1, NULL, &one, NULL, 1, &gate, &events[i]));
        OK(clFlush(queues[i]));
    }
    OK(clEnqueueNDRangeKernel(queue, sum, 1, NULL, &one, NULL, 4, events, &done));
    OK(clFlush(queue));
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clEnqueueReadBuffer(queue, mem, CL_TRUE, 16, 4, &result, 1, &done, NULL));
    CHECK(result == 10 + 11 + 12 + 13);
    for (int i = 0; i < 4; i++) {
        OK(clReleaseEvent(events[i]));
        OK(clReleaseCommandQueue(queues[i]));
    }
    OK(clReleaseEvent(gate));
    OK(clReleaseEvent(done));
    OK(clReleaseKernel(put));
    OK(clReleaseKernel(sum));
    OK(clReleaseProgram(program));
    OK(clReleaseMemObject(mem));
}

TEST(released_event_still_orders) {
    unsigned char bytes[4096];
    cl_mem mem = make_buffer(context, CL_MEM_READ_WRITE, 4096, NULL);
    cl_event gate = make_user_event(context), written;
    cl_command_queue other = make_queue(context, device, 0);
    pattern(bytes, 4096, 5);
    OK(clEnqueueWriteBuffer(queue, mem, CL_FALSE, 0, 4096, bytes, 1, &gate, &written));
    OK(clFlush(queue));
    unsigned char back[4096];
    cl_event read;
    OK(clEnqueueReadBuffer(other, mem, CL_FALSE, 0, 4096, back, 1, &written, &read));
    OK(clFlush(other));
    OK(clReleaseEvent(written));
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clReleaseEvent(gate));
    OK(clWaitForEvents(1, &read));
    CHECK(same_pattern(back, 4096, 5));
    OK(clReleaseEvent(read));
    OK(clReleaseCommandQueue(other));
    OK(clReleaseMemObject(mem));
}

TEST(wait_list_errors) {
    unsigned char bytes[64];
    cl_mem mem = make_buffer(context, CL_MEM_READ_WRITE, 64, NULL);
    cl_context other = make_context(1, &device);
    cl_int code;
    cl_event foreign = clCreateUserEvent(other, &code), own = make_user_event(context), null = NULL;
    OK(code);
    GIVES(CL_INVALID_EVENT_WAIT_LIST,
          clEnqueueReadBuffer(queue, mem, CL_FALSE, 0, 64, bytes, 1, NULL, NULL));
    GIVES(CL_INVALID_EVENT_WAIT_LIST,
          clEnqueueReadBuffer(queue, mem, CL_FALSE, 0, 64, bytes, 0, &own, NULL));
    GIVES(CL_INVALID_EVENT_WAIT_LIST,
          clEnqueueReadBuffer(queue, mem, CL_FALSE, 0, 64, bytes, 1, &null, NULL));
    GIVES(CL_INVALID_CONTEXT,
          clEnqueueReadBuffer(queue, mem, CL_FALSE, 0, 64, bytes, 1, &foreign, NULL));
    GIVES(CL_INVALID_VALUE, clWaitForEvents(0, NULL));
    GIVES(CL_INVALID_VALUE, clWaitForEvents(0, &own));
    GIVES(CL_INVALID_VALUE, clWaitForEvents(1, NULL));
    cl_event pair[2] = {own, foreign};
    GIVES(CL_INVALID_CONTEXT, clWaitForEvents(2, pair));
    cl_int status;
    GIVES(CL_INVALID_EVENT,
          clGetEventInfo(NULL, CL_EVENT_COMMAND_EXECUTION_STATUS, 4, &status, NULL));
    GIVES(CL_INVALID_VALUE,
          clGetEventInfo(own, CL_EVENT_COMMAND_EXECUTION_STATUS, 1, &status, NULL));
    GIVES(CL_INVALID_VALUE, clGetEventInfo(own, 0x1, 4, &status, NULL));
    GIVES(CL_INVALID_EVENT, clReleaseEvent(NULL));
    GIVES(CL_INVALID_EVENT, clRetainEvent(NULL));
    OK(clSetUserEventStatus(own, CL_COMPLETE));
    OK(clSetUserEventStatus(foreign, CL_COMPLETE));
    OK(clReleaseEvent(own));
    OK(clReleaseEvent(foreign));
    OK(clReleaseContext(other));
    OK(clReleaseMemObject(mem));
}

/* A program may poll instead of waiting. A flush alone must be enough for it to see the end. */
TEST(polling_sees_the_end) {
    const size_t one = 1;
    cl_event event;
    cl_kernel kernel = kernel_from(context, "kernel void nothing(void) { }", "nothing");
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, &event));
    OK(clFlush(queue));
    double end = seconds() + patience_s();
    while (status_of(event) != CL_COMPLETE && seconds() < end) {}
    CHECK(status_of(event) == CL_COMPLETE);
    OK(clReleaseEvent(event));
    OK(clReleaseKernel(kernel));
}

TEST(ten_thousand_events) {
    enum { COUNT = 10000 };
    cl_event *events = calloc(COUNT, sizeof *events);
    for (int i = 0; i < COUNT; i++) OK(clEnqueueMarkerWithWaitList(queue, 0, NULL, &events[i]));
    OK(clWaitForEvents(COUNT, events));
    for (int i = 0; i < COUNT; i++) {
        if (status_of(events[i]) != CL_COMPLETE)
            test_fail(__FILE__, __LINE__, "event %d is not complete", i);
        OK(clReleaseEvent(events[i]));
    }
    free(events);
}
