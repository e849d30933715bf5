"""The part of Penstock's protocol that an attacker needs: the hello, and frames over a plain
socket."""

import hashlib
import hmac
import os
import socket
import struct
import time

from patience import PATIENCE_S

MAGIC = b"PENSTOCK"
VERSION = 5
CLIENT, PEER, CONTROL, SURVEY = 1, 2, 3, 4
(
    WELCOME,
    WRONG_VERSION,
    WRONG_KEY,
    WRONG_USER,
    FULL,
    NO_WORKER,
    WRONG_TICKET,
    NOT_UNDERSTOOD,
    NO_KEY,
    IN_LINE,
    UNCONFINED,
    OVER_LIMIT,
) = range(12)
HELLO_BYTES, WELCOME_BYTES, FINAL_BYTES = 52, 180, 6
NODE_LOST = -2

CALLS = {
    "CreateContext": (0x0100, "<QI"),
    "ReleaseContext": (0x0101, "<Q"),
    "CreateQueue": (0x0102, "<QQIQII"),
    "ReleaseQueue": (0x0103, "<Q"),
    "Flush": (0x0104, "<Q"),
    "Finish": (0x0105, "<QQ"),
    "Ping": (0x0109, "<Q"),
    "CreateBuffer": (0x0120, "<QQQQ"),
    "CreateSubBuffer": (0x0121, "<QQQQQ"),
    "CreateImage": (0x0122, "<QQQQ"),
    "ReleaseMem": (0x0124, "<Q"),
    "CreateSampler": (0x0125, "<QQ"),
    "InitBuffer": (0x0127, "<QQ"),
    "AllocSvm": (0x0129, "<QQQQQIQ"),
    "CreateSharedBuffer": (0x012A, "<QQQQQ"),
    "CreateProgramWithSource": (0x0140, "<QQ"),
    "CreateProgramWithBinary": (0x0141, "<QQQ"),
    "ReleaseProgram": (0x0144, "<Q"),
    "BuildProgram": (0x0145, "<QQ"),
    "CompileProgram": (0x0146, "<QQ"),
    "ProgramBinaries": (0x0148, "<QQ"),
    "ProgramHeaders": (0x014C, "<Q"),
    "CreateKernel": (0x0150, "<QQ"),
    "ReleaseKernel": (0x0152, "<Q"),
    "LaunchKernel": (0x0200, "<QQQII9Q"),
    "WriteBuffer": (0x0201, "<QQQQ"),
    "ReadBuffer": (0x0202, "<QQQQQ"),
    "WriteBufferRect": (0x0203, "<QQQ8Q"),
    "ReadBufferRect": (0x0204, "<QQQ8Q"),
    "CopyBuffer": (0x0205, "<QQQQQQQ"),
    "FillBuffer": (0x0207, "<QQQQQ"),
    "ReadImage": (0x0209, "<QQQ6Q"),
    "Marker": (0x020E, "<QQ"),
    "Migrate": (0x0210, "<QQQ"),
    "CopySvm": (0x0211, "<QQQQQ"),
    "ReleaseEvents": (0x0300, "<"),
    "ExpectEvent": (0x0301, "<QQ"),
    "ResolveEvent": (0x0302, "<Qi"),
    "TellPeer": (0x0303, "<QQ"),
    "ConnectPeer": (0x0304, "<QQ"),
    "AdmitPeer": (0x0305, "<QQ"),
    "SendMem": (0x0306, "<6Q"),
    "ReceiveMem": (0x0307, "<6Q"),
    "PeerEvent": (0x9000, "<Qi"),
    "TransferData": (0x9001, "<Qi"),
}
REPLY, EVENT_DONE, READ_DATA, OUTPUT, CONTEXT_ERROR, FAULT, MEM_GONE, PEER_LOST = range(
    0x8000, 0x8008
)


class Refused(Exception):
    """The other side refused the hello."""

    def __init__(self, verdict):
        super().__init__(f"refused with verdict {verdict}")
        self.verdict = verdict


def varint(number):
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def numbers(values):
    """Encodes a postcard list of unsigned numbers."""
    return varint(len(values)) + b"".join(varint(value) for value in values)


def text(string):
    raw = string if isinstance(string, bytes) else string.encode()
    return varint(len(raw)) + raw


def header(opcode, body, waits=0, reserved=0, payload=0):
    return struct.pack("<HHHHQ", opcode, body, waits, reserved, payload)


