"""Kernels that leave threads in their worker, which compute after the kernel's end.

No driver knows these threads, so no event tells of their time.
"""

import contextlib
import struct
import tempfile
import time
from pathlib import Path

from confinement import DRIVERS, node_at
from patience import PATIENCE_S, lane, wait_for
from processes import cpu_of, is_alive
from wire import Client, mem_arg

# Makes a thread by the call `clone`, whose flags are a[1]. The thread counts in a[8] for ever and
# needs no stack. The code saves all registers, see `confinement.py`.
SOURCE = """
kernel void leave_a_thread(global volatile long *a) {
  __asm__ volatile(
    "leaq -256(%%rsp), %%rsp\\n pushq %%rax\\n pushq %%rbx\\n pushq %%rcx\\n pushq %%rdx\\n"
    "pushq %%rsi\\n pushq %%rdi\\n pushq %%r8\\n pushq %%r9\\n pushq %%r10\\n pushq %%r11\\n"
    "movq %0, %%rbx\\n movq $56, %%rax\\n movq 8(%%rbx), %%rdi\\n leaq 2048(%%rbx), %%rsi\\n"
    "xorq %%rdx, %%rdx\\n xorq %%r10, %%r10\\n xorq %%r8, %%r8\\n syscall\\n"
    "testq %%rax, %%rax\\n jnz 2f\\n 1: incq 64(%%rbx)\\n jmp 1b\\n 2: movq %%rax, (%%rbx)\\n"
    "popq %%r11\\n popq %%r10\\n popq %%r9\\n popq %%r8\\n popq %%rdi\\n popq %%rsi\\n"
    "popq %%rdx\\n popq %%rcx\\n popq %%rbx\\n popq %%rax\\n leaq 256(%%rsp), %%rsp"
    : : "r"(a) : "memory");
}
kernel void nothing(global volatile long *a) { a[9]++; }
"""
# CLONE_VM, CLONE_FS, CLONE_FILES, CLONE_SIGHAND, CLONE_THREAD and CLONE_SYSVSEM.
THREAD = 0x100 | 0x200 | 0x400 | 0x800 | 0x10000 | 0x40000
LIMIT_S = 3
# One thread alone may get less than the part of a core that is forgiven, on a host with much to do.
THREADS = 16
BIG = 16 << 20


@contextlib.contextmanager
def limited(driver):
    """A daemon whose kernels have a limit of time."""
    with tempfile.TemporaryDirectory(prefix="penstock-strays.") as folder:
        limits = Path(folder) / "limits.toml"
        limits.write_text(f"[user.default]\nkernel_time_s = {LIMIT_S}\n")
        with node_at("full", driver, "--limits", str(limits), is_closed=True) as node:
            node.settle()
            yield node


class Leaver:
    """A session with a kernel that leaves threads."""

    def __init__(self, client):
        self.client = client
        self.kernel = self.client.kernel(SOURCE, "leave_a_thread")
        self.words = self.client.buffer(4096)

    def leave(self, threads=THREADS):
        """Leaves threads, and waits until the kernels have ended and the threads compute."""
        client, words = self.client, struct.pack("<2Q", 0, THREAD) + bytes(4080)
        client.send("WriteBuffer", client.queue, self.words, 0, 0, payload=words)
        # The client waits only for the last one: on a busy host, an answer takes long beside the
        # threads.
        launched = [client.launch(self.kernel, mem_arg(0, self.words)) for _ in range(threads)]
        client.send("Flush", client.queue)
        assert client.wait(launched[-1]) == 0
        thread, before = self.read()
        assert thread > 0, f"there is no thread: {thread}"
        # A thread may overwrite the number of another one that is farther.
        wait_for(lambda: self.read()[1] != before, "the threads do not compute")

    def read(self):
        """Returns what `clone` has returned, and how far the threads have come."""
        got = self.client.bytes_of(self.client.read(self.words, 72))
        return struct.unpack_from("<q", got)[0], struct.unpack_from("<Q", got, 64)[0]

    def must_end(self, act):
        """The session ends, although its client acts."""
        client, end = self.client, time.monotonic() + PATIENCE_S
        with contextlib.suppress(ConnectionError):
            while time.monotonic() < end:
                act()
            raise AssertionError("the session goes on")
        said = client.fault or client.end_of()
        assert "threads that compute" in said and "kernel_time_s of user" in said, said
        assert f"is {LIMIT_S} s" in said and "limits.toml, line 2" in said, said


def honest(node):
    """A session that takes more core time than the limit in each of these ways goes on."""
    client = Client(node).works()
    big, size = client.buffer(BIG), BIG
    content = bytes(size)

    def writes():
        client.send("WriteBuffer", client.queue, big, 0, 0, payload=content)
        client.ping()

    def reads():
        assert client.bytes_of(client.read(big, size)) == content

    def strided_reads():
        # Each second byte, so that a thread of the driver gathers them.
        event, region = client.id(), (1, size // 4, 1)
        rect = (0, 0, 0, *region, 2, size // 2)
        client.send("ReadBufferRect", client.queue, big, event, *rect)
        assert client.bytes_of(event) == bytes(size // 4)

    def strided_writes():
        region, some = (1, size // 4, 1), bytes(size // 4)
        rect = (0, 0, 0, *region, 2, size // 2)
        client.send("WriteBufferRect", client.queue, big, 0, *rect, payload=some)
        assert client.request("Finish", client.queue)[0] == 0

    def fills():
        for _ in range(16):
            client.send("FillBuffer", client.queue, big, 0, 0, size, payload=bytes(4))
        assert client.request("Finish", client.queue)[0] == 0

    def objects():
        mems = [client.buffer(4096) for _ in range(2000)]
        for mem in mems:
            client.send("ReleaseMem", mem)
        client.ping()

    for act in (writes, reads, strided_reads, strided_writes, fills, objects):
        began = cpu_of(client.worker)
        while cpu_of(client.worker) < began + 1.2 * LIMIT_S:
            act()
    client.ping()
    client.close()


def sessions_that_leave_nothing(_):
    with limited("pocl") as node:
        honest(node)


def threads_of(driver):
    def run(_):
        with limited(driver) as node:
            other, leaver = Client(node).works(), Leaver(Client(node).setup())
            leaver.leave()
            # A client that keeps talking.
            leaver.must_end(leaver.client.ping)
            wait_for(lambda: not is_alive(leaver.client.worker), "the threads compute on")

            # A launch that waits for its client is no work.
            leaver = Leaver(client := Client(node).setup())
            nothing, never = client.kernel(SOURCE, "nothing"), client.id()
            leaver.leave()
            client.send("ExpectEvent", never, 0)
            client.launch(nothing, mem_arg(0, leaver.words), waits=[never])
            client.send("Flush", client.queue)
            leaver.must_end(client.ping)
            other.works().close()
            node.must_live()

    run.__name__ = f"threads_that_outlive_their_kernel_{driver}"
    return lane("test" if driver == "pocl" else "all")(run)


ATTACKS = [threads_of(driver) for driver in DRIVERS]
ATTACKS.append(lane("all")(sessions_that_leave_nothing))
