"""False daemons and workers against the library. They must not crash a program, nor block it for
ever."""

import contextlib
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import wire
from node import BIN, ROOT, TARGET
from patience import PATIENCE_S
from wire import exactly


class Impostor:
    """A listener that plays a false daemon. It releases all its connections when it ends."""

    def __init__(self, node, talk):
        self.path = node.folder / "impostor.sock"
        self.path.unlink(missing_ok=True)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(self.path))
        self.listener.listen(64)
        self.talk, self.open = talk, []
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.open.append(connection)
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        try:
            self.talk(connection)
        except OSError:
            pass
        connection.close()

    def close(self):
        self.listener.close()
        for connection in self.open:
            connection.close()
        self.path.unlink(missing_ok=True)


def welcome(connection, features=0, verdict=0, final=0):
    """Performs the accepting side of a hello on a Unix socket. Returns the role of the connecting
    side."""
    role = struct.unpack_from("<H", exactly(connection, wire.HELLO_BYTES), 10)[0]
    connection.sendall(
        struct.pack("<8sHHQ160s", wire.MAGIC, wire.VERSION, verdict, features, os.urandom(160))
    )
    exactly(connection, 64)
    connection.sendall(struct.pack("<HI", final, 0))
    return role


def describe(connection, role, description):
    """Sends what follows the hello: for a client the description, for a survey also that no problem
    is known."""
    content = description + (b"\0" if role == wire.SURVEY else b"")
    connection.sendall(struct.pack("<I", len(content)) + content)


def load(node):
    """Builds the program of the fault tests and makes the library its only driver."""
    program, source = TARGET / "programs" / "fault-load", ROOT / "tests/faults/load.c"
    program.parent.mkdir(parents=True, exist_ok=True)
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        subprocess.run(
            [
                "gcc",
                "-std=c11",
                "-D_GNU_SOURCE",
                "-O1",
                "-I",
                ROOT / "include",
                "-o",
                program,
                source,
                "-lOpenCL",
            ],
            check=True,
        )
    vendors = node.folder / "vendors"
    if not vendors.exists():
        vendors.mkdir()
        (vendors / "penstock.icd").write_text(f"{BIN / 'libpenstock_opencl.so'}\n")
    return [program, "check"], {"OCL_ICD_VENDORS": str(vendors), "OPENCL_VENDOR_PATH": str(vendors)}


