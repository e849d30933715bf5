/* Kernels: arguments of all kinds, their errors, information, clones. */
#include "harness.h"

static const char *const scalars_source =
    "typedef struct { int a; float b; char c[5]; } Mixed;\n"
    "kernel void scalars(global float *to, char c, uchar uc, short s, ushort us, int i, uint ui, long l, ulong ul,\n"
    "                    float f, float4 v, Mixed m, int3 three) {\n"
    "    to[0] = c; to[1] = uc; to[2] = s; to[3] = us; to[4] = i; to[5] = ui; to[6] = l; to[7] = ul; to[8] = f;\n"
    "    to[9] = v.x; to[10] = v.y; to[11] = v.z; to[12] = v.w; to[13] = m.a; to[14] = m.b; to[15] = m.c[4];\n"
    "    to[16] = three.x; to[17] = three.y; to[18] = three.z;\n"
    "}\n";

#define SET(kernel, index, type, value)                                    \
    do {                                                                   \
        type set_value_ = value;                                           \
        OK(clSetKernelArg(kernel, index, sizeof set_value_, &set_value_)); \
    } while (0)

TEST(values_of_all_kinds) {
    const float expected[19] = {-1, 255, -300, 65535, -70000, 3e9f, -5e9f, 1e18f, 1.5f, 1,
                                2,  3,   4,    11,    0.25f,  'z',  7,     8,     9};
    struct {
        cl_int a;
        cl_float b;
        cl_char c[5];
    } mixed = {11, 0.25f, {'v', 'w', 'x', 'y', 'z'}};
    cl_float4 vector = {{1, 2, 3, 4}};
    cl_int3 three = {{7, 8, 9, 0}};
    float back[19];
    cl_kernel kernel = kernel_from(context, scalars_source, "scalars");
    cl_mem to = make_buffer(context, CL_MEM_READ_WRITE, sizeof back, NULL);
    set_mem(kernel, 0, to);
    SET(kernel, 1, cl_char, -1);
    SET(kernel, 2, cl_uchar, 255);
    SET(kernel, 3, cl_short, -300);
    SET(kernel, 4, cl_ushort, 65535);
    SET(kernel, 5, cl_int, -70000);
    SET(kernel, 6, cl_uint, 3000000000u);
    SET(kernel, 7, cl_long, -5000000000);
    SET(kernel, 8, cl_ulong, 1000000000000000000u);
    SET(kernel, 9, cl_float, 1.5f);
    OK(clSetKernelArg(kernel, 10, sizeof vector, &vector));
    OK(clSetKernelArg(kernel, 11, sizeof mixed, &mixed));
    OK(clSetKernelArg(kernel, 12, sizeof three, &three));
    launch(queue, kernel, 1);
    OK(clEnqueueReadBuffer(queue, to, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
    for (int i = 0; i < 19; i++)
        if (back[i] != expected[i])
            test_fail(__FILE__, __LINE__, "value %d: %g, not %g", i, back[i], expected[i]);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(to));
}

TEST(local_memory_as_argument) {
    const char *source =
        "kernel void reverse(global uint *w, local uint *scratch) {"
        "    uint i = get_local_id(0), n = get_local_size(0), at = get_global_id(0);"
        "    scratch[i] = w[at]; barrier(CLK_LOCAL_MEM_FENCE); w[at] = scratch[n - 1 - i]; }";
    enum { COUNT = 256, GROUP = 64 };
    cl_uint words[COUNT];
    const size_t items = COUNT, group = GROUP;
    cl_kernel kernel = kernel_from(context, source, "reverse");
    for (cl_uint i = 0; i < COUNT; i++) words[i] = i;
    cl_mem mem = make_buffer(context, CL_MEM_COPY_HOST_PTR, sizeof words, words);
    set_mem(kernel, 0, mem);
    OK(clSetKernelArg(kernel, 1, GROUP * 4, NULL));
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, &group, 0, NULL, NULL));
    OK(clEnqueueReadBuffer(queue, mem, CL_TRUE, 0, sizeof words, words, 0, NULL, NULL));
    bool right = true;
    for (cl_uint i = 0; i < COUNT; i++)
        right = right && words[i] == (i / GROUP) * GROUP + GROUP - 1 - i % GROUP;
    CHECK(right);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(mem));
}

