/* Files that a program includes: they lie in folders of this process, where no driver of a pool can
 * read them. Each case runs on every device. */
#include "harness.h"

#include <errno.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

#define KERNEL "\nkernel void put(global int *w) { *w = VALUE; }\n"

static char folder[256]; /* the current folder of the process */

/* Writes a file below the folder, and the folders in its name. */
static void put_file(const char *name, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void put_file(const char *name, const char *format, ...) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (char *slash = path + strlen(folder) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        REQUIRE(mkdir(path, 0700) == 0 || errno == EEXIST);
        *slash = '/';
    }
    FILE *file = fopen(path, "w");
    REQUIRE(file != NULL);
    va_list values;
    va_start(values, format);
    vfprintf(file, format, values);
    va_end(values);
    REQUIRE(fclose(file) == 0);
}

/* Makes an empty folder and goes there. */
static void enter(void) {
    const char *parent = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/penstock-includes-XXXXXX", parent ? parent : "/tmp");
    REQUIRE(mkdtemp(folder) != NULL);
    REQUIRE(chdir(folder) == 0);
}

static void leave(void) {
    char command[512];
    REQUIRE(chdir("/") == 0);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    CHECK(system(command) == 0);
}

/* Formats options in which %s stands for the folder, and returns them. */
static const char *with_folder(const char *format) {
    static char text[1024];
    const char *at = strstr(format, "%s");
    REQUIRE(at != NULL);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - format), format, folder, at + 2);
    return text;
}

struct built {
    cl_context context;
    cl_command_queue queue;
    cl_program program;
    cl_int code;
    char log[8192];
};

static struct built begin(cl_device_id on, const char *source) {
    struct built it = {0};
    cl_int code;
    it.context = make_context(1, &on);
    it.queue = make_queue(it.context, on, 0);
    it.program = clCreateProgramWithSource(it.context, 1, &source, NULL, &code);
    OK(code);
    return it;
}

static void build_again(struct built *it, const char *options) {
    it->code = clBuildProgram(it->program, 0, NULL, options, NULL, NULL);
    cl_device_id on;
    OK(clGetContextInfo(it->context, CL_CONTEXT_DEVICES, sizeof on, &on, NULL));
    it->log[0] = 0;
    OK(clGetProgramBuildInfo(it->program, on, CL_PROGRAM_BUILD_LOG, sizeof it->log, it->log, NULL));
    if (it->code != CL_SUCCESS) test_note("%s", it->log);
}

static cl_int word_from(struct built *it) {
    REQUIRE(it->code == CL_SUCCESS);
    cl_kernel kernel = make_kernel(it->program, "put");
    cl_int word = (cl_int)word_of(it->context, it->queue, kernel, 1);
    OK(clReleaseKernel(kernel));
    return word;
}

static void end(struct built *it) {
    OK(clReleaseProgram(it->program));
    OK(clReleaseCommandQueue(it->queue));
    OK(clReleaseContext(it->context));
}

/* Builds a program and returns the word that its kernel writes. */
static cl_int value_of(cl_device_id on, const char *source, const char *options) {
    struct built it = begin(on, source);
    build_again(&it, options);
    cl_int word = word_from(&it);
    end(&it);
    return word;
}

