/* The picture of a run: one row per device, transfers above, kernels below. */
#include "matmul.h"

#include <errno.h>
#include <math.h>
#include <string.h>

enum { LEFT = 250, RIGHT = 130, TOP = 84, ROW = 62, LANE = 20, CHART = 830, BOTTOM = 56 };

static const struct {
    const char *name, *color;
} looks[STEPS] = {
    [STEP_WRITE] = {"write slices", "#4c78a8"},
    [STEP_KERNEL] = {"kernel", "#f58518"},
    [STEP_READ] = {"read block", "#54a24b"},
};

static void text(FILE *out, double x, double y, const char *class, const char *anchor,
                 const char *what) {
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\" text-anchor=\"%s\">", x, y, class,
            anchor);
    for (; *what; what++) {
        switch (*what) {
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '&': fputs("&amp;", out); break;
        default: fputc(*what, out);
        }
    }
    fputs("</text>\n", out);
}

/* 1, 2 or 5 times a power of ten, so that there are about eight ticks. */
static double tick_step(double total_s) {
    const double raw = total_s / 8, power = pow(10, floor(log10(raw))), lead = raw / power;
    return power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
}

static void axis(FILE *out, double total_s, double bottom) {
    const double step = tick_step(total_s);
    const bool in_ms = total_s < 1;
    const int digits = in_ms ? (step < 1e-3 ? 1 : 0) : step < 0.1 ? 2 : step < 1 ? 1 : 0;
    for (double at = 0; at <= total_s * 1.0001; at += step) {
        const double x = LEFT + CHART * at / total_s;
        char label[32];
        fprintf(out, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%.1f\" class=\"grid\"/>\n", x,
                TOP - 8, x, bottom);
        snprintf(label, sizeof label, in_ms ? "%.*f ms" : "%.*f s", digits, in_ms ? 1e3 * at : at);
        text(out, x, bottom + 18, "small", "middle", label);
    }
}

static void device_row(FILE *out, const struct device *device, size_t index, double total_s) {
    const double y = TOP + (double)index * ROW;
    char line[300];
    snprintf(line, sizeof line, "%.28s%s", device->name, strlen(device->name) > 28 ? "…" : "");
    text(out, 14, y + 26, "label", "start", line);
    snprintf(line, sizeof line, "%s%.32s", device->host[0] ? "on " : "",
             device->host[0] ? device->host : device->platform_name);
    text(out, 14, y + 44, "small", "start", line);
    for (size_t i = 0; i < device->bar_count; i++) {
        const struct bar *bar = &device->bars[i];
        const double x = LEFT + CHART * fmax(0, bar->start_s) / total_s;
        const double width = fmax(1.5, CHART * (bar->end_s - fmax(0, bar->start_s)) / total_s);
        const double top = y + 9 + (bar->step == STEP_KERNEL ? LANE + 4 : 0);
        fprintf(out,
                "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" class=\"s%d%s\">"
                "<title>%s, block %u,%u: %.3f to %.3f ms</title></rect>\n",
                x, top, width, LANE, bar->step, bar->step == STEP_KERNEL ? " kernel" : "",
                looks[bar->step].name, bar->row, bar->column, 1e3 * bar->start_s, 1e3 * bar->end_s);
    }
    snprintf(line, sizeof line, "%zu slices", device->slices);
    text(out, LEFT + CHART + 14, y + 26, "label", "start", line);
    snprintf(line, sizeof line, "busy %.0f %%", 100 * device->kernel_s / total_s);
    text(out, LEFT + CHART + 14, y + 44, "small", "start", line);
}

bool timeline_write(const char *file, const struct device *devices, size_t count, double total_s,
                    const struct options *options) {
    FILE *out = fopen(file, "w");
    if (!out) {
        fprintf(stderr, "matmul: cannot write %s: %s\n", file, strerror(errno));
        return false;
    }
    const int width = LEFT + CHART + RIGHT, bottom = TOP + (int)count * ROW,
              height = bottom + BOTTOM;
    char line[200];
    fprintf(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\">\n",
        width, height, width, height);
    fputs(
        "<style>text{font-family:system-ui,'DejaVu Sans',sans-serif;fill:#222}.title{font-size:18px;font-weight:600}"
        ".label{font-size:13px}.small{font-size:12px;fill:#666}.grid{stroke:#ddd;stroke-width:1}.band{fill:#f6f7f9}"
        ".kernel{stroke:#fff;stroke-width:.6}",
        out);
    for (int step = 0; step < STEPS; step++) fprintf(out, ".s%d{fill:%s}", step, looks[step].color);
    fputs("</style>\n", out);
    fprintf(out, "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", width, height);
    snprintf(line, sizeof line, "C = A B, n = %zu, slice = %zu: %.2f s, %.2f GFLOP/s", options->n,
             options->slice, total_s,
             2e-9 * (double)options->n * (double)options->n * (double)options->n / total_s);
    text(out, 14, 30, "title", "start", line);
    for (int step = 0; step < STEPS; step++) {
        const int x = LEFT + 130 * step;
        fprintf(out, "<rect x=\"%d\" y=\"46\" width=\"14\" height=\"14\" class=\"s%d\"/>\n", x,
                step);
        text(out, x + 20, 58, "label", "start", looks[step].name);
    }
    for (size_t i = 0; i < count; i++) /* bands first, the grid over them, the bars on top */
        if (i % 2 == 0)
            fprintf(out, "<rect x=\"0\" y=\"%d\" width=\"%d\" height=\"%d\" class=\"band\"/>\n",
                    TOP + (int)i * ROW, width, ROW);
    axis(out, total_s, bottom);
    for (size_t i = 0; i < count; i++) device_row(out, &devices[i], i, total_s);
    fputs("</svg>\n", out);
    if (fclose(out) != 0) {
        fprintf(stderr, "matmul: cannot write %s: %s\n", file, strerror(errno));
        return false;
    }
    return true;
}
