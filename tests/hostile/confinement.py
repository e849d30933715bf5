"""Kernels that make system calls: what each level of confinement keeps them from.

A kernel on a CPU device runs in the worker's process. The attacks here are such kernels. They run
against a daemon at each level, on PoCL and, where it is installed, on Intel's runtime. An attack
must work below the level that stops it, so that no test passes because the attack is broken.
"""

import contextlib
import ctypes
import errno
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
from pathlib import Path

import wire
from node import BIN, ROOT, Node
from patience import PATIENCE_S, lane, wait_for
from processes import children_of, group, is_alive
from wire import Client, mem_arg, numbers, text

LEVELS = ("off", "basic", "calls", "files", "full")
INTEL = ROOT / ".venv-cuda" / "vendors"
MEBI = 1 << 20

# Numbers of system calls on x86-64.
OPEN, SOCKET, CONNECT, FORK, KILL, PRCTL = 2, 41, 42, 57, 62, 157
READ, CLOSE, PREAD, FALLOCATE, PROCESS_VM_READV = 0, 3, 17, 285, 310
LANDLOCK_CREATE_RULESET, PIDFD_OPEN = 444, 434
O_CREAT_WRITE = os.O_CREAT | os.O_WRONLY

# Makes the call that `a` describes. Bit N of a[8] says that argument N is an offset in `b`. With
# a[9], a child that the call has made ends at once. The compiler of Intel's runtime knows no
# register of the processor, so the code saves them all, and leaves the 128 bytes below the stack
# alone, which a function may use without moving the stack pointer.
SOURCE = """
#define SYSTEM_CALL(words) __asm__ volatile( \
  "leaq -256(%%rsp), %%rsp\\n pushq %%rax\\n pushq %%rbx\\n pushq %%rcx\\n pushq %%rdx\\n" \
  "pushq %%rsi\\n pushq %%rdi\\n pushq %%r8\\n pushq %%r9\\n pushq %%r10\\n pushq %%r11\\n" \
  "movq %0, %%rbx\\n movq (%%rbx), %%rax\\n movq 8(%%rbx), %%rdi\\n movq 16(%%rbx), %%rsi\\n" \
  "movq 24(%%rbx), %%rdx\\n movq 32(%%rbx), %%r10\\n movq 40(%%rbx), %%r8\\n" \
  "movq 48(%%rbx), %%r9\\n syscall\\n movq %%rax, 56(%%rbx)\\n" \
  "popq %%r11\\n popq %%r10\\n popq %%r9\\n popq %%r8\\n popq %%rdi\\n popq %%rsi\\n" \
  "popq %%rdx\\n popq %%rcx\\n popq %%rbx\\n popq %%rax\\n leaq 256(%%rsp), %%rsp" \
  : : "r"(words) : "memory")
kernel void make_call(global volatile long *a, global char *b) {
  for (int i = 0; i < 7; i++) a[16 + i] = a[i] + (((a[8] >> i) & 1) ? (long)b : 0);
  SYSTEM_CALL(a + 16);
  if (a[9] && a[23] == 0) {
    a[24] = 231;
    SYSTEM_CALL(a + 24);
  }
  a[7] = a[23];
  a[10] = (long)b;
}
"""


class At(int):
    """An offset in the kernel's second buffer."""


class Kernel:
    """A session whose kernel makes any system call."""

    def __init__(self, node):
        self.client = Client(node).setup()
        self.kernel = self.client.kernel(SOURCE, "make_call")
        self.a, self.b = self.client.buffer(256), self.client.buffer(4096)
        self.address = 0
        self.call(39)

    def put(self, offset, content):
        self.client.send("WriteBuffer", self.client.queue, self.b, 0, offset, payload=content)
        return At(offset)

    def path(self, name):
        return self.put(0, os.fsencode(name) + b"\0")

    def get(self, offset, size):
        return self.client.bytes_of(self.client.read(self.b, size, offset))

    def call(self, number, *arguments, ends_child=0):
        """Returns the result of a call; an error is negative."""
        words = [number, *arguments] + [0] * (6 - len(arguments))
        mask = sum(1 << place for place, word in enumerate(words) if isinstance(word, At))
        content = struct.pack("<32q", *words, 0, mask, ends_child, *[0] * 22)
        self.client.send("WriteBuffer", self.client.queue, self.a, 0, 0, payload=content)
        args = mem_arg(0, self.a) + mem_arg(1, self.b)
        assert self.client.wait(self.client.launch(self.kernel, args)) == 0
        got = struct.unpack("<32q", self.client.bytes_of(self.client.read(self.a, 256)))
        self.address = got[10]
        return got[7]

    def open(self, name, flags=0, mode=0o600):
        return self.call(OPEN, self.path(name), flags, mode)


