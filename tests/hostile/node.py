"""A daemon to attack, and the resources it may hold before and after."""

import contextlib
import os
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from pathlib import Path

import wire
from patience import PATIENCE_S, wait_for
from processes import Roll, children_of, left_memory, shared_memory, status_of

ROOT = Path(__file__).resolve().parent.parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
BIN = Path(os.environ.get("PENSTOCK_BIN", TARGET / "release"))


def usual_environment(folder, key, cache):
    """Returns the variables of a daemon in `folder`."""
    environment = dict(
        os.environ,
        PENSTOCK_KEY=str(key),
        POCL_DEVICES="pthread",
        TMPDIR=str(folder),
        PENSTOCK_CACHE=str(cache or folder / "cache"),
    )
    for name in ("PENSTOCK_NODES", "PENSTOCK_WORKER"):
        environment.pop(name, None)
    return environment


def become_usual(before, user):
    """Gives a process the usual limit of descriptors, whatever this process has, because the daemon
    must work with what users have. Then calls `before` and becomes `user`, if they are given."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, most))
    if before:
        before()
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)


class Node:
    """A daemon in a folder of its own. It listens on a Unix socket and on TCP; if it is closed, it
    has no key and listens on the Unix socket alone. `before` runs in the daemon's process before
    the daemon, and `inherited` are descriptors that it is started with. With `user`, which only
    root can give it, it runs as this Unix user. At the end of a `with` block the daemon must leave
    nothing behind."""

    def __init__(
        self,
        options=(),
        environment=None,
        is_closed=False,
        before=None,
        cache=None,
        user=None,
        inherited=(),
    ):
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (min(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2
        )
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-hostile."))
        self.shm = shared_memory()
        self.roll = Roll()
        key = self.folder / "key"
        self.env = usual_environment(self.folder, key, cache)
        command = [BIN / "penstock", "key", "--create"]
        subprocess.run(command, env=self.env, check=True, stdout=subprocess.DEVNULL)
        self.key = bytes.fromhex(key.read_text().strip())
        self.log = open(self.folder / "daemon.log", "w+b", buffering=0)
        self.env |= environment or {}
        listen = ["--listen", f"unix:{self.folder}/node.sock"]
        if is_closed:
            self.env |= {"PENSTOCK_KEY": "", "HOME": str(self.folder), "XDG_CONFIG_HOME": ""}
        else:
            listen += ["--listen", "tcp:127.0.0.1:0"]

        program = BIN / "penstock"
        if user is not None:
            # The user may not reach the programs, nor the home of root.
            program = shutil.copy(program, self.folder)
            self.env |= {"HOME": str(self.folder), "XDG_CONFIG_HOME": ""}
            for path in (self.folder, *self.folder.iterdir()):
                os.chown(path, user, user)

        self.daemon = subprocess.Popen(
            [program, "serve", *listen, *options],
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=self.log,
            preexec_fn=lambda: become_usual(before, user),
            pass_fds=inherited,
            text=True,
        )
        timer = threading.Timer(PATIENCE_S, self.daemon.kill)
        timer.start()
        self.addresses = {}
        for _ in range(len(listen) // 2):
            line = self.daemon.stdout.readline()
            assert line.startswith("listening on "), f"the daemon did not start: {self.said()}"
            address = line.removeprefix("listening on ").strip()
            self.addresses[address.split(":")[0]] = address
        timer.cancel()

    def address(self, way):
        return self.addresses[way]

    def said(self):
        return Path(self.log.name).read_text(errors="replace")

    def fds(self):
        return len(os.listdir(f"/proc/{self.daemon.pid}/fd"))

    def threads(self):
        return len(os.listdir(f"/proc/{self.daemon.pid}/task"))

    def rss(self):
        return status_of(self.daemon.pid, "VmRSS")

    def workers(self):
        found = children_of(self.daemon.pid)
        self.roll.add(*found)
        return [pid for pid in found if not is_fork_server(pid)]

    def control(self):
        """Returns the daemon's own status."""
        import json
        import struct

        connection = wire.enter(self.address("unix"), role=wire.CONTROL)
        size = struct.unpack("<I", wire.exactly(connection, 4))[0]
        return json.loads(wire.exactly(connection, size))

    def settle(self):
        """Waits until no client is served and the spare workers are ready."""

        def settled():
            status = self.control()
            return (
                not status["sessions"]
                and status["spare_workers"] == 2
                and not status["starting_workers"]
            )

        wait_for(settled, lambda: f"the daemon does not come to rest: {self.control()}")

    def must_live(self):
        code = self.daemon.poll()
        assert code is None, f"the daemon ended with {code}: {self.said()[-800:]}"

    def stop(self):
        """Ends the daemon. Returns what is left of it."""
        self.workers()
        self.daemon.send_signal(signal.SIGTERM)
        self.daemon.wait(PATIENCE_S)
        self.daemon.stdout.close()
        try:
            wait_for(lambda: not self.roll.left(), "")
        except AssertionError:
            return f"processes left: {self.roll.left()}"
        left = [path.name for path in self.folder.iterdir() if path.name.endswith(".sock")]
        # Other tests make such files, too, and map them a moment later, or remove them. So what is
        # there after the wait may be another test's again.
        try:
            wait_for(lambda: not left_memory(self.shm), lambda: left_memory(self.shm))
        except AssertionError as late:
            left += late.args[0]
        return f"files left: {left}" if left else None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            left = self.stop()
        finally:
            self.remove()
        assert not left, left

    def remove(self):
        if self.daemon.poll() is None:
            self.daemon.kill()
            self.daemon.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def is_fork_server(pid):
    with contextlib.suppress(OSError):
        return b"fork-server" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def stranger(node):
    """Opens a silent connection over TCP."""
    return wire.dial(node.address("tcp"))


def hangs_up(connection):
    """Returns what the other side sends before it closes the connection, or None if it does not
    close it."""
    connection.settimeout(PATIENCE_S)
    said = b""
    try:
        while piece := connection.recv(65536):
            said += piece
    except TimeoutError:
        return None
    except OSError:
        pass
    return said


def is_open(connection):
    """Returns whether the other side has neither sent anything nor closed the connection."""
    connection.setblocking(False)
    try:
        connection.recv(1)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


socket.setdefaulttimeout(PATIENCE_S)
