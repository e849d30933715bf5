"""Emulated guests that run the client of tests/faults on a daemon of this host.

A guest is QEMU with a kernel and an initramfs, which is made here: busybox, the modules of vsock,
the client, its libraries, and the key. vhost-device-vsock ends the guest's vsock in Unix sockets,
so neither root nor a module of the host's kernel is needed.
"""

import gzip
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / name) for name in ("", "faults")]

from node import BIN, LOAD, TARGET, Fault
from patience import CASE_S, wait_for

# Where the setup puts the kernel, and the monitor unless it is installed.
KERNEL = TARGET / "guest"
os.environ["PATH"] += f":{TARGET / 'tools/bin'}"
PORT = 7367
MEMORY_MIB = 192
# Memory that a guest shares with the host, if it does. The session of a guest that was killed may
# still have a part when the next one begins.
SHARED_MIB, SHARED_PARTS = 64, 2
# In the order in which they are loaded.
MODULES = [
    "drivers/virtio/virtio_ring",
    "drivers/virtio/virtio",
    "drivers/virtio/virtio_pci_legacy_dev",
    "drivers/virtio/virtio_pci_modern_dev",
    "drivers/virtio/virtio_pci",
    "net/vmw_vsock/vsock",
    "net/vmw_vsock/vmw_vsock_virtio_transport_common",
    "net/vmw_vsock/vmw_vsock_virtio_transport",
]
# The kernel passes what follows `--` on its command line to init. Each line on the console is the
# name of a signal for the client.
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in {modules}; do insmod /modules/$module.ko; done
export PENSTOCK_NODES=vsock:2 PENSTOCK_KEY=/key OCL_ICD_VENDORS=/vendors
export PENSTOCK_PLACEMENT=round-robin PENSTOCK_TIMEOUT_MS=60000
export LD_LIBRARY_PATH=/lib HOME=/
echo booted
stop_s=$1; shift
load "$@" & pid=$!
( while read name; do kill -$name $pid; done ) < /dev/ttyS0 &
if [ "$stop_s" -gt 0 ]; then
    sleep 2; kill -STOP $pid; echo stopped
    sleep "$stop_s"; kill -CONT $pid; echo continued
fi
wait $pid
echo "ended with $?"
poweroff -f
"""


def missing():
    """Returns what this host lacks for a guest, or None."""
    for program in ("qemu-system-x86_64", "vhost-device-vsock", "busybox"):
        if not shutil.which(program):
            return f"no {program}: tools/setup.sh guest"
    if not list(KERNEL.glob("boot/vmlinuz-*")):
        return "no kernel for guests: tools/setup.sh guest"
    return None


def libraries_of(*programs):
    """Returns the shared libraries of programs, as paths."""
    found = set()
    for program in programs:
        said = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        found.update(re.findall(r"(/\S+) \(0x", said))
    return sorted(found)


class Archive:
    """An archive in cpio's format "newc", which the kernel unpacks."""

    def __init__(self):
        self.bytes, self.count, self.folders = bytearray(), 0, set()

    def add(self, name, content=b"", mode=0o100755):
        parent = str(Path(name).parent)
        if parent != "." and parent not in self.folders:
            self.folders.add(parent)
            self.add(parent, mode=0o040755)
        self.count += 1
        fields = [self.count, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0]
        self.bytes += b"070701" + b"".join(b"%08x" % field for field in fields)
        for part in (name.encode() + b"\0", content):
            self.bytes += part + bytes(-(len(self.bytes) + len(part)) % 4)

    def write(self, path):
        self.add("TRAILER!!!", mode=0)
        path.write_bytes(gzip.compress(bytes(self.bytes), 1))


def write_initramfs(path, key):
    archive = Archive()
    modules = next((KERNEL / "lib/modules").iterdir()) / "kernel"
    for module in MODULES:
        name = f"modules/{Path(module).name}.ko"
        archive.add(name, (modules / f"{module}.ko").read_bytes())
    names = " ".join(Path(module).name for module in MODULES)
    archive.add("init", INIT.format(modules=names).encode())
    archive.add("bin/busybox", Path(shutil.which("busybox")).read_bytes())
    archive.add("bin/load", LOAD.read_bytes())
    face = BIN / "libpenstock_opencl.so"
    archive.add("penstock.so", face.read_bytes())
    archive.add("vendors/penstock.icd", b"/penstock.so\n")
    archive.add("key", Path(key).read_bytes(), mode=0o100600)
    for library in libraries_of(LOAD, face):
        # The loader of programs has its path in each of them.
        place = library.lstrip("/") if "ld-linux" in library else f"lib/{Path(library).name}"
        archive.add(place, Path(library).read_bytes())
    for folder in ("proc", "sys", "dev"):
        archive.add(folder, mode=0o040755)
    archive.write(path)