# Each attack returns whether it worked.


def reads_the_key(node, kernel):
    file = kernel.open(node.folder / "key")
    if file < 0:
        return False
    assert kernel.call(READ, file, At(512), 64) == 64
    return bytes.fromhex(kernel.get(512, 64).decode()) == node.key


def includes_a_key(node, kernel):
    return tells_a_key(node, kernel, f"{node.folder}/other-key", "")


def includes_a_key_of_a_folder(node, kernel):
    return tells_a_key(node, kernel, "other-key", f"-I {node.folder}")


def tells_a_key(node, kernel, name, options):
    """Returns whether the log of a build has a key. A message of the compiler names what it does
    not understand. This key begins with a letter, because the message about a number names less."""
    client, program = kernel.client, kernel.client.id()
    secret = "a" + os.urandom(31).hex()
    (node.folder / "other-key").write_text(secret)
    source = f'kernel void k(global int *a) {{ a[0] =\n#include "{name}"\n; }}'
    client.send("CreateProgramWithSource", program, client.context, payload=source.encode())
    order = numbers([0]) + b"\1" + text(options) + b"\0\0"
    _, report = client.request("BuildProgram", program, payload=order, patience=5 * PATIENCE_S)
    return secret.encode() in report


def reads_a_file_of_the_user(node, kernel):
    return kernel.open(node.folder / "daemon.log") >= 0


def writes_a_file_of_the_user(node, kernel):
    return kernel.open(node.folder / "planted", O_CREAT_WRITE) >= 0


def reads_memory_of_a_session_by_file(node, kernel):
    return peek(node, kernel, lambda pid, address: by_file(kernel, pid, address))


def reads_memory_of_a_session_by_call(node, kernel):
    return peek(node, kernel, lambda pid, address: by_call(kernel, pid, address))


def peek(node, kernel, read):
    """Lets a kernel read what is in a buffer of another session."""
    victim, secret = Kernel(node), os.urandom(8)
    try:
        victim.put(128, secret)
        victim.call(39)
        return read(victim.client.worker, victim.address + 128) == secret
    finally:
        victim.client.close()


def by_file(kernel, pid, address):
    file = kernel.open(f"/proc/{pid}/mem")
    if file < 0 or kernel.call(PREAD, file, At(512), 8, address) != 8:
        return b""
    return kernel.get(512, 8)


def by_call(kernel, pid, address):
    local = kernel.put(1024, struct.pack("<QQ", kernel.address + 512, 8))
    remote = kernel.put(1040, struct.pack("<QQ", address, 8))
    done = kernel.call(PROCESS_VM_READV, pid, local, 1, remote, 1, 0)
    return kernel.get(512, 8) if done == 8 else b""


def opens_memory_of_the_daemon(node, kernel):
    """The daemon has the pool's key. It hides its memory at each level, but not from root."""
    return kernel.open(f"/proc/{node.daemon.pid}/mem") >= 0


def makes_a_call_of_no_list(node, kernel):
    return kernel.call(PIDFD_OPEN, os.getpid(), 0) >= 0


def signals_the_daemon(node, kernel):
    return kernel.call(KILL, node.daemon.pid, 0) == 0


def connects_out(node, kernel):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        file = kernel.call(SOCKET, socket.AF_INET, socket.SOCK_STREAM, 0)
        if file < 0:
            return False
        port = struct.pack(">H", listener.getsockname()[1])
        where = struct.pack("<H", socket.AF_INET) + port + socket.inet_aton("127.0.0.1") + bytes(8)
        return kernel.call(CONNECT, file, kernel.put(512, where), 16) == 0