TEST(constant_and_null_buffers) {
    const char *source =
        "kernel void sum(global uint *to, constant uint *from, global uint *maybe) {"
        "    *to = from[0] + from[1] + (maybe ? *maybe : 1000); }";
    cl_uint values[2] = {3, 4}, back = 0, more = 50;
    cl_kernel kernel = kernel_from(context, source, "sum");
    cl_mem to = make_buffer(context, 0, 4, NULL), none = NULL;
    cl_mem from = make_buffer(context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, 8, values);
    cl_mem maybe = make_buffer(context, CL_MEM_COPY_HOST_PTR, 4, &more);
    set_mem(kernel, 0, to);
    set_mem(kernel, 1, from);
    OK(clSetKernelArg(kernel, 2, sizeof none, &none));
    launch(queue, kernel, 1);
    OK(clEnqueueReadBuffer(queue, to, CL_TRUE, 0, 4, &back, 0, NULL, NULL));
    CHECK(back == 1007);
    OK(clSetKernelArg(kernel, 2, sizeof none, NULL));
    launch(queue, kernel, 1);
    OK(clEnqueueReadBuffer(queue, to, CL_TRUE, 0, 4, &back, 0, NULL, NULL));
    CHECK(back == 1007);
    set_mem(kernel, 2, maybe);
    launch(queue, kernel, 1);
    OK(clEnqueueReadBuffer(queue, to, CL_TRUE, 0, 4, &back, 0, NULL, NULL));
    CHECK(back == 57);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(to));
    OK(clReleaseMemObject(from));
    OK(clReleaseMemObject(maybe));
}

/* A launch captures the arguments at that moment. */
TEST(arguments_are_taken_at_the_launch) {
    cl_uint back[100];
    cl_kernel kernel = kernel_from(
        context, "kernel void put(global uint *w, uint at, uint v) { w[at] = v; }", "put");
    cl_mem mem = make_buffer(context, 0, sizeof back, NULL);
    set_mem(kernel, 0, mem);
    for (cl_uint i = 0; i < 100; i++) {
        SET(kernel, 1, cl_uint, i);
        SET(kernel, 2, cl_uint, i * 7);
        launch(queue, kernel, 1);
    }
    SET(kernel, 1, cl_uint, 0);
    OK(clEnqueueReadBuffer(queue, mem, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL));
    for (cl_uint i = 0; i < 100; i++) CHECK(back[i] == i * 7);
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(mem));
}

/* The program may release an enqueued kernel and its buffers at once. */
TEST(released_while_enqueued) {
    cl_int code;
    cl_event gate = clCreateUserEvent(context, &code), done;
    cl_uint back = 0;
    const size_t one = 1;
    OK(code);
    cl_kernel kernel =
        kernel_from(context, "kernel void put(global uint *a, global uint *b) { *a = *b; }", "put");
    cl_uint value = 31;
    cl_mem a = make_buffer(context, 0, 4, NULL),
           b = make_buffer(context, CL_MEM_COPY_HOST_PTR, 4, &value);
    set_mem(kernel, 0, a);
    set_mem(kernel, 1, b);
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 1, &gate, &done));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(b));
    OK(clFlush(queue));
    OK(clSetUserEventStatus(gate, CL_COMPLETE));
    OK(clWaitForEvents(1, &done));
    OK(clEnqueueReadBuffer(queue, a, CL_TRUE, 0, 4, &back, 0, NULL, NULL));
    CHECK(back == 31);
    OK(clReleaseEvent(gate));
    OK(clReleaseEvent(done));
    OK(clReleaseMemObject(a));
}

