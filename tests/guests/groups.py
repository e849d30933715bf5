#!/usr/bin/env python3
"""Control groups of workers, in a guest: what the daemon sets up, and what it ends.

    tests/guests/groups.py

Most hosts of tests have control groups of version 1, or none that a test may divide. So the daemon
runs in an emulated guest with control groups of version 2. The guest needs neither vsock nor a
driver: a worker is ready without one. Prints one line per case; the last line counts them.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from guest import KERNEL, Archive, libraries_of
from node import BIN
from patience import CASE_S, PATIENCE_S
from tally import Skipped, Tally

MEMORY_MIB = 320
LIMIT = "[user.default]\nworker_memory = 50000000\n"

# Each line `CASE: ok` or `CASE: FAIL ...` is a result.
INIT = r"""#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir /tmp
mount -t tmpfs tmp /tmp
mount -t cgroup2 groups /sys/fs/cgroup
ip link set lo up
export LD_LIBRARY_PATH=/lib HOME=/tmp XDG_RUNTIME_DIR=/tmp PENSTOCK_CACHE=/tmp/cache
own=/sys/fs/cgroup/node
echo "+memory +pids +cpu" > /sys/fs/cgroup/cgroup.subtree_control
mkdir $own

# until SECONDS COMMAND: waits until the command succeeds.
until_true() {
    left=$(($1 * 10)); shift
    while ! eval "$@"; do
        left=$((left - 1))
        [ $left -gt 0 ] || return 1
        sleep 0.1
    done
}
result() {
    name=$1; shift
    if eval "$@"; then echo "$name: ok"; else echo "$name: FAIL $(look)"; fi
}
look() { (find $own -name cgroup.procs | xargs grep .; tail -3 /tmp/log) 2>&1 | tr '\n' ' '; }
start() {
    sh -c "echo \$\$ > $1/cgroup.procs; exec penstock serve --limits /limits.toml" 2>>/tmp/log \
        >/dev/null &
    daemon=$!
    until_true 3000 'penstock status --json | grep -q "\"spare_workers\": *2"'
}
first() { ls -d $own/worker-* | head -n 1; }
worker() { head -n 1 $(first)/cgroup.procs; }

start $own
result "the daemon is in a leaf" '[ "$(cat $own/daemon/cgroup.procs)" = $daemon ]'
result "each worker has a group" '[ $(ls -d $own/worker-* | wc -l) = 2 ]'
result "a group has a limit of memory" '[ $(cat $(first)/memory.max) -lt 400000000 ]'
result "a group has a limit of tasks" '[ $(cat $(first)/pids.max) -lt 4000 ]'
result "a group has a weight" '[ $(cat $(first)/cpu.weight) = 10000 ]'
penstock status --json > /tmp/status
result "the status tells the group" 'grep -q "\"path\": *\"$own\"" /tmp/status'
penstock status --limits > /tmp/limits
result "the limit counts as enforced" 'grep -q "worker_memory: Linux counts" /tmp/limits'

# A process of a worker takes all memory. Only what is in the group ends.
old=$(worker); group=$(first)
setsid sh -c 'sleep 1000' & escaped=$!
echo $escaped > $group/cgroup.procs
echo 60000000 > $group/memory.max
echo 0 > $group/memory.swap.max 2>/dev/null
sh -c "echo \$\$ > $group/cgroup.procs; exec tail /dev/zero" 2>/dev/null
code=$?
result "a process beyond the limit of memory ends" \
    '[ $code = 137 ] && grep -q "oom_kill [1-9]" $group/memory.events'
result "the daemon goes on" 'kill -0 $daemon && penstock status >/dev/null'

# The worker ends, and so does what has left its process group.
kill -9 $old
result "what a worker has started ends with it" \
    'until_true 300 "! [ -d $group ] && ! kill -0 $escaped 2>/dev/null"'
result "another worker comes" \
    'until_true 3000 "[ \$(ls -d $own/worker-* | wc -l) = 2 ]"'
result "the log says that the limit was reached" \
    'until_true 300 "grep -q \"reached worker_memory\" /tmp/log"'

# Another daemon cannot use the group.
mkdir $own/../other
sh -c "echo \$\$ > $own/../other/cgroup.procs; exec sleep 1000" &
until_true 300 'grep -q . $own/../other/cgroup.procs'
( export XDG_RUNTIME_DIR=/tmp/b; mkdir /tmp/b; old=$daemon; start $own/../other
  penstock status > /tmp/shared; penstock status --limits > /tmp/limits; kill $daemon )