class Place:
    """A place for one guest after the other: the path that its monitor and the daemon know. With
    `memory`, a folder of a tmpfs, the guests also share memory with the host."""

    def __init__(self, folder, number, memory=None):
        self.folder, self.number = Path(folder), number
        self.path = self.folder / f"g{number}"
        self.listen = f"vsock:{self.path}:{PORT}"
        self.memory = memory and Path(memory) / f"g{number}"

    def options(self):
        """Returns the options of the daemon for this place, besides that of its address."""
        if not self.memory:
            return []
        parts = f"size={SHARED_MIB}M,sessions={SHARED_PARTS}"
        return ["--guest-memory", f"{self.listen}={self.memory},{parts}"]


class Guest:
    """A guest that runs `load MODE SECONDS`. Its output lines tell what it does."""

    def __init__(self, place, initramfs, *load, stop_s=0):
        self.place, self.lines, self.stamps = place, [], []
        self.socket, self.orders = f"{place.path}.vhost", f"{place.path}.qmp"
        for old in (self.socket, place.path, self.orders):
            Path(old).unlink(missing_ok=True)
        self.monitor = self.start_monitor()
        wait_for(lambda: Path(self.socket).exists(), "vhost-device-vsock did not start")
        kernel = next(KERNEL.glob("boot/vmlinuz-*"))
        memory = f"memory-backend-memfd,id=memory,size={MEMORY_MIB}M,share=on"
        arguments = " ".join(map(str, (stop_s, *load)))
        # The model `max` has an instruction for random numbers, which the kernel's need early.
        command = ["qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-nodefaults"]
        command += ["-m", str(MEMORY_MIB)]
        command += ["-display", "none", "-serial", "stdio", "-no-shutdown"]
        command += ["-object", memory, "-machine", "q35,memory-backend=memory"]
        command += ["-chardev", f"socket,id=vsock,path={self.socket}"]
        command += ["-device", "vhost-user-vsock-pci,chardev=vsock"]
        if place.memory:
            shared = f"memory-backend-file,id=shared,mem-path={place.memory},share=on"
            command += ["-object", f"{shared},size={SHARED_MIB}M"]
            command += ["-device", "ivshmem-plain,memdev=shared"]
        command += ["-monitor", f"unix:{self.orders},server,nowait"]
        command += ["-kernel", str(kernel), "-initrd", str(initramfs)]
        # The kernel must not check its timer: on a busy host the check is too early, and it panics.
        words = "console=ttyS0 quiet panic=-1 no_timer_check"
        command += ["-append", f"{words} -- {arguments}"]
        self.machine = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        threading.Thread(target=self.read, daemon=True).start()

    def start_monitor(self):
        command = ["vhost-device-vsock", "--guest-cid", str(self.place.number + 3)]
        command += ["--socket", self.socket, "--uds-path", str(self.place.path)]
        with open(f"{self.place.path}.log", "a") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)

    def read(self):
        for line in self.machine.stdout:
            self.lines.append(line.strip())
            self.stamps.append(time.monotonic())

    def said_at(self, word):
        """Returns when the guest said a line that begins with this word, or None."""
        found = (stamp for line, stamp in zip(self.lines, self.stamps) if line.startswith(word))
        return next(found, None)

    def must_say(self, word):
        """Waits for a line of the guest. An emulated guest takes longer than other programs."""
        wait_for(
            lambda: self.said_at(word) or self.machine.poll() is not None,
            lambda: f"the guest did not say `{word}`: {self.lines[-4:]}",
            CASE_S,
        )
        if not self.said_at(word):
            raise Fault(f"the guest ended before it said `{word}`: {self.lines[-4:]}")
        return self.said_at(word)

    def wait_busy(self):
        self.must_say("busy")

    def order(self, text):
        """Gives QEMU an order."""
        with socket.socket(socket.AF_UNIX) as orders:
            orders.connect(self.orders)
            orders.recv(4096)
            orders.send(f"{text}\n".encode())
            time.sleep(0.2)

    def signal(self, name):
        """Sends the client a signal."""
        self.machine.stdin.write(f"{name}\n")
        self.machine.stdin.flush()

    def must_be_right(self):
        """Has the client end, and checks that it got right results until now."""
        self.signal("TERM")
        self.must_say("ended with 0")

    def kill(self):
        """Ends the guest as a crash of the host's process does."""
        self.machine.send_signal(signal.SIGKILL)
        self.machine.wait()

    def end(self):
        for process in (self.machine, self.monitor):
            if process.poll() is None:
                process.kill()
            process.wait()