TEST(argument_errors) {
    const char *source =
        "kernel void k(global int *a, int b, local int *c, read_only image2d_t d, sampler_t e) {"
        "    a[0] = b; c[0] = 1; }";
    bool images = device_has_images(device);
    const char *plain = "kernel void k(global int *a, int b, local int *c) { a[0] = b; c[0] = 1; }";
    cl_kernel kernel = kernel_from(context, images ? source : plain, "k");
    cl_mem mem = make_buffer(context, 0, 64, NULL);
    cl_int value = 1;
    cl_long wide = 1;
    set_mem(kernel, 0, mem);
    OK(clSetKernelArg(kernel, 1, 4, &value));
    OK(clSetKernelArg(kernel, 2, 64, NULL));
    GIVES(CL_INVALID_ARG_INDEX, clSetKernelArg(kernel, 5, 4, &value));
    GIVES(CL_INVALID_ARG_INDEX, clSetKernelArg(kernel, 4000000000u, 4, &value));
    GIVES(CL_INVALID_ARG_SIZE, clSetKernelArg(kernel, 1, 8, &wide));
    GIVES(CL_INVALID_ARG_SIZE, clSetKernelArg(kernel, 1, 2, &value));
    GIVES(CL_INVALID_ARG_SIZE, clSetKernelArg(kernel, 0, 4, &mem));
    GIVES(CL_INVALID_ARG_SIZE, clSetKernelArg(kernel, 2, 0, NULL));
    GIVES(CL_INVALID_ARG_VALUE, clSetKernelArg(kernel, 1, 4, NULL));
    GIVES(CL_INVALID_ARG_VALUE, clSetKernelArg(kernel, 2, 64, &value));
    GIVES(CL_INVALID_KERNEL, clSetKernelArg(NULL, 0, 4, &value));
    if (images && !on_pocl()) { /* PoCL 3.1 accepts any handle, and crashes later. */
        cl_mem image_as_buffer = mem;
        cl_sampler none = NULL;
        GIVES(CL_INVALID_MEM_OBJECT,
              clSetKernelArg(kernel, 3, sizeof image_as_buffer, &image_as_buffer));
        GIVES(CL_INVALID_SAMPLER, clSetKernelArg(kernel, 4, sizeof none, &none));
        cl_mem junk = (cl_mem)(uintptr_t)0x1000;
        GIVES(CL_INVALID_MEM_OBJECT, clSetKernelArg(kernel, 0, sizeof junk, &junk));
    }
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(mem));
}

TEST(info) {
    cl_program program = build(context, "kernel void k(global int *a, int b) { *a = b; }", NULL);
    cl_kernel kernel = make_kernel(program, "k");
    char name[16], attributes[256];
    cl_uint count = 0, references = 0;
    size_t size = 0;
    cl_context in = NULL;
    cl_program of = NULL;
    OK(clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, sizeof name, name, &size));
    OK(clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof count, &count, NULL));
    OK(clGetKernelInfo(kernel, CL_KERNEL_REFERENCE_COUNT, sizeof references, &references, NULL));
    OK(clGetKernelInfo(kernel, CL_KERNEL_CONTEXT, sizeof in, &in, NULL));
    OK(clGetKernelInfo(kernel, CL_KERNEL_PROGRAM, sizeof of, &of, NULL));
    OK(clGetKernelInfo(kernel, CL_KERNEL_ATTRIBUTES, sizeof attributes, attributes, NULL));
    CHECK(strcmp(name, "k") == 0 && size == 2 && count == 2 && references == 1 && in == context &&
          of == program);
    OK(clRetainKernel(kernel));
    OK(clGetKernelInfo(kernel, CL_KERNEL_REFERENCE_COUNT, sizeof references, &references, NULL));
    CHECK(references == 2);
    OK(clReleaseKernel(kernel));
    GIVES(CL_INVALID_VALUE, clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, 1, &count, NULL));
    GIVES(CL_INVALID_VALUE, clGetKernelInfo(kernel, 0x1, sizeof count, &count, NULL));
    GIVES(CL_INVALID_KERNEL, clGetKernelInfo(NULL, CL_KERNEL_NUM_ARGS, sizeof count, &count, NULL));
    GIVES(CL_INVALID_KERNEL, clRetainKernel(NULL));
    GIVES(CL_INVALID_KERNEL, clReleaseKernel(NULL));
    OK(clReleaseKernel(kernel));
    OK(clReleaseProgram(program));
}

