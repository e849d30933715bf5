/* The command line. */
#include "matmul.h"

#include <stdlib.h>
#include <string.h>

static const char *const help =
    "matmul: block matrix product C = A B over all OpenCL devices\n"
    "\n"
    "  --n N              order of the matrices (default 1024)\n"
    "  --slice N          order of a block; divides n (default 256)\n"
    "  --paper 8k|16k|24k the sizes of the clOpenCL paper: n = 8192, 16384, 24576; slice = 1024, 2048, 4096\n"
    "                     (with 24k: 6.8 GB of host memory, 1.7 GB of each device)\n"
    "  --depth N          blocks in flight per device (default 2; 1 is the paper's way)\n"
    "  --keep             do not send a slice again that the device still has\n"
    "  --wide             a kernel with vectors of eight (n must be a multiple of 8)\n"
    "  --platform TEXT    only platforms with TEXT in their name (default: all)\n"
    "  --devices LIST     only these devices, by number, as in 0,2 (default: all)\n"
    "  --list             list the devices and end\n"
    "  --rounds N         random vectors of the check (default 4)\n"
    "  --no-check         do not check the product\n"
    "  --timeline FILE    write a picture of what ran when (SVG)\n"
    "  --json             print JSON\n";

static void paper_sizes(struct options *options, const char *which) {
    static const struct {
        const char *name;
        size_t n, slice;
    } sizes[] = {{"8k", 8192, 1024}, {"16k", 16384, 2048}, {"24k", 24576, 4096}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (which && strcmp(which, sizes[i].name) == 0) {
            options->n = sizes[i].n;
            options->slice = sizes[i].slice;
            return;
        }
    }
    fail("--paper wants 8k, 16k or 24k");
}

bool options_read(struct options *options, int argc, char **argv, int *exit_code) {
    *options = (struct options){.n = 1024, .slice = 256, .depth = 2, .rounds = 4, .check = true};
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        bool takes_value = true;
        if (strcmp(name, "--n") == 0)
            options->n = option_number(name, value);
        else if (strcmp(name, "--slice") == 0)
            options->slice = option_number(name, value);
        else if (strcmp(name, "--paper") == 0)
            paper_sizes(options, value);
        else if (strcmp(name, "--depth") == 0)
            options->depth = option_number(name, value);
        else if (strcmp(name, "--rounds") == 0)
            options->rounds = (unsigned)option_number(name, value);
        else if (strcmp(name, "--platform") == 0)
            options->platform = value;
        else if (strcmp(name, "--devices") == 0)
            options->devices = value;
        else if (strcmp(name, "--timeline") == 0)
            options->timeline = value;
        else {
            takes_value = false;
            if (strcmp(name, "--keep") == 0)
                options->keep = true;
            else if (strcmp(name, "--wide") == 0)
                options->wide = true;
            else if (strcmp(name, "--json") == 0)
                options->json = true;
            else if (strcmp(name, "--list") == 0)
                options->list = true;
            else if (strcmp(name, "--no-check") == 0)
                options->check = false;
            else {
                bool asked = strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0;
                if (!asked) fprintf(stderr, "matmul: no such option: %s\n", name);
                fputs(help, asked ? stdout : stderr);
                *exit_code = asked ? 0 : 2;
                return false;
            }
        }
        if (takes_value && !value) fail("%s wants a value", name);
        i += takes_value;
    }
    if (options->n % options->slice)
        fail("the slice (%zu) must divide n (%zu)", options->slice, options->n);
    if (options->wide && options->n % 8)
        fail("--wide wants n to be a multiple of 8, not %zu", options->n);
    /* 64 n < 2^24, see fill() */
    if (options->n > 262143)
        fail("n is at most 262143: beyond it the sums are not exact in single precision");
    if (options->depth > 16) fail("--depth is at most 16");
    if (options->rounds > 64) fail("--rounds is at most 64");
    return true;
}
