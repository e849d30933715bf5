"""Programs whose build does not end, takes all memory, or crashes the compiler: each costs one
build, and its session goes on. If PoCL compiles such a kernel when it is launched, the session
ends.

The daemon has small limits here, so that the attacks end soon.
"""

import contextlib
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path

from confinement import DRIVERS, LEVELS, node_at
from patience import PATIENCE_S, lane, wait_for
from processes import group, is_alive, parent_of
from tally import Skipped
from wire import Client, mem_arg, numbers, text, varint

BUILD_FAILED, COMPILE_FAILED = -11, -15
OUT_OF_ORDER = 1
# What a daemon allows a build: seconds and MiB. Honest builds take a fraction of a second, so a
# host that is ten times slower does not reach SHORT. Under LONG and SMALL, time ends no build.
SHORT, LONG, SMALL = (10, 4096), (600, 4096), (600, 700)
# The same for launches beside which the worker builds probes, and for compilations at the first
# launch: FOREVER takes more than NARROW.
BRIEF, NARROW = (30, 4096), (600, 200)
CORES = len(os.sched_getaffinity(0))


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


@contextlib.contextmanager
def with_node(driver, limits, level, variables=(), **more):
    seconds, mib = map(str, limits)
    limits = {"PENSTOCK_BUILD_SECONDS": seconds, "PENSTOCK_BUILD_MIB": mib}
    environment = limits | dict(variables)
    with node_at(level, driver, is_closed=True, environment=environment, **more) as node:
        node.settle()
        yield node


def with_limits(driver, limits, attack, level="full"):
    with with_node(driver, limits, level) as node:
        attack(node)


def fork_server_of(worker):
    """Returns the process of which the worker's foreman is a copy."""
    processes = group(worker)
    above = {parent_of(process) for process in processes} - {*processes, worker}
    assert len(above) == 1, f"the builders {processes} of {worker} come from {above}"
    return above.pop()


def has_drivers(process):
    """PoCL's devices have threads, and a fork server without drivers has one thread."""
    return len(os.listdir(f"/proc/{process}/task")) > 1


@contextlib.contextmanager
def only_pocl():
    """Gives a folder whose subfolder `vendors` lists PoCL alone."""
    own = Path(os.environ.get("OCL_ICD_VENDORS", "/etc/OpenCL/vendors"))
    entries = [entry for entry in own.glob("*.icd") if "pocl" in entry.read_text()]
    if not entries:
        raise Skipped(f"{own} does not list PoCL")
    with tempfile.TemporaryDirectory(prefix="penstock-vendors.") as folder:
        (Path(folder) / "vendors").mkdir()
        for entry in entries:
            shutil.copy(entry, Path(folder) / "vendors")
        yield Path(folder)


@contextlib.contextmanager
def with_pocl(vendors, **more):
    """Starts a node whose drivers are those that this folder lists."""
    variables = {"OCL_ICD_VENDORS": str(vendors), "OPENCL_VENDOR_PATH": str(vendors)}
    with with_node("pocl", LONG, "full", variables=variables, **more) as node:
        yield node


def builds_new(node, number):
    """A new session that builds a program which no other session has built."""
    client = Client(node).works()
    status, report = build(client, f"kernel void k(global int *a) {{ a[0] = {number}; }}")
    assert status == 0, f"{report}: {node.said()}"
    return client


def a_fork_server_that_is_killed(_):
    """All foremen and builders end with it. Sessions with and without a builder get others, which
    are copies of a process that loads no drivers."""
    with only_pocl() as folder, with_pocl(folder / "vendors") as node:
        clients = [builds_new(node, 0)]
        server = fork_server_of(clients[0].worker)
        assert not has_drivers(server), "drivers were loaded for one session"
        clients.append(builds_new(node, 1))
        assert fork_server_of(clients[1].worker) == server and has_drivers(server)
        without = Client(node)
        os.kill(server, signal.SIGKILL)
        left = lambda: [process for client in clients for process in group(client.worker)]
        wait_for(lambda: not left(), lambda: f"{left()} live on")
        for number, client in enumerate([*clients, without, Client(node)], 2):
            client.works()
            source = f"kernel void k(global int *a) {{ a[0] = {number}; }}"
            assert build(client, source)[0] == 0
            assert not has_drivers(fork_server_of(client.worker))
            client.works()