def connects_to_a_local_service(node, kernel):
    name = b"\0penstock-test-" + os.urandom(8).hex().encode()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name)
        listener.listen()
        file = kernel.call(SOCKET, socket.AF_UNIX, socket.SOCK_STREAM, 0)
        where = struct.pack("<H", socket.AF_UNIX) + name
        return kernel.call(CONNECT, file, kernel.put(512, where), len(where)) == 0


def forks(node, kernel):
    return kernel.call(FORK, ends_child=1) > 0


def lets_others_inspect_it(node, kernel):
    return kernel.call(PRCTL, 4, 1) == 0


# The level that stops each attack.
STOPPED_BY = {
    reads_memory_of_a_session_by_file: "basic",
    reads_memory_of_a_session_by_call: "basic",
    opens_memory_of_the_daemon: "basic" if os.getuid() == 0 else "off",
    signals_the_daemon: "calls",
    makes_a_call_of_no_list: "calls",
    connects_out: "calls",
    connects_to_a_local_service: "calls",
    forks: "calls",
    lets_others_inspect_it: "calls",
    reads_the_key: "files",
    includes_a_key: "files",
    includes_a_key_of_a_folder: "files",
    reads_a_file_of_the_user: "files",
    writes_a_file_of_the_user: "files",
}


def node_at(level, driver, *options, environment=None, **more):
    """Starts a daemon at a level."""
    base = {"PENSTOCK_CONFINE": level}
    if driver == "intel":
        base |= {"OCL_ICD_VENDORS": str(INTEL), "OPENCL_VENDOR_PATH": str(INTEL)}
    return Node(options, base | (environment or {}), **more)


def attacks_at(level, driver):
    def run(_):
        with node_at(level, driver, is_closed=True) as node:
            node.settle()
            told = node.control()["confinement"]
            assert told["level"] == level, f"the status tells of {told}"
            kernel = Kernel(node)
            wrong = []
            for attack, stops in STOPPED_BY.items():
                worked = attack(node, kernel)
                if worked != (LEVELS.index(level) < LEVELS.index(stops)):
                    wrong.append(f"{attack.__name__}: {'worked' if worked else 'failed'}")
            assert not wrong, f"at the level {level}: {', '.join(wrong)}"
            for thread in Path(f"/proc/{kernel.client.worker}/task").iterdir():
                status = (thread / "status").read_text()
                assert ("NoNewPrivs:\t1" in status) == (level != "off"), status
                assert ("Seccomp:\t2" in status) == (level in LEVELS[2:]), status
            kernel.client.close()
            Client(node).works().close()
            node.must_live()
            stopped = sum(
                LEVELS.index(stops) <= LEVELS.index(level) for stops in STOPPED_BY.values()
            )
            return f"{stopped} of {len(STOPPED_BY)} attacks stopped, {told['threads']} threads"

    run.__name__ = f"kernels_that_attack_{driver}_at_level_{level}"
    return lane("test" if driver == "pocl" or level == "full" else "all")(run)


def a_kernel_that_kills_the_daemon(node):
    """With a real signal, at the level that daemons have by default."""
    kernel = Kernel(node)
    assert kernel.call(KILL, node.daemon.pid, signal.SIGKILL) == -errno.EPERM
    assert kernel.call(KILL, -1, signal.SIGKILL) == -errno.EPERM
    kernel.client.close()
    node.must_live()


def traces_of_other_sessions(_):
    """A daemon with PENSTOCK_TRACE has the traces of all sessions in one folder."""
    for level, stops in (("calls", False), ("full", True)):
        with tempfile.TemporaryDirectory() as folder:
            environment = {"PENSTOCK_TRACE": f"{folder}/trace"}
            with node_at(level, "pocl", environment=environment) as node:
                victim, secret = Client(node).setup(), os.urandom(16)
                victim.send("WriteBuffer", victim.queue, victim.buffer(16), 0, 0, payload=secret)
                victim.ping()
                trace = Path(f"{folder}/trace.{victim.worker}")
                assert secret in trace.read_bytes(), "the trace has no payload"
                kernel = Kernel(node)
                assert (kernel.open(trace) < 0) == stops, level
                assert (kernel.open(f"{folder}/planted", O_CREAT_WRITE) < 0) == stops, level
                assert Path(f"{folder}/trace.{kernel.client.worker}").stat().st_size > 1000
                kernel.client.close()
                victim.close()


