/* Listing 1 of the libWater paper, as printed but for what cannot be meant:
 *
 *   - it initialises 7 events and uses 8; the eighth comes from wtr_merge_events(), and all 8 are
 * released together;
 *   - NVIDIA's graphics processors became processors, which every machine has;
 *   - `offset` is a size_t, which no kernel can take: the kernel takes a ulong, which has the same
 * 8 bytes;
 *   - it asks for nodes 0 and 1; where there is only one node, it is asked twice.
 *
 * What stays is a test of the library: the size 0 of the buffer is an int among variadic arguments,
 * and `offset` is gone when the kernel runs.
 *
 *   listing1 [NODES]   in the folder of kernel.cl
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <wtr.h>

int main(int argc, char **argv) {
    const int nodes = argc > 1 ? atoi(argv[1]) : 1;
    const size_t size = 1 << 20;
    if (nodes < 1) {
        fprintf(stderr, "listing1: the number of nodes is at least 1\n");
        return 2;
    }
    wtr_init_devices("SELECT ALL WHERE (type = cpu AND available)");

    unsigned char *ptr = malloc(size);
    if (!ptr) return 1;
    for (size_t i = 0; i < size; i++) ptr[i] = (unsigned char)(i * 7);

    wtr_event *evts[2];
    for (int i = 0; i < 2; ++i) {
        size_t offset = size / 2 * i;
        wtr_device *dev =
            wtr_get_device("SELECT POS 1 FROM NODE %d WHERE global_memory > 1024MB", i % nodes);
        assert(dev != NULL && "Device does not exist!");
        wtr_event *e[8];
        wtr_init_event_array(7, e);
        wtr_kernel *kern = wtr_create_kernel(dev, "kernel.cl", "fun", "", WTR_SOURCE, e + 0);
        wtr_buffer *buff = wtr_create_buffer(dev, WTR_MEM_READ_WRITE, size / 2, e + 1);
        wtr_write_buffer(buff, size / 2, ptr + offset, e + 1, e + 2);
        e[7] = wtr_merge_events(2, e + 0, e + 2);
        wtr_run_kernel(kern, 1, (size_t[1]){size / 2}, NULL, e + 7, e + 3, 2, 0, buff,
                       sizeof(size_t), &offset);
        wtr_read_buffer(buff, size / 2, ptr + offset, e + 3, e + 4);
        wtr_release_buffer(buff, e + 4, e + 5);
        wtr_release_kernel(kern, e + 3, e + 6);
        evts[i] = wtr_merge_events(2, e + 5, e + 6);
        wtr_release_event_array(8, e);
    }
    /* Blocks until buffers and kernels are released */
    wtr_wait_for_events(2, evts + 0, evts + 1);
    wtr_release_event_array(2, evts);

    size_t wrong = 0;
    for (size_t i = 0; i < size; i++)
        wrong += ptr[i] != (unsigned char)((unsigned char)(i * 7) * 3 + i % 251);
    printf("listing 1: %zu of %zu bytes wrong\n", wrong, size);
    free(ptr);
    wtr_release_devices();
    return wrong != 0;
}