def a_foreman_that_is_killed(_):
    """Its builders end with it. The session gets another one, which ends with the session."""
    with with_node("pocl", LONG, "full") as node:
        client = builds_new(node, 0)
        server = fork_server_of(client.worker)
        foremen = lambda: [it for it in group(client.worker) if parent_of(it) == server]
        assert len(foremen()) == 1, foremen()
        os.kill(foremen()[0], signal.SIGKILL)
        wait_for(lambda: not group(client.worker), "its builders live on")
        status, report = build(client, "kernel void k(global int *a) { a[0] = 1; }")
        assert status == 0, report
        assert fork_server_of(client.worker) == server and len(foremen()) == 1, foremen()
        left = group(client.worker)
        client.close()
        wait_for(lambda: not any(map(is_alive, left)), lambda: f"{left} live on")


def a_fork_server_that_finds_other_drivers(_):
    """A relative path in a variable leads to other drivers in another folder."""
    with only_pocl() as folder:
        enter = lambda: os.chdir(folder)
        with with_pocl("vendors", before=enter) as node:
            _, *later = [builds_new(node, number) for number in range(3)]
            wait_for(lambda: "the workers have other devices" in node.said(), node.said)
            assert not any(has_drivers(fork_server_of(client.worker)) for client in later)


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
    wait_for(lambda: len(group(worker)) >= 2, "there is no builder")
    processes = [worker, *group(worker)]
    client.close()
    wait_for(lambda: not any(map(is_alive, processes)), "the compiler works on")


# PoCL compiles this kernel for ever when it is launched, and not when it is built: it copies what
# follows each barrier in a branch, which makes 2^40 copies. So it also takes ever more memory.
FOREVER = (
    "kernel void big(global int *a) {\n"
    + "if (a[1]) { a[2]++; barrier(CLK_GLOBAL_MEM_FENCE); }\n" * 40
    + "a[3]++; }"
)

OTHERS = """
kernel void short_one(global int *a) { a[9]++; }
kernel void hold(global volatile int *a) {
  if (get_group_id(0) == 0) { a[8] = 1; while (!a[7]) ; }
}
"""

# What the client does besides. Each makes itself ready, then begins, and then goes on.


def talking(client, _):
    while True:
        client.ping()
        yield


def flooding(client, words):
    """Short kernels in another queue. The client does not wait for them, because the driver may run
    none of them while it compiles. All of them may be on their way (COMMANDS_IN_FLIGHT_MAX)."""
    short, other = client.kernel(OTHERS, "short_one"), client.other_queue()
    # Compiled before the driver has more to compile.
    assert client.wait(client.launch(short, mem_arg(0, words), queue=other)) == 0
    yield
    for count in (0, *[1000] * 50):
        for _ in range(count):
            client.launch(short, mem_arg(0, words), event=0, queue=other)
        client.send("Flush", other)
        client.ping()
        yield
    yield from talking(client, words)


def holding(groups):
    """A kernel that does not end, and has one thread of the driver. All its groups but one end at
    once."""

    def hold(client, words):
        kernel, other = client.kernel(OTHERS, "hold"), client.other_queue()

        def launch(content):
            client.send("WriteBuffer", client.queue, words, 0, 0, payload=content)
            assert client.request("Finish", client.queue)[0] == 0
            launched = client.launch(kernel, mem_arg(0, words), groups, group=1, queue=other)
            client.send("Flush", other)
            return launched

        # This one ends, so that the driver has compiled the kernel.
        assert client.wait(launch(b"\1" * 4096)) == 0
        yield
        launch(bytes(4096))
        read = lambda: client.bytes_of(client.read(words, 4, 32))
        wait_for(lambda: read() != bytes(4), "it does not run")
        yield
        yield from talking(client, words)

    return hold


