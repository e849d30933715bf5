#!/usr/bin/env python3
"""Measures the transports between a virtual machine and its host, in one emulated guest.

Boots a small Linux guest in QEMU with three ways to the daemon of this host: memory that both see
(an ivshmem device) with wake-ups over vsock, vsock alone, and TCP over virtio-net with QEMU's own
network. In the guest every round runs `clbench` over each way, in turn, so that varying load of the
machine affects all of them. Prints the medians of the rounds and their ratios as JSON, and fails
unless shared memory meets its bars.

Needs what `tools/setup.sh guest` installs. The guest is emulated unless `--accel kvm` is given.
"""

import argparse
import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP / "tests/guests"))

from guest import BIN, KERNEL, TARGET, Archive, libraries_of

MODULES = [
    *("virtio_ring", "virtio", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci"),
    *("failover", "net_failover", "virtio_net"),
    *("vsock", "vmw_vsock_virtio_transport_common", "vmw_vsock_virtio_transport"),
]
# The ways to the host's daemon, and the variables of a program in the guest that takes them. TCP is
# plain, so that all ways carry the same bytes.
WAYS = {
    "shared memory": "PENSTOCK_NODES=vsock:2:7367",
    "vsock": "PENSTOCK_NODES=vsock:2:7367 PENSTOCK_GUEST_MEMORY=none",
    "virtio-net": "PENSTOCK_NODES=tcp:10.0.2.2:{port} PENSTOCK_ENCRYPTION=never "
    "PENSTOCK_GUEST_MEMORY=none",
}
MARK = "=== "  # Starts the lines that this script reads from the guest's console.
# Rows of `clbench` that shared memory must serve at this multiple of the rate of virtio-net, and
# rows that must not take longer than over vsock.
FASTER = ("blocking read 16 MiB", "write 16 MiB to its end")
FASTER_RATIO = 5
LAUNCHES = (
    "launch and finish, median",
    "launch and finish after 2 ms of rest, median",
    "write, kernel, read back 64 B",
)


def main():
    args = arguments()
    with tempfile.TemporaryDirectory(prefix="guest-", dir="/dev/shm") as folder:
        report = measure(args, Path(folder))
    print(json.dumps(report, indent=2))
    failed = [bar["what"] for bar in report["bars"] if not bar["met"]]
    sys.exit(f"not met: {', '.join(failed)}" if failed else 0)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernel", type=Path, default=KERNEL, help="folder with boot and lib")
    parser.add_argument("--bin", type=Path, default=Path(BIN))
    parser.add_argument(
        "--programs", type=Path, default=TARGET / "programs", help="folder of clbench"
    )
    parser.add_argument("--vhost", default="vhost-device-vsock", help="vhost-device-vsock")
    parser.add_argument("--accel", default="tcg,thread=multi")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", default="768M", help="memory of the guest")
    parser.add_argument("--limit", type=int, default=540, help="seconds for everything")
    parser.add_argument("--only", default="bulk launch", help="groups of clbench")
    return parser.parse_args()


def measure(args, folder):
    with contextlib.ExitStack() as stack:
        port = free_port()
        key = folder / "key"
        environment = {**os.environ, "PENSTOCK_KEY": str(key)}
        create = [args.bin / "penstock", "key", "--create"]
        subprocess.run(create, check=True, stdout=sys.stderr, env=environment)
        monitor, vhost = folder / "vsock", folder / "vhost"
        memory = folder / "memory"
        serve = [args.bin / "penstock", "serve", "--listen", f"vsock:{monitor}:7367"]
        serve += ["--listen", f"tcp:127.0.0.1:{port}"]
        serve += ["--guest-memory", f"vsock:{monitor}:7367={memory},size=256M,sessions=2"]
        daemon = start(stack, serve, env=environment)
        start(stack, [args.vhost, "--vm", f"guest-cid=3,uds-path={monitor},socket={vhost}"])
        await_file(vhost)
        await_file(memory)
        initramfs = make_initramfs(args, key, port, folder)
        console = start(stack, qemu(args, initramfs, vhost, memory), stdout=subprocess.PIPE)
        results, ways = read_console(console, time.monotonic() + args.limit)
        assert daemon.poll() is None, "the daemon ended"
    return summary(results, ways)


def qemu(args, initramfs, vhost, memory):
    (kernel,) = (args.kernel / "boot").glob("vmlinuz-*")
    return [
        "qemu-system-x86_64", "-nodefaults", "-nographic", "-no-reboot", "-serial", "stdio",
        "-accel", args.accel, "-machine", "q35,memory-backend=ram", "-smp", "1",
        "-m", args.memory,
        "-object", f"memory-backend-memfd,id=ram,size={args.memory},share=on",
        "-chardev", f"socket,id=vhost,path={vhost}",
        "-device", "vhost-user-vsock-pci,chardev=vhost",
        "-object", f"memory-backend-file,id=shared,mem-path={memory},share=on,size=256M",
        "-device", "ivshmem-plain,memdev=shared",
        "-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile=",
        "-kernel", kernel, "-initrd", initramfs,
        # The kernel must not check its timer: on a busy host the check is too early, and it panics.
        "-append", "console=ttyS0 quiet panic=-1 no_timer_check",
    ]  # fmt: skip


def make_initramfs(args, key, port, folder):
    archive = Archive()
    command, clbench = args.bin / "penstock", args.programs / "clbench"
    face = args.bin / "libpenstock_opencl.so"
    files = {command: "bin/penstock", clbench: "bin/clbench", face: "lib/libpenstock_opencl.so"}
    files |= {library: library.lstrip("/") for library in libraries_of(command, clbench, face)}
    files |= {shutil.which("busybox"): "bin/busybox"}
    for name in MODULES:
        (module,) = (args.kernel / "lib/modules").rglob(f"{name}.ko")
        files[module] = f"modules/{name}.ko"
    for source, target in files.items():
        archive.add(target, Path(source).read_bytes())
    archive.add("key", key.read_bytes(), mode=0o100600)
    archive.add("etc/OpenCL/vendors/penstock.icd", b"/lib/libpenstock_opencl.so\n")
    archive.add("init", init(args, port).encode())
    for empty in ("proc", "sys", "dev", "tmp"):
        archive.add(empty, mode=0o040755)
    archive.write(folder / "initramfs")
    return folder / "initramfs"


def init(args, port):
    lines = ["#!/bin/busybox sh", "/bin/busybox --install -s /bin", "export PATH=/bin"]
    lines += [f"mount -t {kind} none /{name}" for kind, name in
              [("proc", "proc"), ("sysfs", "sys"), ("devtmpfs", "dev")]]  # fmt: skip
    lines += [f"insmod /modules/{name}.ko" for name in MODULES]
    lines += ["ip link set lo up", "ip link set eth0 up", "ip addr add 10.0.2.15/24 dev eth0"]
    lines += ["export PENSTOCK_KEY=/key HOME=/tmp"]
    for number in range(args.rounds):
        for name, variables in WAYS.items():
            variables = variables.format(port=port)
            if number == 0:
                # A program that waits shows how the daemon sees its session.
                lines += [f"({variables} clbench --quick --only launch >/dev/null & sleep 3"]
                lines += [f"echo '{MARK}way {name}'; {variables} penstock status; wait)"]
            for group in args.only.split():
                lines += [
                    f"echo '{MARK}begin {name}'",
                    f"{variables} clbench --quick --only {group}",
                ]
                lines += [f"echo '{MARK}end'"]
    return "\n".join([*lines, f"echo '{MARK}done'", "poweroff -f", ""])


def read_console(console, deadline):
    """Returns the rows of each way, and what the daemon says of each way."""
    results, ways = {name: {} for name in WAYS}, {}
    part, kept = None, []
    for line in console.stdout:
        if time.monotonic() > deadline:
            sys.exit("the guest takes too long; try fewer rounds or a larger --limit")
        line = line.rstrip("\r\n")
        print(line, file=sys.stderr)
        if not line.startswith(MARK):
            kept.append(line)
            continue
        if part and part[0] == "begin":
            for row in json.loads("\n".join(kept))["rows"]:
                results[part[1]].setdefault(row["name"], []).append(row["value"])
        elif part and part[0] == "way":
            ways[part[1]] = [line for line in kept if "clbench" in line or "memory" in line]
        part, kept = line.removeprefix(MARK).split(" ", 1), []
        if part == ["done"]:
            return results, ways
    sys.exit("the guest ended early")


def summary(results, ways):
    rows = {}
    for name in results["vsock"]:
        row = {way: statistics.median(values[name]) for way, values in results.items()}
        rounds = {way: sorted(values[name]) for way, values in results.items()}
        rows[name] = {**row, "to vsock": row["shared memory"] / row["vsock"]}
        rows[name]["to virtio-net"] = row["shared memory"] / row["virtio-net"]
        rows[name]["rounds"] = rounds
    bars = []
    for name in FASTER:
        if name in rows:
            ratio = rows[name]["to virtio-net"]
            what = f"{name}: {ratio:.2f} times the rate of virtio-net, at least {FASTER_RATIO}"
            bars.append({"what": what, "met": ratio >= FASTER_RATIO})
    for name in LAUNCHES:
        if name in rows:
            ratio = rows[name]["to vsock"]
            what = f"{name}: {ratio:.2f} of the time over vsock, at most 1"
            bars.append({"what": what, "met": ratio <= 1})
    return {"rows": rows, "bars": bars, "ways": ways}


def start(stack, command, **options):
    """Starts a process that ends with the stack."""
    if "stdout" not in options:
        options["stdout"] = sys.stderr
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, text=True, **options)

    def end():
        process.terminate()
        process.wait()

    stack.callback(end)
    return process


def await_file(path, seconds=20):
    deadline = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() > deadline:
            sys.exit(f"{path} does not appear")
        time.sleep(0.05)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


if __name__ == "__main__":
    main()