def a_kernel_that_fills_the_disk(node):
    """A session with more than SESSION_BYTES_MAX (1 GiB) in its own folder ends, and its files
    go."""
    kernel = Kernel(node)
    folder = own_folder(node, kernel.client.worker)
    file = kernel.open(folder / "tmp" / "large", O_CREAT_WRITE)
    assert file >= 0, f"its own folder is closed: {file}"
    assert kernel.call(FALLOCATE, file, 0, 0, 1200 * MEBI) == 0
    kernel.client.end_of()
    wait_for(lambda: not folder.exists(), f"{folder} is left")
    why = "its files take more than 1024 MiB"
    wait_for(lambda: why in node.said(), "the log does not say why")
    if LEVELS.index(node.control()["confinement"]["level"]) < LEVELS.index("files"):
        return
    # Nowhere else is room.
    other = Kernel(node)
    for place in ("/tmp", "/dev/shm", "/var/tmp", node.folder):
        assert other.open(f"{place}/penstock-large", O_CREAT_WRITE) == -errno.EACCES, place
    other.client.close()


def a_kernel_that_fills_the_disk_of_its_user(_):
    """The sessions of a user have a limit together. The one with the largest folder ends, and its
    client learns why. Caches that are kept for the user stay within the limit, too."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-limits."))
    limits = folder / "limits.toml"
    limits.write_text('[user.default]\ncache_disk = "64M"\n')
    try:
        with node_at("full", "pocl", "--limits", str(limits)) as node:
            small, large = Kernel(node), Kernel(node)
            for kernel, mebi in ((small, 24), (large, 60)):
                place = own_folder(node, kernel.client.worker) / "cache" / "large"
                file = kernel.open(place, O_CREAT_WRITE)
                assert file >= 0 and kernel.call(FALLOCATE, file, 0, 0, mebi * MEBI) == 0
            why = large.client.end_of()
            for words in ("cache_disk of user", "64 MiB", "limits.toml, line 2"):
                assert words in why, why
            assert small.call(39) > 0, "the other session has ended, too"
            wait_for(lambda: not place.exists(), "the folder of the session is left")
            small.client.close()
            node.settle()
            kept = Path(node.env["PENSTOCK_CACHE"]) / "users"

            def taken():
                total = 0
                for place, _, names in os.walk(kept):
                    for name in names:
                        # A cache that gives way is removed meanwhile.
                        with contextlib.suppress(FileNotFoundError):
                            total += os.lstat(os.path.join(place, name)).st_blocks * 512
                return total // MEBI

            # The larger one was kept first, and gives way.
            wait_for(lambda: 24 <= taken() < 40, lambda: f"{taken()} MiB are kept")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def own_folder(node, worker):
    """Returns the folder of a worker: its home lies in it."""
    variables = Path(f"/proc/{worker}/environ").read_bytes().split(b"\0")
    home = next(line for line in variables if line.startswith(b"HOME="))
    return Path(os.fsdecode(home.removeprefix(b"HOME="))).parent


def a_fork_bomb(node):
    """A kernel cannot copy its process, and no process can leave the group that the daemon ends."""
    kernel = Kernel(node)
    assert kernel.call(FORK, ends_child=1) == -errno.EPERM
    assert kernel.call(56, signal.SIGCHLD, ends_child=1) == -errno.EPERM
    # The C library must not learn that clone3 exists.
    assert kernel.call(435, At(512), 88) == -errno.ENOSYS
    # The session's own process group is where the daemon finds what is left.
    assert kernel.call(112) == -errno.EPERM
    assert kernel.call(109, 0, 0) == -errno.EPERM
    worker = kernel.client.worker
    kernel.client.close()
    wait_for(lambda: not is_alive(worker) and not group(worker), "processes are left")


def a_build_without_end(node):
    """The client of a build that takes for ever leaves. Its worker must end, and others are
    served meanwhile."""
    client = Client(node).setup()
    program = client.id()
    depth = 40
    lines = ["#define L0 x = x * 3 + 1;"]
    lines += [f"#define L{n} L{n - 1} L{n - 1}" for n in range(1, depth)]
    lines += [f"kernel void k(global int *a) {{ int x = a[0]; L{depth - 1} a[0] = x; }}"]
    source = "\n".join(lines)
    client.send("CreateProgramWithSource", program, client.context, payload=source.encode())
    order = numbers([0]) + b"\1" + text("") + b"\0\0"
    client.send("BuildProgram", client.id(), program, payload=order)
    Client(node).works().close()
    assert is_alive(client.worker), "the build has ended the worker"
    worker = client.worker
    client.close()
    wait_for(lambda: not is_alive(worker), "the worker compiles on")


def without_landlock():
    """Makes the calls of Landlock fail in this process and its children, as in an old kernel."""
    allow, enosys = 0x7FFF0000, 0x00050000 | errno.ENOSYS
    steps = [
        (0x20, 0, 0, 0),
        (0x15, 0, 1, LANDLOCK_CREATE_RULESET),
        (0x06, 0, 0, enosys),
        (0x06, 0, 0, allow),
    ]
    program = b"".join(struct.pack("HBBI", *step) for step in steps)
    held = ctypes.create_string_buffer(program)
    filter_of = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(held))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.c_char_p(filter_of), 0, 0) == 0, ctypes.get_errno()


def a_host_without_landlock(_):
    """Workers reach less, the status says why, and a daemon that requires more refuses clients."""
    with node_at("full", "pocl", before=without_landlock) as node:
        node.settle()
        told = node.control()["confinement"]
        assert told["level"] == "calls" and "no Landlock" in told["lacks"][0]["what"], told
        assert not reads_memory_of_a_session_by_file(node, Kernel(node))
    required = ("--require-confinement", "files")
    with node_at("full", "pocl", *required, before=without_landlock) as node:
        wait_for(lambda: node.control()["confinement"], "no worker became ready")
        try:
            Client(node)
        except wire.Refused as refused:
            assert refused.verdict == wire.UNCONFINED, refused
        else:
            raise AssertionError("a client was served")
        refusal = node.control()["confinement"]["refusal"]
        for words in ("`calls`", "`files`", "no Landlock", "use Linux 6.2"):
            assert words in refusal, refusal
        client = subprocess.run(
            [BIN / "penstock", "devices", "--nodes", node.address("unix")],
            env=node.env,
            capture_output=True,
            text=True,
        )
        said = client.stdout + client.stderr
        assert "--require-confinement" in said, said


def what_is_left_of_a_daemon_that_was_killed(_):
    """The next daemon removes the folders of one that was killed."""
    first = node_at("full", "pocl")
    place = first.folder / "cache" / "daemons"
    try:
        first.settle()
        assert any(entry.is_dir() for entry in place.iterdir())
        workers = children_of(first.daemon.pid)
        first.daemon.kill()
        first.daemon.wait()
        wait_for(lambda: not any(map(is_alive, workers)), "workers are left")
        old = set(place.iterdir())
        with node_at("full", "pocl", cache=first.folder / "cache"):
            wait_for(lambda: not old & set(place.iterdir()), f"{old} is left")
    finally:
        first.remove()


DRIVERS = ["pocl"] + (["intel"] if (INTEL / "intel.icd").exists() else [])
ATTACKS = [attacks_at(level, driver) for driver in DRIVERS for level in LEVELS] + [
    a_kernel_that_kills_the_daemon,
    traces_of_other_sessions,
    a_fork_bomb,
    a_kernel_that_fills_the_disk_of_its_user,
    a_host_without_landlock,
    what_is_left_of_a_daemon_that_was_killed,
]