class Compiling:
    """A session in which the driver compiles a kernel at its launch for longer than it may."""

    def __init__(self, node, besides):
        self.client = client = Client(node).setup()
        self.kernel, self.words = client.kernel(FOREVER, "big"), client.buffer(4096)
        self.besides = besides(client, self.words)
        next(self.besides)

    def launch(self):
        client = self.client
        next(self.besides)
        client.launch(self.kernel, mem_arg(0, self.words), 64)
        client.send("Flush", client.queue)

    def has_ended(self, limit):
        """Acts. Returns whether the session has ended, as it must at this limit."""
        with contextlib.suppress(ConnectionError):
            next(self.besides)
            return False
        said = self.client.fault or self.client.end_of()
        for word in ("kernel big", "first launch", limit, "administrator"):
            assert word in said, said
        wait_for(lambda: not is_alive(self.client.worker), "the compiler works on")
        return True


def asking_for_binaries(node):
    """PoCL compiles all kernels of a program for its binaries."""
    client = Client(node).setup()
    client.send("ProgramBinaries", client.id(), client.program(FOREVER))
    said = client.end_of(5 * PATIENCE_S)
    for word in ("for its binaries", "BUILD_SECONDS", "administrator"):
        assert word in said, said
    wait_for(lambda: not is_alive(client.worker), "the compiler works on")


def compiling(limit, besides):
    def run(node):
        other = Client(node).works()
        # Beside a kernel that has the only thread of the driver, nothing is compiled.
        sessions = [Compiling(node, one) for one in (besides if CORES > 1 else [talking])]
        for session in sessions:
            session.launch()
        end = time.monotonic() + 5 * PATIENCE_S
        while sessions:
            assert time.monotonic() < end, f"{len(sessions)} sessions go on"
            sessions = [session for session in sessions if not session.has_ended(limit)]
        other.works().close()

    return run


def compilations_that_take_all_memory(_):
    with_limits("pocl", NARROW, compiling("BUILD_MIB", [talking, holding(8)]))


@lane("all")
def compilations_that_do_not_end(_):
    besides = [talking, flooding, holding(1), holding(8)]
    with_limits("pocl", SHORT, compiling("BUILD_SECONDS", besides))


def waiting(node):
    """Kernels that wait for longer than a compilation may take: for their client, and for threads
    of the driver, which other kernels have."""
    client = Client(node).setup(OUT_OF_ORDER)
    words, never = client.buffer(4096), client.id()
    client.send("WriteBuffer", client.queue, words, 0, 0, payload=bytes(4096))
    client.send("ExpectEvent", never, 0)
    hold = client.kernel("kernel void hold(global volatile int *a) { while (!a[0]) ; }", "hold")
    first = client.kernel("kernel void first(global int *a) { a[1]++; }", "first")
    second = client.kernel("kernel void second(global int *a) { a[2]++; }", "second")
    holders = [client.launch(hold, mem_arg(0, words)) for _ in range(CORES)]
    client.send("Flush", client.queue)
    behind = client.launch(first, mem_arg(0, words))
    gated = client.launch(second, mem_arg(0, words), waits=[never])
    end = time.monotonic() + 2.5 * BRIEF[0]
    while time.monotonic() < end:
        client.ping()
        time.sleep(0.2)
    # The driver has no more threads than there are cores.
    assert behind not in client.ended, "a kernel ran that was to wait for a thread"
    # An idle queue, whose writes wait for no thread of the driver.
    client.send("WriteBuffer", client.other_queue(), words, 0, 0, payload=b"\1\0\0\0")
    client.send("ResolveEvent", never, 0)
    assert [client.wait(event) for event in (*holders, behind, gated)] == [0] * (len(holders) + 2)
    client.close()


@lane("all")
def compilations_for_binaries(_):
    with_limits("pocl", SHORT, asking_for_binaries)


@lane("all")
def launches_that_wait_for_long(_):
    with_limits("pocl", BRIEF, waiting)


ATTACKS = [compilations_that_take_all_memory, compilations_that_do_not_end]
ATTACKS += [compilations_for_binaries, launches_that_wait_for_long]
ATTACKS += [
    a_foreman_that_is_killed,
    a_fork_server_that_is_killed,
    a_fork_server_that_finds_other_drivers,
]
ATTACKS += [builds_of(driver) for driver in DRIVERS]
ATTACKS += [builds_at(level, driver) for driver in DRIVERS for level in LEVELS]
