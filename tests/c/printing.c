/* The output of a kernel's printf appears on the program's standard output, in whole lines, once
 * the queue is finished. */
#include "harness.h"

static char captured[1 << 20];

static void run_and_capture(const char *source, size_t items) {
    cl_kernel kernel = kernel_from(context, source, "say");
    const int saved = capture_begin();
    cl_int code = clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, NULL, 0, NULL, NULL);
    cl_int finished = clFinish(queue);
    capture_end(saved, captured, sizeof captured);
    OK(code);
    OK(finished);
    OK(clReleaseKernel(kernel));
}

TEST(one_line) {
    run_and_capture(
        "kernel void say(void) { printf(\"hello %d %s %c|%5.2f|%x\\n\", 42, \"text\", 'z', 1.5f, 255); }",
        1);
    if (strcmp(captured, "hello 42 text z| 1.50|ff\n") != 0)
        test_fail(__FILE__, __LINE__, "printed: %s", captured);
}

TEST(vectors) {
    run_and_capture(
        "kernel void say(void) { printf(\"%v4hld %v2hlf\\n\", (int4)(1, 2, 3, 4), (float2)(1.5f, 2.5f)); }",
        1);
    if (strcmp(captured, "1,2,3,4 1.500000,2.500000\n") != 0)
        test_fail(__FILE__, __LINE__, "printed: %s", captured);
}

TEST(many_items) {
    enum { ITEMS = 500 };
    bool seen[ITEMS] = {false};
    int lines = 0;
    run_and_capture("kernel void say(void) { printf(\"item %d ends\\n\", (int)get_global_id(0)); }",
                    ITEMS);
    for (char *line = strtok(captured, "\n"); line; line = strtok(NULL, "\n"), lines++) {
        int item = -1, used = 0;
        if (sscanf(line, "item %d ends%n", &item, &used) != 1 || used != (int)strlen(line) ||
            item < 0 || item >= ITEMS || seen[item])
            test_fail(__FILE__, __LINE__, "a wrong line: %s", line);
        else
            seen[item] = true;
    }
    CHECK(lines == ITEMS);
}

TEST(in_order_with_the_program) {
    run_and_capture("kernel void say(void) { printf(\"first\\n\"); }", 1);
    CHECK(strcmp(captured, "first\n") == 0);
    run_and_capture("kernel void say(void) { printf(\"second\\n\"); }", 1);
    CHECK(strcmp(captured, "second\n") == 0);
}
