"""A cluster of Slurm on one host, made of namespaces: a head and nodes with networks of their own.

Nothing of the host's own Slurm is read or changed: the test has its own configuration, key and
folders. All processes are in one PID namespace, so they end with its first process. Each node has a
host name, an address, a /tmp and a /dev/shm of its own, so its daemons are as far apart as on real
hosts.
"""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path += [str(ROOT / "tests"), str(ROOT / "tests/faults")]

from node import BIN, Fault
from patience import PATIENCE_S, wait_for
from processes import is_alive

CTLD, SLURMD = "/usr/sbin/slurmctld", "/usr/sbin/slurmd"
NEEDED = (CTLD, SLURMD, "munged", "sbatch", "srun", "salloc", "scancel", "ip", "nsenter", "unshare")
# Slurm's daemons ask each other for a sign of life after half of this time.
NODE_LOST_S = 10
# Time between SIGTERM and SIGKILL at the end of a job.
KILL_WAIT_S = 5
# Cores of each node. Slurm may give a job one of them.
CORES = 2
NODES = {"n1": "10.99.0.1", "n2": "10.99.0.2", "n3": "10.99.0.3"}
# Control groups of version 1, which need no systemd.
CGROUPS = Path("/sys/fs/cgroup")
# It has two devices, which only Slurm knows.
WITH_DEVICES = "n3"
DEVICES = 2
HEAD, HEAD_ADDRESS = "head", "10.99.0.254"

