/* The headers are C99, each function that they declare is in the library, and the macros for
 * arguments mean what wtr.h says. */
#include <wtr.h>
#include <wtr_ext.h>

#include <stdarg.h>
#include <stdio.h>

typedef void (*function)(void);

static const function functions[] = {
    (function)wtr_init_devices,
    (function)wtr_get_device,
    (function)wtr_get_num_devices,
    (function)wtr_release_devices,
    (function)wtr_print_device_infos,
    (function)wtr_create_buffer,
    (function)wtr_write_buffer,
    (function)wtr_read_buffer,
    (function)wtr_release_buffer,
    (function)wtr_create_kernel,
    (function)wtr_run_kernel,
    (function)wtr_release_kernel,
    (function)wtr_create_event,
    (function)wtr_release_event,
    (function)wtr_merge_events,
    (function)wtr_wait_for_events,
    (function)wtr_init_event_array,
    (function)wtr_release_event_array,
    (function)wtr_last_error,
    (function)wtr_set_error_handler,
    (function)wtr_write_buffer_at,
    (function)wtr_read_buffer_at,
    (function)wtr_copy_buffer,
    (function)wtr_run_kernel_v,
    (function)wtr_merge_events_v,
    (function)wtr_wait_for_events_v,
    (function)wtr_init_devices_v,
    (function)wtr_get_device_v,
    (function)wtr_flush,
    (function)wtr_event_status,
    (function)wtr_event_error,
    (function)wtr_event_profile,
    (function)wtr_device_attribute,
    (function)wtr_dump_graph,
    (function)wtr_partition,
    (function)wtr_partition_weights,
    (function)wtr_partition_measure,
    (function)wtr_self_schedule,
};

/* Reads pairs as wtr_run_kernel() does. */
static int pairs_are(int count, ...) {
    static const size_t expected[] = {0, sizeof(double), 256};
    int right = 1;
    va_list list;
    va_start(list, count);
    for (int i = 0; i < count; i++) {
        const size_t size = va_arg(list, size_t);
        const void *address = va_arg(list, const void *);
        right &= size == expected[i] && (address == NULL) == (i == 2);
    }
    va_end(list);
    return right;
}

int main(void) {
    const double number = 1;
    int buffer = 0, missing = 0;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        missing += functions[i] == NULL;
    if (missing) printf("header: %d functions are missing\n", missing);
    if (!pairs_are(3, WTR_BUF(&buffer), WTR_ARG(number), WTR_LOCAL(256))) {
        printf("header: the macros for arguments are wrong\n");
        return 1;
    }
    return missing != 0;
}