def frame(name, *fields, waits=(), payload=b"", announce=None):
    opcode, form = CALLS[name]
    body = struct.pack(form, *fields)
    head = header(opcode, len(body), len(waits), 0, len(payload) if announce is None else announce)
    return head + body + struct.pack(f"<{len(waits)}Q", *waits) + payload


def dial(address, patience=PATIENCE_S):
    kind, rest = address.split(":", 1)
    if kind == "unix":
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(patience)
        connection.connect(rest)
    else:
        host, port = rest.rsplit(":", 1)
        connection = socket.create_connection((host, int(port)), patience)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.settimeout(patience)
    return connection


def exactly(connection, count):
    got = bytearray()
    while len(got) < count:
        piece = connection.recv(min(count - len(got), 1 << 20))
        if not piece:
            raise ConnectionError(f"the other side hung up after {len(got)} of {count} bytes")
        got += piece
    return bytes(got)


def hello_bytes(role=CLIENT, version=VERSION, features=0, nonce=None, magic=MAGIC):
    return struct.pack("<8sHHQ32s", magic, version, role, features, nonce or os.urandom(32))


def proof(key, side, hello, welcome):
    blank = welcome[: WELCOME_BYTES - 32] + bytes(32)
    return hmac.new(
        key, f"penstock 2 {side}".encode() + b"\0" + hello + blank, hashlib.sha256
    ).digest()


def verdict_of(welcome):
    return struct.unpack_from("<H", welcome, 10)[0]


def enter(
    address, key=None, role=CLIENT, ticket=bytes(32), connection=None, hello=None, check=True
):
    """Sends a correct hello. Returns the connection."""
    connection = connection or dial(address)
    hello = hello or hello_bytes(role)
    connection.sendall(hello)
    welcome = exactly(connection, WELCOME_BYTES)
    if verdict_of(welcome) != WELCOME:
        raise Refused(verdict_of(welcome))
    if key and check and welcome[-32:] != proof(key, "accepting", hello, welcome):
        raise Refused("the daemon has another key")
    connection.sendall((proof(key, "connecting", hello, welcome) if key else bytes(32)) + ticket)
    final = last_of(connection)
    if final != WELCOME:
        raise Refused(final)
    return connection


def final_of(connection):
    """Returns the verdict of the next message after the answer. It may be that there is a line."""
    return struct.unpack("<HI", exactly(connection, FINAL_BYTES))[0]


def greet(connection):
    """Sends a correct hello on a Unix socket and reads the first answer. Returns whether there is a
    worker, or a line."""
    connection.sendall(hello_bytes())
    welcome = exactly(connection, WELCOME_BYTES)
    if verdict_of(welcome) == WELCOME:
        connection.sendall(bytes(64))
        return final_of(connection)
    return verdict_of(welcome)


def last_of(connection):
    """Returns the last verdict, after all messages about the line."""
    while (final := final_of(connection)) == IN_LINE:
        pass
    return final