CONFIGURATION = """
ClusterName=test
SlurmctldHost={head}({head_address})
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.sock
SlurmUser=root
SlurmctldPort=16817
SlurmdPort=16818
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/{tracking}
TaskPlugin={tasks}
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
KillWait={kill_wait}
SlurmdTimeout={node_lost}
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
GresTypes=gpu
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing():
    """Returns what this host lacks for a cluster, or None."""
    lacks = [name for name in NEEDED if not shutil.which(name, path=f"{os.environ['PATH']}:/sbin")]
    if lacks:
        return f"no {lacks[0]}: run tools/setup.sh slurm"
    return None if os.geteuid() == 0 else "namespaces for the nodes need root"


def sweep(places):
    """Removes the folders of clusters that have ended while their runner was killed. A folder that
    no process holds, and in which a cluster was configured, belongs to none any more."""
    for folder in places:
        hold = None
        try:
            if not (folder / "slurm.conf").exists() or folder.stat().st_uid != os.geteuid():
                continue
            hold = os.open(folder, os.O_RDONLY)
            fcntl.flock(hold, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
        # It is in use, or its own runner or another sweep has removed it.
        except (BlockingIOError, FileNotFoundError):
            pass
        finally:
            if hold is not None:
                os.close(hold)


def has_cgroups():
    return all((CGROUPS / name / "tasks").exists() for name in ("freezer", "cpuset"))


class Cluster:
    """With `cgroups`, Slurm finds the processes of a job by control groups, which also confine them
    to the cores of the job. Otherwise it looks for children, and binds them to the cores."""

    def __init__(self, folder, cgroups=False):
        self.folder, self.slurmd, self.cgroups = Path(folder), {}, cgroups
        self.folder.chmod(0o755)
        # What runs in the namespaces holds the folder, too.
        self.hold = os.open(self.folder, os.O_RDONLY)
        fcntl.flock(self.hold, fcntl.LOCK_EX)
        for name in ("state", "home", "run", "out"):
            (self.folder / name).mkdir(mode=0o700)
        self.env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PENSTOCK_", "SLURM_", "SBATCH_", "SALLOC_"))
        } | {
            "SLURM_CONF": str(self.folder / "slurm.conf"),
            "HOME": str(self.folder / "home"),
            "XDG_RUNTIME_DIR": str(self.folder / "run"),
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")),
            "PATH": f"{BIN}:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "POCL_DEVICES": "pthread",
        }
        self.configure()
        # bash waits for the orphans of the namespace.
        script = "hostname head; sleep infinity & while :; do wait; done"
        words = ["--net", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
        command = ["unshare", *words, "bash", "-c", script]
        self.process = subprocess.Popen(command, env=self.env, pass_fds=[self.hold])
        try:
            self.start_all()
        except BaseException:
            self.close()
            raise

    def start_all(self):
        wait_for(lambda: self.first() and self.inside("hostname").stdout == f"{HEAD}\n", "no head")
        self.start_head()
        for name in NODES:
            self.start_node(name)
        wait_for(self.is_idle, lambda: f"nodes are not ready: {self.say('sinfo', '-N')}")

    def configure(self):
        shape = f"CPUs={CORES} Boards=1 SocketsPerBoard=1 CoresPerSocket={CORES} ThreadsPerCore=1"
        gres = {WITH_DEVICES: f"Gres=gpu:{DEVICES}"}
        nodes = "\n".join(
            f"NodeName={name} NodeAddr={address} {shape} RealMemory=2000 {gres.get(name, '')}"
            for name, address in NODES.items()
        )
        (self.folder / "slurm.conf").write_text(
            CONFIGURATION.format(
                folder=self.folder,
                head=HEAD,
                head_address=HEAD_ADDRESS,
                kill_wait=KILL_WAIT_S,
                node_lost=NODE_LOST_S,
                nodes=nodes,
                tracking="cgroup" if self.cgroups else "linuxproc",
                tasks="task/affinity,task/cgroup" if self.cgroups else "task/affinity",
            )
        )
        (self.folder / "cgroup.conf").write_text(
            f"CgroupPlugin=cgroup/v1\nCgroupMountpoint={CGROUPS}\nConstrainCores=yes\n"
        )
        for number in range(DEVICES):
            # Slurm sets CUDA_VISIBLE_DEVICES for device files only. These are like /dev/null.
            subprocess.run(["mknod", self.folder / f"gpu{number}", "c", "1", "3"], check=True)
        devices = f"Flags=nvidia_gpu_env File={self.folder}/gpu[0-{DEVICES - 1}]"
        (self.folder / "gres.conf").write_text(f"NodeName={WITH_DEVICES} Name=gpu {devices}\n")
        hosts = {"localhost": "127.0.0.1", HEAD: HEAD_ADDRESS} | NODES
        (self.folder / "hosts").write_text(
            "".join(f"{address} {name}\n" for name, address in hosts.items())
        )
        (self.folder / "munge.key").write_bytes(os.urandom(1024))
        (self.folder / "munge.key").chmod(0o400)

    def first(self):
        """Returns the first process of the namespace."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return next(iter(path.read_text().split()), None)

    def start_head(self):
        self.do("mount", "--make-rprivate", "/")
        self.do("mount", "--bind", self.folder / "hosts", "/etc/hosts")
        self.do("ip", "link", "set", "lo", "up")
        self.do("ip", "link", "add", "bridge", "type", "bridge")
        self.do("ip", "addr", "add", f"{HEAD_ADDRESS}/24", "dev", "bridge")
        self.do("ip", "link", "set", "bridge", "up")
        self.do("mount", "-t", "tmpfs", "tmpfs", "/dev/shm")
        munge = {"key-file": "munge.key", "socket": "munge.sock", "pid-file": "munge.pid"}
        munge |= {"log-file": "munge.log", "seed-file": "munge.seed"}
        options = [f"--{name}={self.folder / file}" for name, file in munge.items()]
        self.do("munged", "--force", *options)
        self.start(CTLD, "-D")

    def start_node(self, name):
        """Starts a node, also one that was killed."""
        ready, go = self.folder / f"{name}.ready", self.folder / f"{name}.go"
        for path in (ready, go):
            path.unlink(missing_ok=True)
        (self.folder / f"spool-{name}").mkdir(exist_ok=True)
        script = (
            f"hostname {name}; touch {ready}; until [ -e {go} ]; do sleep 0.02; done;"
            f"ip link set lo up; ip link set eth-{name} name eth0;"
            f"ip addr add {NODES[name]}/24 dev eth0; ip link set eth0 up;"
            f"mount -t tmpfs tmpfs /dev/shm; mount -t tmpfs tmpfs /tmp; exec {SLURMD} -D -N {name}"
        )
        node = self.start("unshare", "--net", "--uts", "--mount", "sh", "-c", script)
        wait_for(ready.exists, f"no namespaces for {name}")
        peer = ["peer", "name", f"eth-{name}"]
        self.do("ip", "link", "add", f"v-{name}", "type", "veth", *peer)
        self.do("ip", "link", "set", f"v-{name}", "master", "bridge", "up")
        # nsenter stays in its own namespaces, and its child is in those of the node.
        [inner] = Path(f"/proc/{node.pid}/task/{node.pid}/children").read_text().split()
        nets = ["nsenter", f"--net=/proc/{self.first()}/ns/net"]
        command = [*nets, "ip", "link", "set", f"eth-{name}", "netns", inner]
        subprocess.run(command, check=True, capture_output=True)
        go.touch()
        self.slurmd[name] = int(inner)

    def around(self):
        return ["nsenter", "-t", self.first(), "--net", "--mount", "--uts", "--pid"]

    def start(self, *words, **options):
        """Starts a program on the head."""
        options = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL} | options
        command = [*self.around(), *map(str, words)]
        return subprocess.Popen(command, env=self.env, stdin=subprocess.DEVNULL, **options)

    def inside(self, *words, patience_s=PATIENCE_S, **options):
        """Runs a program on the head to its end."""
        options = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True} | options
        command = [*self.around(), *map(str, words)]
        return subprocess.run(command, env=self.env, timeout=patience_s, check=False, **options)

    def do(self, *words):
        done = self.inside(*words)
        if done.returncode:
            raise Fault(f"{' '.join(map(str, words))}: {done.stderr.strip()}")
        return done.stdout

    def say(self, *words):
        done = self.inside(*words)
        return done.stdout + done.stderr

    def is_idle(self):
        """Whether all nodes are free."""
        states = self.say("sinfo", "-h", "-N", "-o", "%N %T").split("\n")
        return set(filter(None, states)) == {f"{name} idle" for name in NODES}

    def submit(self, script, *options):
        """Submits a job. A script for several components has lines with `#SBATCH`."""
        number = len(list((self.folder / "out").iterdir()))
        output = self.folder / "out" / f"{number}.out"
        output.touch()
        file = self.folder / f"job-{number}.sh"
        file.write_text(f"#!/bin/bash\n{script}\n")
        words = ["sbatch", "--parsable", "--no-requeue", f"--output={output}", "--open-mode=append"]
        return Job(self, int(self.do(*words, f"--chdir={self.folder}", *options, file)), output)

    def processes(self):
        """Returns the living processes of the cluster, each with its command line."""
        with contextlib.suppress(OSError):
            space = os.readlink(f"/proc/{self.first()}/ns/pid")
        found = {}
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.readlink(path / "ns/pid") == space and is_alive(int(path.name)):
                    words = (path / "cmdline").read_bytes().decode(errors="replace")
                    found[int(path.name)] = words.replace("\0", " ").strip()
        return found

    def of_penstock(self, *parts):
        """Returns our processes whose command line has these parts."""
        return {
            pid: words
            for pid, words in self.processes().items()
            if "penstock" in words.split(" ")[0].rsplit("/", 1)[-1]
            and all(part in words for part in parts)
        }

    def daemons(self, count):
        """Waits until so many daemons run, and returns their process numbers. A daemon has another
        command line between its start and its `exec`."""
        found = []

        def are_there():
            found[:] = self.of_penstock(" serve ")
            return len(found) == count

        wait_for(are_there, lambda: f"there are not {count} daemons: {self.of_penstock()}")
        return found

    def on(self, name, pid):
        """Whether a process runs on a node."""
        with contextlib.suppress(OSError):
            return os.readlink(f"/proc/{pid}/ns/net") == os.readlink(
                f"/proc/{self.slurmd[name]}/ns/net"
            )
        return False

    def files(self):
        """Returns what lies in the places for files of runs, on all nodes and in this user's
        directory."""
        found = []
        for name, pid in self.slurmd.items():
            memory = Path(f"/proc/{pid}/root/dev/shm")
            found += [f"{name}:{path.relative_to(memory)}" for path in memory.rglob("*/*")]
            found += [f"{name}:{path.name}" for path in memory.iterdir() if not path.is_dir()]
            found += [f"{name}:{path}" for path in Path(f"/proc/{pid}/root/tmp").glob("penstock*")]
        return found + [str(path) for path in (self.folder / "run").rglob("*/*")]

    def must_be_left_alone(self):
        """Checks that no process and no file of ours is left, and that the nodes are free."""
        wait_for(
            lambda: not self.of_penstock() and not self.files() and self.is_idle(),
            lambda: f"left: {self.of_penstock()} {self.files()} {self.say('sinfo', '-N')}",
        )

    def close(self):
        first = self.first()
        self.process.kill()
        self.process.wait()
        wait_for(lambda: not is_alive(int(first or 0)), "the cluster does not end")
        # Slurm leaves the groups of its nodes.
        for name in NODES if self.cgroups else ():
            for group in CGROUPS.glob(f"*/slurm_{name}"):
                for path, _, _ in os.walk(group, topdown=False):
                    with contextlib.suppress(OSError):
                        os.rmdir(path)
        shutil.rmtree(self.folder)
        os.close(self.hold)