TEST(argument_info) {
    const char *source =
        "kernel void k(global const float *restrict from, local int *scratch, constant uint *table, int n,"
        "              volatile global float4 *to) { to[0] = from[0] + n + table[0]; scratch[0] = 1; }";
    cl_program program = build(context, source, "-cl-kernel-arg-info");
    cl_kernel kernel = make_kernel(program, "k");
    const struct {
        const char *name, *type;
        cl_kernel_arg_address_qualifier address;
        cl_kernel_arg_type_qualifier qualifier;
    } expected[5] = {
        {"from", "float*", CL_KERNEL_ARG_ADDRESS_GLOBAL,
         CL_KERNEL_ARG_TYPE_CONST | CL_KERNEL_ARG_TYPE_RESTRICT},
        {"scratch", "int*", CL_KERNEL_ARG_ADDRESS_LOCAL, 0},
        {"table", "uint*", CL_KERNEL_ARG_ADDRESS_CONSTANT, CL_KERNEL_ARG_TYPE_CONST},
        {"n", "int", CL_KERNEL_ARG_ADDRESS_PRIVATE, 0},
        {"to", "float4*", CL_KERNEL_ARG_ADDRESS_GLOBAL, CL_KERNEL_ARG_TYPE_VOLATILE},
    };
    for (cl_uint i = 0; i < 5; i++) {
        char name[32], type[32];
        cl_kernel_arg_address_qualifier address = 0;
        cl_kernel_arg_access_qualifier access = 0;
        cl_kernel_arg_type_qualifier qualifier = 99;
        OK(clGetKernelArgInfo(kernel, i, CL_KERNEL_ARG_NAME, sizeof name, name, NULL));
        OK(clGetKernelArgInfo(kernel, i, CL_KERNEL_ARG_TYPE_NAME, sizeof type, type, NULL));
        OK(clGetKernelArgInfo(kernel, i, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof address, &address,
                              NULL));
        OK(clGetKernelArgInfo(kernel, i, CL_KERNEL_ARG_ACCESS_QUALIFIER, sizeof access, &access,
                              NULL));
        OK(clGetKernelArgInfo(kernel, i, CL_KERNEL_ARG_TYPE_QUALIFIER, sizeof qualifier, &qualifier,
                              NULL));
        CHECK(strcmp(name, expected[i].name) == 0);
        CHECK(strcmp(type, expected[i].type) == 0);
        CHECK(address == expected[i].address);
        CHECK(access == CL_KERNEL_ARG_ACCESS_NONE);
        CHECK(qualifier == expected[i].qualifier);
    }
    char name[32];
    GIVES(CL_INVALID_ARG_INDEX,
          clGetKernelArgInfo(kernel, 5, CL_KERNEL_ARG_NAME, sizeof name, name, NULL));
    GIVES(CL_INVALID_VALUE, clGetKernelArgInfo(kernel, 0, CL_KERNEL_ARG_NAME, 1, name, NULL));
    GIVES(CL_INVALID_VALUE, clGetKernelArgInfo(kernel, 0, 0x1, sizeof name, name, NULL));
    GIVES(CL_INVALID_KERNEL,
          clGetKernelArgInfo(NULL, 0, CL_KERNEL_ARG_NAME, sizeof name, name, NULL));
    OK(clReleaseKernel(kernel));
    OK(clReleaseProgram(program));
}

TEST(work_group_info) {
    const char *source =
        "kernel __attribute__((reqd_work_group_size(8, 4, 2))) void fixed(global int *a) { local int s[100];"
        "    s[get_local_id(0)] = 1; *a = s[0]; }"
        "kernel void open(global int *a) { *a = 1; }";
    cl_program program = build(context, source, NULL);
    cl_kernel fixed = make_kernel(program, "fixed"), open = make_kernel(program, "open");
    size_t wanted[3] = {0}, most = 0, multiple = 0;
    cl_ulong local = 0, private_bytes = 0;
    OK(clGetKernelWorkGroupInfo(fixed, device, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof wanted,
                                wanted, NULL));
    CHECK(wanted[0] == 8 && wanted[1] == 4 && wanted[2] == 2);
    OK(clGetKernelWorkGroupInfo(open, device, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof wanted,
                                wanted, NULL));
    CHECK(wanted[0] == 0 && wanted[1] == 0 && wanted[2] == 0);
    OK(clGetKernelWorkGroupInfo(open, device, CL_KERNEL_WORK_GROUP_SIZE, sizeof most, &most, NULL));
    CHECK(most >= 1 && most <= device_size(device, CL_DEVICE_MAX_WORK_GROUP_SIZE));
    OK(clGetKernelWorkGroupInfo(open, device, CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE,
                                sizeof multiple, &multiple, NULL));
    CHECK(multiple >= 1);
    OK(clGetKernelWorkGroupInfo(fixed, device, CL_KERNEL_LOCAL_MEM_SIZE, sizeof local, &local,
                                NULL));
    CHECK(local >= 400);
    OK(clGetKernelWorkGroupInfo(open, device, CL_KERNEL_PRIVATE_MEM_SIZE, sizeof private_bytes,
                                &private_bytes, NULL));
    /* "If there is only one device in the context, device can be NULL." */
    OK(clGetKernelWorkGroupInfo(open, NULL, CL_KERNEL_WORK_GROUP_SIZE, sizeof most, &most, NULL));
    size_t global[3];
    GIVES(CL_INVALID_VALUE, clGetKernelWorkGroupInfo(open, device, CL_KERNEL_GLOBAL_WORK_SIZE,
                                                     sizeof global, global, NULL));
    GIVES(CL_INVALID_VALUE,
          clGetKernelWorkGroupInfo(open, device, CL_KERNEL_WORK_GROUP_SIZE, 1, &most, NULL));
    GIVES(CL_INVALID_VALUE, clGetKernelWorkGroupInfo(open, device, 0x1, sizeof most, &most, NULL));
    GIVES(CL_INVALID_KERNEL, clGetKernelWorkGroupInfo(NULL, device, CL_KERNEL_WORK_GROUP_SIZE,
                                                      sizeof most, &most, NULL));
    OK(clReleaseKernel(fixed));
    OK(clReleaseKernel(open));
    OK(clReleaseProgram(program));
}

