"""Programs whose build does not end, takes all memory, or crashes the compiler: each costs one
build, and its session goes on.

The daemon has small limits here, so that the attacks end soon.
"""

import time

from confinement import DRIVERS, LEVELS, node_at
from node import wait_for
from processes import is_alive, tree
from wire import Client, numbers, text, varint

BUILD_FAILED, COMPILE_FAILED = -11, -15
# A daemon that ends builds for their time, and one that ends them for their memory. On a busy
# machine the compiler takes a minute for so much memory.
SHORT, SMALL = (8, 4096), (300, 700)
SECONDS = SHORT[0]
# For the run at each level. Also a busy machine needs less for the good builds there.
BRIEF = (3, 4096)


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
    return client.request("BuildProgram", program, payload=order(), patience=300)


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
        started = time.monotonic()
        with_limits(driver, SHORT, endless)
        with_limits(driver, SMALL, greedy)
        return f"the sessions outlived 5 builds in {time.monotonic() - started:.0f} s"

    run.__name__ = f"builds_that_do_not_end_{driver}"
    return run


def builds_at(level, driver):
    """At one level: a build without end, and one that crashes the compiler. From `basic` on, each
    costs a build. Without confinement the worker compiles, so the crash costs the session."""

    def run(_):
        with_limits(driver, BRIEF, at_level if level != "off" else without_builders, level)

    run.__name__ = f"builds_that_fail_{driver}_at_level_{level}"
    return run


def at_level(node):
    client = Client(node).works()
    must_fail(build(client, ENDLESS + KERNEL), BUILD_FAILED, f"longer than {BRIEF[0]} s")
    must_fail(build(client, DEEP), BUILD_FAILED, "the compiler crashed", "signal")
    client.works()


def without_builders(node):
    client, other = Client(node).works(), Client(node).works()
    client.send("BuildProgram", client.id(), created(client, DEEP), payload=order())
    client.end_of(60)
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
    must_fail(build(client, DEEP), BUILD_FAILED, "the compiler crashed", "signal")
    client.works()


def endless(node):
    client, other = Client(node).works(), Client(node).works()
    started = time.monotonic()
    must_fail(
        build(client, ENDLESS + KERNEL), BUILD_FAILED, f"longer than {SECONDS} s", "BUILD_SECONDS"
    )
    took = time.monotonic() - started
    assert SECONDS <= took < SECONDS * 5, f"a build was ended after {took:.1f} s"
    client.works()
    # An error of the program is told by the compiler, and not by Penstock.
    status, report = build(client, "kernel void k(global int *a) { a[0] = missing; }")
    assert status == BUILD_FAILED and b"missing" in report and b"Penstock: " not in report, report
    header = created(client, ENDLESS)
    program = created(client, f'#include "h.h"\n{KERNEL}')
    compiled = client.request(
        "CompileProgram", program, payload=order([("h.h", header)]), patience=300
    )
    must_fail(compiled, COMPILE_FAILED, f"longer than {SECONDS} s")
    program = created(client, f'#include "h.h"\n{KERNEL}')
    client.send("ProgramHeaders", program, payload=included(ENDLESS))
    built = client.request("BuildProgram", program, payload=order(), patience=300)
    must_fail(built, BUILD_FAILED, f"longer than {SECONDS} s")
    other.works().close()
    client.works()
    worker = client.worker
    client.send("BuildProgram", client.id(), created(client, ENDLESS + KERNEL), payload=order())
    wait_for(lambda: len(tree(worker)) >= 2, 5, "there is no builder")
    processes = [worker, *tree(worker)]
    client.close()
    wait_for(lambda: not any(map(is_alive, processes)), 2, "the compiler works on")


ATTACKS = [builds_of(driver) for driver in DRIVERS]
ATTACKS += [builds_at(level, driver) for driver in DRIVERS for level in LEVELS]
