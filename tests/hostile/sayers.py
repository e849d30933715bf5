"""Kernels that write to the standard error of their worker, which leads to the daemon's log."""

from confinement import Kernel, node_at
from escapes import launch, words_of
from patience import wait_for

# Numbers of system calls on x86-64.
WRITE, GETPID, FTRUNCATE, FCHMOD = 1, 39, 77, 91
STDERR = 2
KIBI, MEBI = 1 << 10, 1 << 20


def lines_of(node):
    return node.said().splitlines()


def is_of_daemon(line):
    """Returns whether a line begins as all lines of the daemon's log do."""
    time, _, rest = line.partition(" ")
    level = rest.partition(" ")[0]
    return time.endswith("Z") and time[:2] == "20" and level in ("info", "warn", "error")


def a_log_that_is_emptied(_):
    """A kernel has no descriptor of the daemon's log, so it can neither empty it nor open it to
    others. Not even a worker that nothing confines has one."""
    for level in ("off", "full"):
        with node_at(level, "pocl") as node:
            kernel, log = Kernel(node), node.folder / "daemon.log"
            before = log.stat()
            kernel.call(FTRUNCATE, STDERR, 0)
            kernel.call(FCHMOD, STDERR, 0o666)
            after = log.stat()
            assert after.st_size >= before.st_size and after.st_mode == before.st_mode, level
            kernel.client.close()


def lines_that_are_forged(_):
    """What a kernel writes is one value of a line that names its worker, also if it looks like a
    line of the daemon or of a worker's log."""
    with node_at("full", "pocl") as node:
        kernel = Kernel(node)
        worker = kernel.client.worker
        forged = (
            b'2030-01-01T00:00:00Z warn forged peer="process 1 of user 0"\n',
            b"\x1b[31mforged\r\n",
            b'{"level":"warn","event":"forged","worker":"1","time":"2030"}\n',
            b"forged",
        )
        for text in forged:
            assert kernel.call(WRITE, STDERR, kernel.put(512, text), len(text)) == len(text)
        kernel.client.close()
        wait_for(lambda: f"session ended worker={worker}" in node.said(), "the end is not told")

        def found():
            return [line for line in lines_of(node) if "forged" in line]

        # The daemon reads on after the end of the worker.
        wait_for(lambda: len(found()) >= len(forged), lambda: f"only {found()}")
        assert len(found()) == len(forged), found()
        for line in found():
            assert is_of_daemon(line) and f"worker={worker}" in line, line
            assert "\x1b" not in line and not line.startswith("2030"), line
        assert all(map(is_of_daemon, lines_of(node))), node.said()


def a_log_that_is_filled(_):
    """A kernel that writes 64 MiB leaves some of its lines in the log, and the daemon says how
    many are missing."""
    with node_at("full", "pocl") as node:
        kernel = Kernel(node)
        kernel.put(0, (b"x" * 63 + b"\n") * (4 * KIBI // 64))
        write = [WRITE, STDERR, 0, 4 * KIBI]
        words = words_of((0, [64 * MEBI // (4 * KIBI)]), (8, [1 << 2]), (32, write), (48, [GETPID]))
        assert kernel.client.wait(launch(kernel, "make_many", words)) == 0
        kernel.client.close()
        wait_for(lambda: "session ended" in node.said(), "the end is not told")
        wait_for(lambda: "lines are left out" in node.said(), "what is missing is not told")
        size = len(node.said())
        assert size < 4 * MEBI, f"the log has {size // MEBI} MiB"
        return f"the log has {size // KIBI} KiB"


ATTACKS = [a_log_that_is_emptied, lines_that_are_forged, a_log_that_is_filled]