TEST(local_memory_of_arguments_counts) {
    cl_kernel kernel = kernel_from(
        context, "kernel void k(local int *a, global int *b) { a[0] = 1; *b = a[0]; }", "k");
    cl_ulong before = 0, after = 0;
    OK(clSetKernelArg(kernel, 0, 64, NULL));
    OK(clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_LOCAL_MEM_SIZE, sizeof before, &before,
                                NULL));
    OK(clSetKernelArg(kernel, 0, 4096, NULL));
    OK(clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_LOCAL_MEM_SIZE, sizeof after, &after,
                                NULL));
    CHECK(after == before + 4096 - 64);
    OK(clReleaseKernel(kernel));
}

TEST(clone) {
    cl_int code;
    cl_uint back = 0, first = 5, second = 9;
    cl_kernel kernel =
        kernel_from(context, "kernel void put(global uint *w, uint v) { *w = v; }", "put");
    cl_mem mem = make_buffer(context, 0, 4, NULL);
    set_mem(kernel, 0, mem);
    OK(clSetKernelArg(kernel, 1, 4, &first));
    cl_kernel copy = clCloneKernel(kernel, &code);
    if (on_pocl() && code != CL_SUCCESS) test_skip("PoCL 3.1 cannot clone kernels");
    OK(code);
    OK(clSetKernelArg(kernel, 1, 4, &second));
    launch(queue, copy, 1);
    OK(clEnqueueReadBuffer(queue, mem, CL_TRUE, 0, 4, &back, 0, NULL, NULL));
    CHECK(back == 5);
    launch(queue, kernel, 1);
    OK(clEnqueueReadBuffer(queue, mem, CL_TRUE, 0, 4, &back, 0, NULL, NULL));
    CHECK(back == 9);
    OK(clReleaseKernel(copy));
    OK(clReleaseKernel(kernel));
    OK(clReleaseMemObject(mem));
    REFUSED(CL_INVALID_KERNEL, clCloneKernel(NULL, &err));
}

TEST(sub_group_info) {
    cl_kernel kernel = kernel_from(context, "kernel void k(global int *b) { *b = 1; }", "k");
    size_t local = 8, count = 0;
    cl_int code = clGetKernelSubGroupInfo(kernel, device, CL_KERNEL_MAX_SUB_GROUP_SIZE_FOR_NDRANGE,
                                          sizeof local, &local, sizeof count, &count, NULL);
    if (device_uint(device, CL_DEVICE_MAX_NUM_SUB_GROUPS) == 0) {
        CHECK(code == CL_INVALID_OPERATION || code == CL_INVALID_VALUE || on_pocl());
    } else {
        OK(code);
        CHECK(count >= 1);
    }
    OK(clReleaseKernel(kernel));
}

TEST(exec_info) {
    cl_kernel kernel = kernel_from(context, "kernel void k(global int *b) { *b = 1; }", "k");
    GIVES(CL_INVALID_KERNEL, clSetKernelExecInfo(NULL, CL_KERNEL_EXEC_INFO_SVM_FINE_GRAIN_SYSTEM, 4,
                                                 &(cl_bool){CL_FALSE}));
    GAP_BEGIN;
    GIVES_EITHER(CL_INVALID_VALUE, CL_INVALID_OPERATION,
                 clSetKernelExecInfo(kernel, 0x1, 4, &(cl_bool){CL_FALSE}));
    GAP_END;
    OK(clReleaseKernel(kernel));
}
