/* What the C programs of the driver API share: checks, counts, a context and a module. A program
 * includes this file, calls run() for each case, and ends with `return finish("NAME")`. */
#pragma once
#include <cuda.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* With this macro cuda.h gives each name to the symbol of that name. */
#ifdef __CUDA_API_VERSION_INTERNAL
#define cuMemcpyDtoH cuMemcpyDtoH_v2
#endif

static int cases_passed, cases_failed, failures;

static inline const char *name_of(CUresult code) {
    const char *name = "no such code";
    cuGetErrorName(code, &name);
    return name;
}

static inline void expect(CUresult got, CUresult wanted, const char *call, const char *file,
                          int line) {
    if (got == wanted) return;
    printf("  FAIL %s:%d: %s gave %s (%d), not %s\n", file, line, call, name_of(got), got,
           name_of(wanted));
    failures++;
}
#define EXPECT_CODE(call, wanted) expect((call), (wanted), #call, __FILE__, __LINE__)
#define OK(call) EXPECT_CODE(call, CUDA_SUCCESS)
#define EXPECT(condition)                                                         \
    do {                                                                          \
        if (!(condition)) {                                                       \
            printf("  FAIL %s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            failures++;                                                           \
        }                                                                         \
    } while (0)

static inline void run_case(const char *name, void (*test)(void)) {
    failures = 0;
    test();
    printf("  %s %s\n", failures == 0 ? "ok  " : "FAIL", name);
    fflush(stdout);
    if (failures == 0)
        cases_passed++;
    else
        cases_failed++;
}
#define RUN(test) run_case(#test, test)

static inline int finish(const char *program) {
    printf("%s: %d passed, %d failed, 0 skipped\n", program, cases_passed, cases_failed);
    return cases_failed > 0;
}

/* `fill` stores value + i in to[i] for each i below count. */
static const char ptx[] =
    ".version 6.4\n.target sm_70\n.address_size 64\n"
    ".visible .global .align 4 .u32 counter = 7;\n"
    ".visible .entry fill(.param .u64 to, .param .u32 value, .param .u32 count)\n{\n"
    "    .reg .pred %p<2>;\n    .reg .b32 %r<6>;\n    .reg .b64 %rd<4>;\n"
    "    ld.param.u64 %rd1, [to];\n    ld.param.u32 %r1, [value];\n    ld.param.u32 %r2, [count];\n"
    "    cvta.to.global.u64 %rd1, %rd1;\n"
    "    mov.u32 %r3, %ctaid.x;\n    mov.u32 %r4, %ntid.x;\n    mov.u32 %r5, %tid.x;\n"
    "    mad.lo.s32 %r3, %r3, %r4, %r5;\n    setp.ge.u32 %p1, %r3, %r2;\n    @%p1 bra done;\n"
    "    mul.wide.u32 %rd2, %r3, 4;\n    add.s64 %rd3, %rd1, %rd2;\n    add.s32 %r1, %r1, %r3;\n"
    "    st.global.u32 [%rd3], %r1;\ndone:\n    ret;\n}\n";

static CUcontext context;

/* Makes the primary context of the first device current. */
static inline void begin(void) {
    CUdevice device = 0;
    if (cuInit(0) == CUDA_SUCCESS && cuDeviceGet(&device, 0) == CUDA_SUCCESS &&
        cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS &&
        cuCtxSetCurrent(context) == CUDA_SUCCESS)
        return;
    printf("no device with a context\n");
    exit(1);
}

/* Loads the module. */
static inline CUmodule loaded(CUfunction *function) {
    CUmodule module = NULL;
    OK(cuModuleLoadData(&module, ptx));
    OK(cuModuleGetFunction(function, module, "fill"));
    return module;
}

/* Whether memory on the device has what `fill` stores. */
static inline bool is_filled(CUdeviceptr memory, unsigned value, unsigned count) {
    unsigned *values = calloc(count, sizeof *values);
    OK(cuMemcpyDtoH(values, memory, count * sizeof *values));
    unsigned at = 0;
    while (at < count && values[at] == value + at) at++;
    free(values);
    return at == count;
}
