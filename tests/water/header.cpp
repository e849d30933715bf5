// The headers are C++11, with the names of C; a small program links and runs without a device.
#include <wtr.h>
#include <wtr_ext.h>

#include <cstdio>
#include <cstring>

namespace {

int told = 0;

void handle(const wtr_error *error, void *user) {
    told +=
        error->code == WTR_ESTATE && error->message != nullptr && std::strlen(error->message) > 0;
    *static_cast<int *>(user) += 1;
}

} // namespace

int main() {
    int calls = 0;
    wtr_set_error_handler(handle, &calls);
    // Nothing is initialised: an error of the call, not the end of the program.
    wtr_buffer *buffer = wtr_create_buffer(nullptr, WTR_MEM_READ_ONLY, 16, nullptr);
    const wtr_error *error = wtr_last_error();
    if (buffer != nullptr || error == nullptr || error->code != WTR_ESTATE) {
        std::printf("header: a call before wtr_init_devices() does not fail as it should\n");
        return 1;
    }
    if (calls != told) {
        std::printf("header: the handler was told something else\n");
        return 1;
    }
    std::size_t parts[3];
    if (wtr_partition(10, 4, 3, nullptr, parts) != WTR_SUCCESS ||
        parts[0] + parts[1] + parts[2] != 10) {
        std::printf("header: wtr_partition() gives %zu + %zu + %zu of 10\n", parts[0], parts[1],
                    parts[2]);
        return 1;
    }
    return 0;
}