result "a daemon that is not alone says so" \
    'grep -q "shares its control group with 1 other" /tmp/shared'
result "the limit counts as not enforced" 'grep -q "worker_memory: NOT enforced" /tmp/limits'

# A daemon that is killed leaves what a kernel has started. The next daemon ends it.
setsid sh -c 'sleep 1000' & escaped=$!
group=$(first)
echo $escaped > $group/cgroup.procs
kill -9 $daemon; wait $daemon 2>/dev/null
result "a daemon is killed" \
    'until_true 300 "[ -z \"\$(cat $own/daemon/cgroup.procs)\" ]" && kill -0 $escaped'
echo "" > $own/cgroup.subtree_control
for name in memory pids cpu; do echo -$name > $own/cgroup.subtree_control; done
start $own
result "the next daemon ends what it has left" '! kill -0 $escaped 2>/dev/null'
result "the next daemon has groups" '[ $(ls -d $own/worker-* | wc -l) = 2 ]'

# At its end a daemon leaves the group as it was.
kill $daemon; wait $daemon 2>/dev/null
result "a daemon that ends leaves no group" '[ -z "$(find $own -mindepth 1 -type d)" ]'
echo done
poweroff -f
"""


def write_initramfs(path):
    archive = Archive()
    archive.add("init", INIT.encode())
    archive.add("bin/busybox", Path(shutil.which("busybox")).read_bytes())
    # Without the names for debuggers, which are most of the file.
    slim = path.with_name("penstock")
    subprocess.run(["strip", "-o", slim, BIN / "penstock"], check=True)
    archive.add("bin/penstock", slim.read_bytes())
    archive.add("limits.toml", LIMIT.encode(), mode=0o100644)
    for library in libraries_of(BIN / "penstock"):
        # The loader of programs has its path in each of them.
        place = library.lstrip("/") if "ld-linux" in library else f"lib/{Path(library).name}"
        archive.add(place, Path(library).read_bytes())
    for folder in ("proc", "sys", "dev"):
        archive.add(folder, mode=0o040755)
    archive.write(path)


def missing():
    """Returns what this host lacks for the guest, or None."""
    for program in ("qemu-system-x86_64", "busybox"):
        if not shutil.which(program):
            return f"no {program}: tools/setup.sh guest"
    if not list(KERNEL.glob("boot/vmlinuz-*")):
        return "no kernel for guests: tools/setup.sh guest"
    return None


def boot(folder):
    """Boots the guest and returns the lines of its console."""
    initramfs = Path(folder, "initramfs")
    write_initramfs(initramfs)
    kernel = next(KERNEL.glob("boot/vmlinuz-*"))
    command = ["qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-nodefaults", "-no-reboot"]
    command += ["-m", str(MEMORY_MIB), "-display", "none", "-serial", "stdio"]
    command += ["-kernel", str(kernel), "-initrd", str(initramfs)]
    # The kernel must not check its timer: on a busy host the check is too early, and it panics.
    command += ["-append", "console=ttyS0 quiet panic=-1 no_timer_check"]
    try:
        said = subprocess.run(command, capture_output=True, timeout=CASE_S, check=False).stdout
    except subprocess.TimeoutExpired as late:
        # What the guest has told so far says where it stands.
        said = late.stdout or b""
    return said.decode(errors="replace").replace("\r", "").splitlines()


def main():
    if not (BIN / "penstock").exists():
        sys.exit(f"no penstock in {BIN}: run `make build` first")
    names = re.findall(r'^result "([a-z ]+)"', INIT, flags=re.MULTILINE)
    count, said = Tally("guests-groups"), {}
    count.plan(1 + len(names))
    with count.case("guests/groups: the guest reaches its end", CASE_S + PATIENCE_S):
        if lack := missing():
            is_required = "guest" in os.environ.get("PENSTOCK_TEST_REQUIRE", "").split(",")
            assert not is_required, lack
            raise Skipped(lack)
        with tempfile.TemporaryDirectory(prefix="penstock-groups.") as folder:
            lines = boot(folder)
        found = (re.fullmatch(r"([a-z ]+): (ok|FAIL.*)", line.strip()) for line in lines)
        said = dict(match.groups() for match in found if match)
        assert "done" in lines, f"the last lines of its console: {lines[-12:]}"
    for name in names:
        with count.case(f"guests/groups: {name}"):
            if lack:
                raise Skipped(lack)
            assert said.get(name) == "ok", said.get(name, "the guest does not tell it")
    return count.end()


if __name__ == "__main__":
    sys.exit(main())