class Job:
    def __init__(self, cluster, number, output):
        self.cluster, self.number, self.output = cluster, number, output

    def said(self):
        return self.output.read_text(errors="replace")

    def state(self):
        shown = self.cluster.say("scontrol", "show", "job", self.number, "--oneliner").split()
        fields = dict(word.split("=", 1) for word in shown if "=" in word)
        return fields.get("JobState", ""), fields.get("ExitCode", "")

    def must_say(self, *parts):
        for part in parts:
            if part not in self.said():
                raise Fault(f"`{part}` is missing in: {self.said()[-900:]}")

    def wait_said(self, part):
        wait_for(
            lambda: part in self.said() or self.has_ended(),
            lambda: f"`{part}` does not come: {self.said()[-900:]}",
        )
        self.must_say(part)

    def has_ended(self):
        return self.state()[0] not in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "")

    def must_end(self, state="COMPLETED", patience_s=PATIENCE_S):
        wait_for(self.has_ended, lambda: f"job: {self.state()} {self.said()[-900:]}", patience_s)
        if self.state()[0] != state:
            raise Fault(f"the job is {self.state()}, and not {state}: {self.said()[-900:]}")
        return self

    def cancel(self, *options):
        self.cluster.do("scancel", *options, self.number)


def seconds_since(began):
    return f"{time.monotonic() - began:.1f} s"