def meet(node, talk, command=None, variables=None, patience=PATIENCE_S):
    """Connects a program to an impostor. The program must end by itself, in time, and not by a
    signal."""
    impostor = Impostor(node, talk)
    env = dict(node.env, PENSTOCK_NODES=f"unix:{impostor.path}", **(variables or {}))
    process = subprocess.Popen(
        [str(part) for part in command or [BIN / "penstock", "devices"]],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    most = 0
    end = time.monotonic() + patience
    try:
        while process.poll() is None:
            assert time.monotonic() < end, "the program hangs"
            try:
                lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
                most = max(
                    most, *(int(line.split()[1]) for line in lines if line.startswith("RssAnon")), 0
                )
            except (OSError, ValueError):
                pass
            time.sleep(0.005)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        said = process.communicate()[0].decode(errors="replace")
        impostor.close()
    assert process.returncode >= 0, f"ended by signal {-process.returncode}: {said[-200:]}"
    assert "panicked" not in said, said[-400:]
    return process.returncode, said, most << 10


def description_of(node):
    connection = wire.enter(node.address("unix"))
    size = struct.unpack("<I", exactly(connection, 4))[0]
    description = exactly(connection, size)
    connection.close()
    return description


def hold(connection):
    """Says nothing until the other side hangs up."""
    connection.settimeout(None)
    while connection.recv(65536):
        pass


def impostors_in_the_hello(node):
    talks = [
        hold,
        lambda connection: connection.sendall(os.urandom(4096)),
        lambda connection: connection.sendall(bytes(4096)),
        lambda connection: welcome(connection, verdict=77),
        lambda connection: welcome(connection, final=77),
        lambda connection: welcome(connection, features=(1 << 64) - 1),
        lambda connection: (welcome(connection), hold(connection)),
        # A line that never moves, without any further message.
        lambda connection: (welcome(connection, final=wire.IN_LINE), hold(connection)),
        lambda connection: (
            welcome(connection, final=wire.IN_LINE),
            connection.sendall(struct.pack("<HI", 77, 0)),
        ),
        lambda connection: (
            welcome(connection),
            connection.sendall(struct.pack("<I", 0xFFFFFFFF)),
            hold(connection),
        ),
        lambda connection: (
            welcome(connection),
            connection.sendall(struct.pack("<I", 4 << 20)),
            hold(connection),
        ),
        lambda connection: (welcome(connection), connection.sendall(struct.pack("<I", 0))),
    ]
    for number, talk in enumerate(talks):
        # The first one meets the usual patience of programs.
        hasty = {"PENSTOCK_TIMEOUT_MS": "300"} if number else {}
        code, said, most = meet(node, talk, variables=hasty)
        assert code != 0 or "devices" not in said, f"talk {number}: {said}"
        assert most < 64 << 20, f"talk {number}: {most >> 20} MiB"


def impostors_with_wrong_descriptions(node):
    """A real node's description with bytes changed, removed or added, and with wrong sizes."""
    right, generator = description_of(node), random.Random(5)
    for turn in range(60):
        wrong = bytearray(right)
        if turn % 3 == 0:
            for _ in range(generator.randrange(1, 6)):
                wrong[generator.randrange(len(wrong))] = generator.choice(
                    [0, 1, 0x7F, 0x80, 0xFF, generator.randrange(256)]
                )
        elif turn % 3 == 1:
            wrong = wrong[: generator.randrange(len(wrong))]
        else:
            at = generator.randrange(min(len(wrong), 200))
            wrong[at:at] = b"\xff\xff\xff\xff\x0f"

        def talk(connection, wrong=bytes(wrong)):
            describe(connection, welcome(connection), wrong)

        command, variables = load(node) if turn % 5 == 0 else (None, None)
        _, _, most = meet(node, talk, command, variables)
        assert most < 256 << 20, f"turn {turn}: {most >> 20} MiB"


def workers_that_lie(node):
    """A correct start, then frames that answer no request, all requests, or send too much."""
    right, generator = description_of(node), random.Random(9)

    def frame(opcode, body, payload=b"", announce=None):
        return (
            wire.header(opcode, len(body), 0, 0, len(payload) if announce is None else announce)
            + body
            + payload
        )

    def reply(request, status, payload=b"", announce=None):
        return frame(wire.REPLY, struct.pack("<Qi", request, status), payload, announce)

    floods = [
        [os.urandom(1 << 16)],
        [wire.header(0x0109, 8) + bytes(8)],
        [reply(n, 0) for n in range(3000)],
        [reply(n, 0, b"\xff" * 9) for n in range(300)],
        [reply(n, -5, b"\xff\xff\xff\xff\x0f") for n in range(300)],
        [reply(1, 0, announce=(512 << 20) + 1)],
        [reply(1, 0, announce=512 << 20)],
        [
            frame(wire.EVENT_DONE, struct.pack("<Qi5Q", n, n % 3 - 1, *[(1 << 64) - 1] * 5))
            for n in range(3000)
        ],
        [
            frame(wire.READ_DATA, struct.pack("<QQ", n, (1 << 64) - 8), bytes(100))
            for n in range(1000)
        ],
        [frame(wire.READ_DATA, struct.pack("<QQ", 3, 0), announce=1 << 46)],
        [frame(wire.MEM_GONE, struct.pack("<Q", n)) for n in range(1000)],
        [frame(wire.CONTEXT_ERROR, struct.pack("<Q", n), b"\xff" * 1000) for n in range(100)],
        [frame(wire.FAULT, struct.pack("<i", 5), b"\x1b[31mgo away\0\n" * 10)],
        [frame(wire.OUTPUT, b"", announce=(64 << 10) + 1)],
    ]
    command, variables = load(node)
    for number, flood in enumerate(floods):

        def talk(connection, flood=flood):
            describe(connection, welcome(connection), right)
            # Sent when the program has made a request, and again after each further one.
            while connection.recv(65536):
                for piece in flood:
                    connection.sendall(piece)
                generator.shuffle(flood)
                connection.settimeout(1)

        code, said, most = meet(node, talk, command, variables)
        assert code != 0, f"flood {number}: the program took it for right: {said}"
        assert most < 700 << 20, f"flood {number}: {most >> 20} MiB"


def a_line_without_end(node):
    """A program must wait as long as the daemon lives, say so, and be interruptible. It must notice
    at once if the daemon ends."""
    for lives_on in (True, False):
        end = threading.Event()

        def talk(connection, end=end):
            welcome(connection, final=wire.IN_LINE)
            while not end.wait(0.2):
                connection.sendall(struct.pack("<HI", wire.IN_LINE, 7))

        impostor = Impostor(node, talk)
        command, variables = load(node)
        env = dict(node.env, PENSTOCK_NODES=f"unix:{impostor.path}", **variables)
        process = subprocess.Popen(
            [str(part) for part in command],
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            line = process.stderr.readline()
            assert "waits in line" in line and "at place 8" in line, line
            assert process.poll() is None, "it did not wait"
            if not lives_on:
                end.set()
                process.wait(PATIENCE_S)
                rest = process.stderr.read()
                assert "is left out" in rest, rest
        finally:
            end.set()
            process.kill()
            process.communicate()
            impostor.close()


def a_socket_where_others_can_write(node):
    """The user's own socket must not be trusted in a directory that others can write to."""
    folder = node.folder / "runtime"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "penstock").mkdir(parents=True)
    os.chmod(folder, 0o700)
    os.chmod(folder / "penstock", 0o777)
    env = dict(node.env, XDG_RUNTIME_DIR=str(folder))
    ended = subprocess.run(
        [BIN / "penstock", "serve"], env=env, capture_output=True, timeout=PATIENCE_S, text=True
    )
    assert ended.returncode != 0 and "others can write" in ended.stderr, (
        f"{ended.returncode}: {ended.stderr}"
    )


def a_vacated_socket(node):
    """Another user takes the place of a daemon in a directory that everybody can write to, and
    waits for programs. A program must send nothing there, and say why."""
    if os.geteuid() != 0:
        return "not tried as another user: needs root"
    shared = Path(tempfile.mkdtemp(prefix="ps-vacated-"))
    shared.chmod(0o1777)
    try:
        for user, must_refuse in ((65534, True), (0, False)):
            heard, path = vacate(node, shared, user)
            told = subprocess.run(
                [BIN / "penstock", "devices"],
                env=dict(node.env, PENSTOCK_NODES=f"unix:{path}", PENSTOCK_TIMEOUT_MS="500"),
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
            )
            # A program of root believes a listener of root, so that impostor hears its hello. If it
            # heard nothing, the silence at the other impostor would prove nothing.
            assert (heard() == b"") == must_refuse, f"user {user} heard {heard()[:40]}"
            said = f"is a socket of user {user}, in a directory where others"
            assert (said in told.stderr) == must_refuse, told.stderr
    finally:
        shutil.rmtree(shared)


def vacate(node, shared, user):
    """Starts a process of a user that listens in `shared`, accepts one connection, and tells what
    it heard. Returns a function that waits for this, and the path."""
    path, ready = shared / f"socket-{user}", os.pipe()
    told = shared / f"heard-{user}"
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(str(path))
            path.chmod(0o666)
            listener.listen(1)
            os.write(ready[1], b"x")
            listener.settimeout(PATIENCE_S)
            connection, _ = listener.accept()
            connection.settimeout(PATIENCE_S)
            heard = b""
            with contextlib.suppress(OSError):
                heard = connection.recv(4096)
            told.write_bytes(heard)
        finally:
            os._exit(0)
    os.close(ready[1])
    assert os.read(ready[0], 1) == b"x", "the impostor did not start"
    os.close(ready[0])
    waited = []

    def heard():
        if not waited:
            waited.append(os.waitpid(child, 0))
        return told.read_bytes()

    return heard, path


ATTACKS = [
    impostors_in_the_hello,
    impostors_with_wrong_descriptions,
    workers_that_lie,
    a_line_without_end,
    a_vacated_socket,
    a_socket_where_others_can_write,
]
