"""Compares two outputs of `clinfo --raw`: that of the local platform, and that of the pool."""

import re
import sys

# Queries that a pool answers itself, or must answer differently because its devices are remote.
DIFFERS = {
    "CL_DEVICE_HOST_UNIFIED_MEMORY": "a map of memory on another host costs a transfer",
    "CL_DEVICE_SVM_CAPABILITIES": "coarse buffers at most",
    "CL_DEVICE_EXTENSIONS": "some cannot be passed on",
    "CL_DEVICE_EXTENSIONS_WITH_VERSION": "some cannot be passed on",
    "CL_DEVICE_NAME": "may name the node",
    "CL_DEVICE_EXECUTION_CAPABILITIES": "native kernels are the client's functions",
    "CL_DEVICE_PROFILING_TIMER_RESOLUTION": "may be the client's clock",
    "CL_DEVICE_PLATFORM": "a handle",
    "CL_DEVICE_PARENT_DEVICE": "a handle",
    "CL_DEVICE_PARTITION_AFFINITY_DOMAIN": "",
    "CL_DEVICE_PREFERRED_INTEROP_USER_SYNC": "",
    "CL_DEVICE_GLOBAL_MEM_SIZE": "the daemon may keep some",
    "CL_DEVICE_MAX_MEM_ALLOC_SIZE": "the daemon may keep some",
    "CL_DEVICE_PRINTF_BUFFER_SIZE": "",
    "CL_DEVICE_IL_VERSION": "",
    "CL_DEVICE_ILS_WITH_VERSION": "",
}
# The driver asks the system at each start for the speed of the processor and for the free memory.
# PoCL derives the largest image from that memory. So both answers must be numbers.
FLUCTUATES = ("CL_DEVICE_MAX_CLOCK_FREQUENCY", "CL_DEVICE_IMAGE_MAX_BUFFER_SIZE")
# clinfo makes these queries for devices with the extension. The pool lists only extensions whose
# functions it has.
ABSENT = ("CL_DEVICE_COMMAND_BUFFER_",)
# Queries of an extension, made only if the extension is listed.
OF_EXTENSION = {
    "CL_DEVICE_COMMAND_BUFFER_": "cl_khr_command_buffer",
}
BAD = re.compile(r"error|invalid|n/a|unavailable|<.*failed", re.IGNORECASE)


def devices(path):
    """Returns one dict of queries per device, without the queries of the platform."""
    found = {}
    for line in open(path, encoding="utf-8", errors="replace"):
        match = re.match(r"\[(\S+?)/(\d+|\*)\]\s+(CL_DEVICE\w+|CL_DRIVER\w+)\s*(.*)$", line)
        if match and match[2] != "*":
            found.setdefault((match[1], match[2]), {})[match[3]] = match[4].strip()
    return list(found.values())


def are_numbers(*texts):
    """Whether all texts begin with numbers above zero."""
    return all(re.match(r"0*[1-9]", text) for text in texts)


def main():
    local, pool = devices(sys.argv[1])[0], devices(sys.argv[2])
    faults = []
    if not pool:
        faults.append("the pool shows no device")
    for number, device in enumerate(pool):
        for query, answer in local.items():
            there = device.get(query)
            if there is None and query.startswith(ABSENT):
                continue
            extension = next(
                (e for start, e in OF_EXTENSION.items() if query.startswith(start)), None
            )
            if (
                there is None
                and extension
                and extension not in device.get("CL_DEVICE_EXTENSIONS", "")
            ):
                continue
            if there is None:
                faults.append(f"device {number}: {query} is missing (locally: {answer})")
            elif BAD.search(there) and not BAD.search(answer):
                faults.append(
                    f"device {number}: {query} is not answered: {there} (locally: {answer})"
                )
            elif query in FLUCTUATES and are_numbers(there, answer):
                continue
            elif query not in DIFFERS and there != answer:
                faults.append(f"device {number}: {query} is {there}, locally {answer}")
    print("\n".join(faults))
    return 1 if faults else 0


sys.exit(main())