class Client:
    """A session, spoken by hand."""

    def __init__(self, node, way="unix"):
        self.connection = enter(node.address(way), node.key if way == "tcp" else None)
        size = struct.unpack("<I", exactly(self.connection, 4))[0]
        description = exactly(self.connection, size)
        self.worker = self.worker_of(description)
        self.next = 100
        self.replies, self.ended, self.data, self.output, self.fault = {}, {}, {}, bytearray(), None
        node.roll.add(self.worker)

    @staticmethod
    def worker_of(description):
        """Reads the worker's process id, which follows the host's name and the boot id."""
        at = 0

        def number():
            nonlocal at
            value = shift = 0
            while True:
                byte = description[at]
                at += 1
                value |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    return value

        for _ in range(2):
            size = number()
            at += size
        return number()

    def id(self):
        self.next += 1
        return self.next

    def send(self, name, *fields, **more):
        self.connection.sendall(frame(name, *fields, **more))

    def receive(self):
        """Receives one frame."""
        opcode, body, waits, _, payload = struct.unpack("<HHHHQ", exactly(self.connection, 16))
        fields = exactly(self.connection, body)
        exactly(self.connection, 8 * waits)
        content = exactly(self.connection, payload)
        if opcode == REPLY:
            request, status = struct.unpack("<Qi", fields)
            self.replies[request] = (status, content)
        elif opcode == EVENT_DONE:
            event, status = struct.unpack_from("<Qi", fields)
            self.ended[event] = status
        elif opcode == READ_DATA:
            event, offset = struct.unpack("<QQ", fields)
            self.data.setdefault(event, {})[offset] = content
        elif opcode == OUTPUT:
            self.output += content
        elif opcode == FAULT:
            self.fault = content.decode(errors="replace")
        return opcode

    def until(self, done, patience=PATIENCE_S):
        end = time.monotonic() + patience
        while not done():
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError("nothing came in time")
            self.connection.settimeout(left)
            self.receive()

    def request(self, name, *fields, patience=60, **more):
        request = self.id()
        self.send(name, request, *fields, **more)
        self.until(lambda: request in self.replies, patience)
        return self.replies.pop(request)

    def ping(self, patience=PATIENCE_S):
        started = time.monotonic()
        assert self.request("Ping", patience=patience)[0] == 0
        return time.monotonic() - started

    def wait(self, event, patience=PATIENCE_S):
        self.until(lambda: event in self.ended, patience)
        return self.ended[event]

    def bytes_of(self, event, patience=PATIENCE_S):
        status = self.wait(event, patience)
        assert status == 0, f"a read ended with {status}"
        return b"".join(content for _, content in sorted(self.data.pop(event, {}).items()))

    def end_of(self, patience=PATIENCE_S):
        """Receives until the worker closes the connection. Returns the reason, if the worker gives
        one."""
        end = time.monotonic() + patience
        try:
            while time.monotonic() < end:
                self.connection.settimeout(max(0.01, end - time.monotonic()))
                self.receive()
        except (ConnectionError, struct.error):
            return self.fault or "hung up"
        except TimeoutError:
            pass
        raise AssertionError("the session goes on")

    # The objects with which most attacks begin.

    def setup(self, properties=0):
        self.context, self.queue = self.id(), self.id()
        self.send("CreateContext", self.context, 0, payload=numbers([0]))
        self.send("CreateQueue", self.queue, self.context, 0, properties, 0, 0)
        return self

    def buffer(self, size):
        mem = self.id()
        self.send("CreateBuffer", mem, self.context, 1, size)
        return mem

    def kernel(self, source, name):
        kernel = self.id()
        self.send("CreateKernel", kernel, self.program(source), payload=name.encode())
        return kernel

    def program(self, source):
        program = self.id()
        self.send("CreateProgramWithSource", program, self.context, payload=source.encode())
        status, report = self.request(
            "BuildProgram",
            program,
            payload=numbers([0]) + b"\1" + text("") + b"\0\0",
            patience=2 * PATIENCE_S,
        )
        assert status == 0, f"a build ended with {status}: {report[:400]}"
        return program

    def other_queue(self):
        queue = self.id()
        self.send("CreateQueue", queue, self.context, 0, 0, 0, 0)
        return queue

    def launch(self, kernel, args=b"", items=1, event=None, group=0, queue=None, **more):
        event = self.id() if event is None else event
        self.send(
            "LaunchKernel",
            queue or self.queue,
            kernel,
            event,
            1,
            0,
            0,
            0,
            0,
            items,
            1,
            1,
            group,
            min(group, 1),
            min(group, 1),
            payload=args,
            **more,
        )
        return event

    def read(self, mem, size, offset=0):
        event = self.id()
        self.send("ReadBuffer", self.queue, mem, event, offset, size)
        return event

    def works(self):
        """Runs a kernel and checks its result."""
        self.setup()
        mem, count = self.buffer(4096), 1024
        self.send(
            "WriteBuffer", self.queue, mem, 0, 0, payload=struct.pack(f"<{count}I", *range(count))
        )
        kernel = self.kernel(
            "kernel void add(global uint *w, uint by) { w[get_global_id(0)] += by; }", "add"
        )
        self.launch(kernel, mem_arg(0, mem) + value_arg(1, struct.pack("<I", 7)), count)
        got = self.bytes_of(self.read(mem, 4096))
        assert struct.unpack(f"<{count}I", got) == tuple(range(7, count + 7)), "wrong results"
        return self

    def close(self):
        self.connection.close()


def mem_arg(index, mem):
    return struct.pack("<HBBIQ", index, 1, 0, 8, mem)


def value_arg(index, value):
    return struct.pack("<HBBI", index, 0, 0, len(value)) + value


def local_arg(index, size):
    return struct.pack("<HBBIQ", index, 3, 0, 8, size)


def image(order, kind, image_type, width, height=1, depth=1, layers=1):
    return b"".join(
        varint(n) for n in (order, kind, image_type, width, height, depth, layers, 0, 0, 0, 0)
    )


def invitation(addresses, ticket):
    return varint(len(addresses)) + b"".join(text(address) for address in addresses) + ticket
