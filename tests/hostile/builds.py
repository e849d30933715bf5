"""Programs whose build does not end, takes all memory, or crashes the compiler: each costs one
build, and its session goes on.

The daemon has small limits here, so that the attacks end soon.
"""

import time

from confinement import DRIVERS, LEVELS, node_at
from patience import PATIENCE_S, lane, wait_for
from processes import is_alive, tree
from wire import Client, numbers, text, varint

BUILD_FAILED, COMPILE_FAILED = -11, -15
# What a daemon allows a build: seconds and MiB. Honest builds take a fraction of a second, so a
# host that is ten times slower does not reach SHORT. Under LONG and SMALL, time ends no build.
SHORT, LONG, SMALL = (10, 4096), (600, 4096), (600, 700)


def doubled(first, depth):
    """A macro that stands for 2^depth times `first`."""
    lines = [f"#define L0 {first}"]
    lines += [f"#define L{n} L{n - 1} L{n - 1}" for n in range(1, depth)]
    return "\n".join(lines) + "\n"


# The compiler compares each function with all others of its name. That takes time, and little
# memory.
FUNCTIONS = 30_000
ENDLESS = "".join(
    f"struct s{n} {{ int a; }}; void __attribute__((overloadable)) f(struct s{n} *);\n"
    for n in range(FUNCTIONS)
)
KERNEL = "kernel void k(global int *a) { a[0] = 1; }"
# The compiler remembers where each macro was used.
GREEDY = doubled("", 60) + "kernel void k(global int *a) { L59 a[0] = 1; }"
# The compiler recurses into the expression until its stack ends.
DEEP = "kernel void k(global int *a) { a[0] = " + "- " * 3_000_000 + "a[0]; }"


def order(programs=()):
    """Encodes a build for the first device, without options."""
    named = b"".join(text(name) + varint(program) for name, program in programs)
    return numbers([0]) + b"\1" + text("") + varint(len(programs)) + named + b"\0"


def created(client, source):
    program = client.id()
    client.send("CreateProgramWithSource", program, client.context, payload=source.encode())
    return program


def build(client, source):
    """Returns the status and the report of a build."""
    program = created(client, source)
    return client.request("BuildProgram", program, payload=order(), patience=5 * PATIENCE_S)


def included(source):
    """Encodes the file `/h.h` of a client, and the options with its folder."""
    files = varint(1) + text("/h.h") + text(source)
    search = varint(1) + b"\1" + text("/") + text(".")
    options = varint(2) + b"\0" + text("-I ") + b"\1" + varint(0)
    return files + varint(0) + varint(0) + search + options


def must_fail(answer, status, *words):
    got, report = answer
    assert got == status, f"a build ended with {got}: {report[:400]}"
    for word in ("Penstock: ", "(node ", "The program is not built", "session goes on", *words):
        assert word.encode() in report, f"the build log lacks `{word}`: {report[:1000]}"


def builds_of(driver):
    def run(_):
        with_limits(driver, SHORT, endless)
        with_limits(driver, SMALL, greedy)

    run.__name__ = f"builds_that_do_not_end_{driver}"
    return lane("all")(run)


def builds_at(level, driver):
    """At one level: a build without end, and one that crashes the compiler. From `basic` on, each
    costs a build. Without confinement the worker compiles, so the crash costs the session."""

    def run(_):
        if level == "off":
            with_limits(driver, LONG, without_builders, level)
            return
        with_limits(driver, SHORT, too_long, level)
        with_limits(driver, LONG, crashing, level)

    run.__name__ = f"builds_that_fail_{driver}_at_level_{level}"
    return lane("test" if (level, driver) == ("full", "pocl") else "all")(run)


def too_long(node):
    client = Client(node).works()
    must_fail(build(client, ENDLESS + KERNEL), BUILD_FAILED, f"longer than {SHORT[0]} s")
    client.works()


def crashing(node):
    client = Client(node).works()
    must_fail(build(client, DEEP), BUILD_FAILED, "the compiler crashed", "signal")
    client.works()


def without_builders(node):
    client, other = Client(node).works(), Client(node).works()
    client.send("BuildProgram", client.id(), created(client, DEEP), payload=order())
    client.end_of()
    other.works()
    node.must_live()


def with_limits(driver, limits, attack, level="full"):
    seconds, mib = map(str, limits)
    limits = {"PENSTOCK_BUILD_SECONDS": seconds, "PENSTOCK_BUILD_MIB": mib}
    with node_at(level, driver, is_closed=True, environment=limits) as node:
        node.settle()
        attack(node)


def greedy(node):
    client = Client(node).works()
    must_fail(build(client, GREEDY), BUILD_FAILED, "too much memory", "BUILD_MIB")
    client.works()


def endless(node):
    client, other = Client(node).works(), Client(node).works()
    started = time.monotonic()
    told = f"longer than {SHORT[0]} s"
    must_fail(build(client, ENDLESS + KERNEL), BUILD_FAILED, told, "BUILD_SECONDS")
    took = time.monotonic() - started
    assert took >= SHORT[0], f"a build was ended after {took:.1f} s"
    client.works()
    # An error of the program is told by the compiler, and not by Penstock.
    status, report = build(client, "kernel void k(global int *a) { a[0] = missing; }")
    assert status == BUILD_FAILED and b"missing" in report and b"Penstock: " not in report, report
    header = created(client, ENDLESS)
    program = created(client, f'#include "h.h"\n{KERNEL}')
    compiled = client.request(
        "CompileProgram", program, payload=order([("h.h", header)]), patience=5 * PATIENCE_S
    )
    must_fail(compiled, COMPILE_FAILED, told)
    program = created(client, f'#include "h.h"\n{KERNEL}')
    client.send("ProgramHeaders", program, payload=included(ENDLESS))
    built = client.request("BuildProgram", program, payload=order(), patience=5 * PATIENCE_S)
    must_fail(built, BUILD_FAILED, told)
    other.works().close()
    client.works()
    worker = client.worker
    client.send("BuildProgram", client.id(), created(client, ENDLESS + KERNEL), payload=order())
    wait_for(lambda: len(tree(worker)) >= 2, "there is no builder")
    processes = [worker, *tree(worker)]
    client.close()
    wait_for(lambda: not any(map(is_alive, processes)), "the compiler works on")


ATTACKS = [builds_of(driver) for driver in DRIVERS]
ATTACKS += [builds_at(level, driver) for driver in DRIVERS for level in LEVELS]