#define EACH_DEVICE(on)                                    \
    for (cl_uint on##_ = 0; on##_ < device_count; on##_++) \
        for (cl_device_id on = devices[on##_]; on; on = NULL)

TEST(folders_of_options) {
    enter();
    put_file("one/a.h", "#define VALUE 11\n");
    put_file("two/a.h", "#define VALUE 22\n");
    put_file("two/b c/a.h", "#define VALUE 33\n");
    EACH_DEVICE(on) {
        CHECK(value_of(on, "#include \"a.h\"" KERNEL, "-I one -I two") == 11);
        CHECK(value_of(on, "#include <a.h>" KERNEL, "-Itwo -w -I one") == 22);
        CHECK(value_of(on, "#include <one/a.h>" KERNEL, with_folder("-DX -I %s")) == 11);
        CHECK(value_of(on, "#include \"b c/a.h\"" KERNEL, with_folder("-I %s/two")) == 33);
        CHECK(value_of(on, "#include <a.h>" KERNEL, with_folder("-I %s/one/../two")) == 22);
    }
    leave();
}

TEST(folder_with_a_space) {
    /* PoCL 3.1 itself splits such an option. */
    if (!on_penstock()) test_skip("the driver's own parser of options");
    enter();
    put_file("a b/a.h", "#define VALUE 44\n");
    EACH_DEVICE(on) { CHECK(value_of(on, "#include <a.h>" KERNEL, "-I \"a b\"") == 44); }
    leave();
}

/* Latin-1: options and names of files are bytes, and need not be UTF-8. */
TEST(folder_with_bytes_that_are_no_utf8) {
    enter();
    put_file("J\xfcrgen/a.h", "#define VALUE 55\n");
    const char *options = "-DNAME=\"J\xfc\" -I J\xfcrgen";
    EACH_DEVICE(on) {
        struct built it = begin(on, "#include <a.h>" KERNEL);
        build_again(&it, options);
        CHECK(word_from(&it) == 55);
        char told[64] = "";
        OK(clGetProgramBuildInfo(it.program, on, CL_PROGRAM_BUILD_OPTIONS, 64, told, NULL));
        CHECK(strcmp(told, options) == 0);
        end(&it);
    }
    leave();
}

TEST(files_that_include_files) {
    enter();
    put_file("inc/a.h", "#pragma once\n#include \"deep/b.h\"\n#include <c.h>\n");
    put_file("inc/deep/b.h",
             "#ifndef B\n#define B\n#include \"d.h\"\n#include \"../e.h\"\n#endif\n");
    put_file("inc/deep/d.h", "#define D 1\n");
    put_file("inc/e.h", "#include \"deep/b.h\"\n#include \"a.h\"\n#define E 20\n");
    put_file("inc/c.h", "#if 0\n#include \"never.h\"\n#endif\n#define C 300\n");
    put_file("inc/x.h", "+ X\n");
    const char *source =
        "#include \"a.h\"\n#include \"a.h\"\n"
        "#define VALUE C + D + E SUM\n"
        "constant int sum = 0\n#define X 1000\n#include <x.h>\n#undef X\n#define X 2000\n"
        "#include <x.h>\n;\n#define SUM + sum\n" KERNEL;
    EACH_DEVICE(on) { CHECK(value_of(on, source, "-I inc") == 3321); }
    leave();
}

TEST(names_with_a_whole_path) {
    enter();
    put_file("a.h", "#include \"%s/deep/b.h\"\n", folder);
    put_file("deep/b.h", "#include \"c.h\"\n");
    put_file("deep/c.h", "#define VALUE 55\n");
    char source[1024];
    snprintf(source, sizeof source, "// \"\n#include \"%s/a.h\"" KERNEL, folder);
    EACH_DEVICE(on) { CHECK(value_of(on, source, NULL) == 55); }
    leave();
}

TEST(current_folder) {
    enter();
    put_file("a.h", "#include \"deep/b.h\"\n");
    put_file("deep/b.h", "#define VALUE 66\n");
    EACH_DEVICE(on) {
        CHECK(value_of(on, "#include \"a.h\"" KERNEL, NULL) == 66);
        CHECK(value_of(on, "#include \"a.h\"" KERNEL, "") == 66);
    }
    leave();
}

TEST(links) {
    enter();
    put_file("real/a.h", "#pragma once\n#include \"b.h\"\nconstant int once = 77;\n");
    put_file("real/b.h", "#define VALUE once\n");
    put_file("other/b.h", "#define VALUE once + 1\n");
    REQUIRE(symlink("real", "folder") == 0);
    REQUIRE(symlink("../real/a.h", "other/a.h") == 0);
    EACH_DEVICE(on) {
        CHECK(value_of(on, "#include <a.h>" KERNEL, "-I folder") == 77);
        CHECK(value_of(on, "#include <folder/../real/a.h>" KERNEL, with_folder("-I %s")) == 77);
        CHECK(value_of(on, "#include <folder/a.h>\n#include <real/a.h>" KERNEL, "-I .") == 77);
    }
    leave();
}

TEST(operand_that_is_a_macro) {
    enter();
    put_file("inc/a.h", "#define VALUE 88\n");
    EACH_DEVICE(on) {
        CHECK(value_of(on, "#define NAME \"a.h\"\n#include NAME" KERNEL, "-I inc") == 88);
        CHECK(value_of(on, "#include NAME" KERNEL, "-I inc -DNAME=<a.h>") == 88);
    }
    leave();
}

TEST(missing_file) {
    enter();
    put_file("inc/a.h", "#include \"missing.h\"\n");
    char source[1024];
    EACH_DEVICE(on) {
        struct built it = begin(on, "#include \"missing.h\"" KERNEL);
        build_again(&it, "-I inc");
        CHECK(it.code == CL_BUILD_PROGRAM_FAILURE);
        CHECK(strstr(it.log, "'missing.h' file not found") != NULL);
        end(&it);
        it = begin(on, "#include \"a.h\"" KERNEL);
        build_again(&it, "-I inc");
        CHECK(it.code == CL_BUILD_PROGRAM_FAILURE);
        CHECK(strstr(it.log, "'missing.h' file not found") != NULL);
        end(&it);
        snprintf(source, sizeof source, "#include \"%s/missing.h\"" KERNEL, folder);
        it = begin(on, source);
        build_again(&it, NULL);
        CHECK(it.code == CL_BUILD_PROGRAM_FAILURE);
        CHECK(strstr(it.log, with_folder("'%s/missing.h' file not found")) != NULL);
        end(&it);
    }
    leave();
}

TEST(changed_file) {
    enter();
    EACH_DEVICE(on) {
        put_file("inc/a.h", "#define VALUE 1\n");
        struct built it = begin(on, "#include \"a.h\"" KERNEL);
        build_again(&it, "-I inc");
        CHECK(word_from(&it) == 1);
        put_file("inc/a.h", "#define VALUE 2\n");
        double limit = seconds() + patience_s();
        /* PoCL releases a kernel a moment after its last command is complete. */
        do build_again(&it, "-I inc");
        while (on_pocl() && it.code == CL_INVALID_OPERATION && seconds() < limit);
        CHECK(word_from(&it) == 2);
        end(&it);
        put_file("inc/a.h", "#define VALUE 3\n");
        CHECK(value_of(on, "#include \"a.h\"" KERNEL, "-I inc") == 3);
    }
    leave();
}

TEST(paths_are_those_of_the_program) {
    enter();
    put_file("inc/deep/a.h", "#define FILE_SIZE sizeof(__FILE__)\n#define LINE __LINE__\n");
    put_file("inc/size.h",
             "constant int size = sizeof(__FILE__);\nconstant int line = __LINE__;\n");
    put_file("inc/bad.h", "\n\nint 7wrong;\n");
    char options[512];
    snprintf(options, sizeof options, "-I %s/inc -w", folder);
    EACH_DEVICE(on) {
        const char *source = "#include <size.h>\n#define VALUE size * 10 + line" KERNEL;
        CHECK(value_of(on, source, options) == (cl_int)(strlen(folder) + 12) * 10 + 2);
        CHECK(value_of(on, source, "-I inc") == (cl_int)sizeof "inc/size.h" * 10 + 2);
        struct built it = begin(on, "#include \"bad.h\"" KERNEL);
        build_again(&it, options);
        CHECK(it.code == CL_BUILD_PROGRAM_FAILURE);
        CHECK(strstr(it.log, with_folder("%s/inc/bad.h:3:")) != NULL);
        CHECK(strstr(it.log, "headers/") == NULL && strstr(it.log, "penstock-absolute") == NULL);
        char text[512];
        OK(clGetProgramBuildInfo(it.program, on, CL_PROGRAM_BUILD_OPTIONS, sizeof text, text,
                                 NULL));
        CHECK(strncmp(text, options, strlen(options)) == 0);
        end(&it);
    }
    leave();
}

TEST(headers_as_objects_beside_files) {
    enter();
    put_file("inc/file.h", "#define FILE_VALUE 5\n");
    EACH_DEVICE(on) {
        struct built it = begin(on, "#include \"object.h\"\n#define VALUE FILE_VALUE + 90" KERNEL);
        cl_int code;
        const char *text = "#include <file.h>\n", *name = "object.h";
        cl_program header = clCreateProgramWithSource(it.context, 1, &text, NULL, &code);
        OK(code);
        OK(clCompileProgram(it.program, 0, NULL, "-I inc", 1, &header, &name, NULL, NULL));
        cl_program linked =
            clLinkProgram(it.context, 0, NULL, NULL, 1, &it.program, NULL, NULL, &code);
        OK(code);
        OK(clReleaseProgram(it.program));
        it.program = linked;
        CHECK(word_from(&it) == 95);
        OK(clReleaseProgram(header));
        end(&it);
    }
    leave();
}

TEST(files_that_print) {
    enter();
    put_file("inc/say.h", "#define SAY printf(\"said by a file\\n\")\n#define VALUE 1\n");
    EACH_DEVICE(on) {
        struct built it =
            begin(on, "#include \"say.h\"\nkernel void put(global int *w) { SAY; *w = VALUE; }\n");
        build_again(&it, "-I inc");
        char text[256];
        int saved = capture_begin();
        cl_int word = word_from(&it);
        capture_end(saved, text, sizeof text);
        CHECK(word == 1);
        CHECK(strcmp(text, "said by a file\n") == 0);
        end(&it);
    }
    leave();
}
