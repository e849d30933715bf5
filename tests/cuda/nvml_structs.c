/* Every function of NVML that fills a structure or a number writes exactly the bytes of its own
 * version. Programs look functions up by name, so a function without a version in its name gets
 * NVML's first version of the structure. Guard bytes lie behind each place. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* The structures of NVML, in the current and the earlier versions of its header. */
typedef struct {
    char bus_id[16];
    unsigned domain, bus, device, pci_device_id;
} pci_v1;
typedef struct {
    pci_v1 first;
    unsigned pci_sub_system_id, reserved[4];
} pci_v2;
typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_sub_system_id;
    char bus_id[32];
} pci_v3;
typedef struct {
    unsigned long long total, free, used;
} memory_v1;
typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} memory_v2;
typedef struct {
    unsigned gpu, memory;
} utilization;

#if __has_include(<nvml.h>)
/* If NVIDIA's header is there, it must agree. */
#include <nvml.h>
_Static_assert(sizeof(pci_v3) == sizeof(nvmlPciInfo_t) &&
                   offsetof(pci_v3, bus_id) == offsetof(nvmlPciInfo_t, busId),
               "nvmlPciInfo_t");
_Static_assert(sizeof(memory_v1) == sizeof(nvmlMemory_t) &&
                   offsetof(memory_v1, used) == offsetof(nvmlMemory_t, used),
               "nvmlMemory_t");
_Static_assert(sizeof(memory_v2) == sizeof(nvmlMemory_v2_t) &&
                   offsetof(memory_v2, used) == offsetof(nvmlMemory_v2_t, used),
               "nvmlMemory_v2_t");
_Static_assert(sizeof(utilization) == sizeof(nvmlUtilization_t), "nvmlUtilization_t");
#endif

enum { place_bytes = 256, guard = 0x5a, success = 0, not_supported = 3, version_mismatch = 25 };

static int cases_passed, cases_failed;
static void *library, *device;
static unsigned char place[place_bytes];

static void *function(const char *name) {
    void *found = dlsym(library, name);
    if (found == NULL) printf("  FAIL no %s\n", name);
    return found;
}

static void report(const char *name, int is_right, int code, size_t written, size_t wanted) {
    if (is_right)
        printf("  ok   %s writes %zu bytes\n", name, written);
    else
        printf("  FAIL %s gives %d and writes %zu bytes, not %zu\n", name, code, written, wanted);
    if (is_right)
        cases_passed++;
    else
        cases_failed++;
}

static size_t written(void) {
    size_t end = place_bytes;
    while (end > 0 && place[end - 1] == guard) end--;
    return end;
}

/* Checks that a function (device, place) writes `bytes` bytes. The structure starts with `version`,
 * unless that is 0. A function that is not supported writes nothing. */
static void writes(const char *name, size_t bytes, unsigned version) {
    int (*const ask)(void *, void *) = (int (*)(void *, void *))(intptr_t)function(name);
    if (ask == NULL) {
        cases_failed++;
        return;
    }
    memset(place, guard, sizeof place);
    if (version != 0) memcpy(place, &version, sizeof version);
    const int code = ask(device, place);
    const size_t end = written(),
                 wanted = code == not_supported ? (version != 0 ? sizeof version : 0) : bytes;
    report(name,
           (code == success || code == not_supported) && end <= wanted &&
               (code != success || bytes - end < 8),
           code, end, wanted);
}

static void pci_infos_agree(void) {
    pci_v1 first;
    pci_v2 second;
    pci_v3 third;
    int (*const one)(void *, pci_v1 *) =
        (int (*)(void *, pci_v1 *))(intptr_t)function("nvmlDeviceGetPciInfo");
    int (*const two)(void *, pci_v2 *) =
        (int (*)(void *, pci_v2 *))(intptr_t)function("nvmlDeviceGetPciInfo_v2");
    int (*const three)(void *, pci_v3 *) =
        (int (*)(void *, pci_v3 *))(intptr_t)function("nvmlDeviceGetPciInfo_v3");
    const int is_right =
        one != NULL && two != NULL && three != NULL && one(device, &first) == success &&
        two(device, &second) == success && three(device, &third) == success &&
        strcmp(first.bus_id, third.bus_id_legacy) == 0 &&
        strcmp(second.first.bus_id, first.bus_id) == 0 && first.domain == third.domain &&
        first.bus == third.bus && first.device == third.device &&
        strcmp(third.bus_id + 4, first.bus_id) == 0;
    report("the three versions of nvmlDeviceGetPciInfo agree: each", is_right, 0, 0, 0);
}

int main(void) {
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    int (*const init)(void) =
        library == NULL ? NULL : (int (*)(void))(intptr_t)function("nvmlInit_v2");
    int (*const by_index)(unsigned, void **) =
        library == NULL
            ? NULL
            : (int (*)(unsigned, void **))(intptr_t)function("nvmlDeviceGetHandleByIndex_v2");
    if (init == NULL || by_index == NULL || init() != success || by_index(0, &device) != success) {
        printf("nvml_structs: no libnvidia-ml.so.1 with a device\n");
        return 1;
    }
    writes("nvmlDeviceGetPciInfo", sizeof(pci_v1), 0);
    writes("nvmlDeviceGetPciInfo_v2", sizeof(pci_v2), 0);
    writes("nvmlDeviceGetPciInfo_v3", sizeof(pci_v3), 0);
    writes("nvmlDeviceGetMemoryInfo", sizeof(memory_v1), 0);
    writes("nvmlDeviceGetMemoryInfo_v2", sizeof(memory_v2), sizeof(memory_v2) | 2U << 24);
    writes("nvmlDeviceGetUtilizationRates", sizeof(utilization), 0);
    static const char *const numbers[] = {"nvmlDeviceGetIndex",
                                          "nvmlDeviceGetMinorNumber",
                                          "nvmlDeviceGetComputeMode",
                                          "nvmlDeviceGetBrand",
                                          "nvmlDeviceGetPersistenceMode",
                                          "nvmlDeviceGetArchitecture",
                                          "nvmlDeviceGetPowerUsage",
                                          "nvmlDeviceGetFanSpeed",
                                          "nvmlDeviceGetPerformanceState",
                                          "nvmlDeviceGetEnforcedPowerLimit",
                                          "nvmlDeviceGetPowerManagementLimit"};
    for (size_t at = 0; at < sizeof numbers / sizeof *numbers; at++)
        writes(numbers[at], sizeof(unsigned), 0);
    writes("nvmlDeviceGetTotalEnergyConsumption", sizeof(unsigned long long), 0);
    pci_infos_agree();
    /* A structure that states another version is not changed. */
    int (*const memory)(void *, void *) =
        (int (*)(void *, void *))(intptr_t)function("nvmlDeviceGetMemoryInfo_v2");
    memset(place, guard, sizeof place);
    const int code = memory == NULL ? 0 : memory(device, place);
    report("nvmlDeviceGetMemoryInfo_v2 of another version",
           code == version_mismatch && written() == 0, code, written(), 0);
    printf("nvml_structs: %d passed, %d failed, 0 skipped\n", cases_passed, cases_failed);
    return cases_failed > 0;
}
