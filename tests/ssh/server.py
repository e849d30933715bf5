"""An SSH server of a test, with keys of its own, and programs that use it.

The server is an ordinary process on a loopback port. Nothing of the host's own SSH is read or
changed, except that a server of root needs the empty directory /run/sshd.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path += [str(ROOT / "tests"), str(ROOT / "tests/faults"), str(ROOT / "tests/hostile")]

import relay
from node import BIN, LOAD, Client, Fault
from patience import PATIENCE_S, wait_for
from processes import is_alive

SSHD = "/usr/sbin/sshd"
USER = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()


def keygen(path, passphrase=""):
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", path]
    subprocess.run(command, check=True)
    return Path(f"{path}.pub").read_text()


def free_port():
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return it.getsockname()[1]


class Server:
    """A server whose logins find Penstock, and daemons of their own below its folder."""

    def __init__(self, folder, name, delay_s=None, is_apart=False):
        self.is_apart = is_apart
        self.folder, self.name, self.port = folder / name, name, free_port()
        (self.folder / "home").mkdir(parents=True)
        (self.folder / "run").mkdir(mode=0o700)
        self.key = " ".join(keygen(self.folder / "host").split()[:2])
        keygen(self.folder / "user")
        (self.folder / "authorized").write_text((self.folder / "user.pub").read_text())
        variables = {
            "HOME": self.folder / "home",
            "XDG_RUNTIME_DIR": self.folder / "run",
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"),
            "PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin",
            "POCL_DEVICES": "pthread",
        }
        setting = " ".join(f"{name}={value}" for name, value in variables.items())
        (self.folder / "config").write_text(
            f"ListenAddress 127.0.0.1:{self.port}\nHostKey {self.folder}/host\n"
            f"AuthorizedKeysFile {self.folder}/authorized\nStrictModes no\nUsePAM no\n"
            "PidFile none\nPasswordAuthentication yes\nPermitRootLogin yes\nLogLevel VERBOSE\n"
            f"MaxStartups 100\nMaxSessions 50\nSetEnv {setting}\n"
        )
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        self.log_path = self.folder / "sshd.log"
        with open(self.log_path, "w") as log:
            command = [SSHD, "-D", "-e", "-f", self.folder / "config"]
            self.process = subprocess.Popen(
                [*self.around(), *command], stdin=subprocess.DEVNULL, stderr=log
            )
        wait_for(lambda: self.answers(), lambda: f"sshd did not start: {self.log()}")
        if delay_s is not None:
            self.port = relay.start(("127.0.0.1", self.port), delay_s)

    def around(self):
        """Returns what starts the server so that its host seems to have started at another time
        than the other servers, as other hosts have. Only root can do that."""
        if not self.is_apart:
            return []
        boot = self.folder / "boot"
        boot.write_text(f"{uuid.uuid4()}\n")
        script = 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"'
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, boot]

    def answers(self):
        if self.process.poll() is not None:
            raise Fault(f"sshd ended: {self.log()}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def log(self):
        return self.log_path.read_text()

    def logins(self):
        return self.log().count("Accepted publickey")

    def known(self, key=None):
        return f"[127.0.0.1]:{self.port} {key or self.key}\n"

    def entry(self):
        return (
            f"Host {self.name}\n HostName 127.0.0.1\n Port {self.port}\n"
            f" IdentityFile {self.folder}/user\n"
        )

    def close(self):
        self.process.kill()
        self.process.wait()


class Place:
    """Servers, and the configuration of SSH with which programs find them."""

    def __init__(self, folder, servers=1, direct=False, delay_s=None, are_apart=False):
        self.folder, self.delay_s = Path(folder), delay_s
        self.servers = [
            Server(self.folder, f"node{number}", delay_s, are_apart) for number in range(servers)
        ]
        (self.folder / "run").mkdir(mode=0o700)
        (self.folder / "vendors").mkdir()
        (self.folder / "vendors/penstock.icd").write_text(f"{BIN}/libpenstock_opencl.so\n")
        self.configure()
        self.nodes = ",".join(f"ssh:{server.name}" for server in self.servers)
        self.env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PENSTOCK_", "SLURM_", "SSH_", "DISPLAY"))
        } | {
            "HOME": str(self.folder),
            "XDG_RUNTIME_DIR": str(self.folder / "run"),
            "PENSTOCK_SSH": f"ssh -F '{self.folder}/ssh_config'",
            "PENSTOCK_LIB": str(BIN / "libpenstock_opencl.so"),
            # The cases of direct connections say otherwise.
            "PENSTOCK_SSH_DIRECT": "auto" if direct else "never",
        }
        vendors = str(self.folder / "vendors")
        self.icd = {"OCL_ICD_VENDORS": vendors, "OPENCL_VENDOR_PATH": vendors}

    def configure(self, keys=None, common=""):
        """Writes the client's configuration. `keys` replace the known keys of the servers."""
        known = [server.known(key) for server, key in zip(self.servers, keys or [None] * 9)]
        (self.folder / "known").write_text("".join(known))
        (self.folder / "ssh_config").write_text(
            common
            + "".join(server.entry() for server in self.servers)
            + f"Host *\n User {USER}\n IdentitiesOnly yes\n StrictHostKeyChecking ask\n"
            f" UserKnownHostsFile {self.folder}/known\n GlobalKnownHostsFile none\n"
        )

    def penstock(self, *words, patience_s=PATIENCE_S, **variables):
        """Runs the command. Without a terminal, as in a job."""
        return subprocess.run(
            [BIN / "penstock", *map(str, words)],
            env=self.env | {"PENSTOCK_NODES": self.nodes} | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=patience_s,
            start_new_session=True,
        )

    def client(self, *words, **variables):
        """Starts a program that uses the nodes, without `penstock run`."""
        env = self.env | self.icd | {"PENSTOCK_NODES": self.nodes} | variables
        return Client([LOAD, *words], env)

    def status(self, **variables):
        # Without a list, runs of other tests are nodes, too.
        said = self.penstock("status", "--json", "--nodes", self.nodes, **variables)
        return [node["status"] for node in json.loads(said.stdout)["nodes"] if node["answers"]]

    def ways(self, **variables):
        """Returns how the bytes of each session travel, as the daemons tell."""
        return [
            session["transport"]
            for status in self.status(**variables)
            for session in status["sessions"]
        ]

    def meddling(self, *words):
        """Returns the setting with which a test comes between a bridge and its client."""
        words = " ".join(f"'{word}'" for word in words)
        return {"PENSTOCK_SSH_BRIDGE": f"python3 '{HERE}/meddle.py' {words}"}

    def processes(self):
        """Returns the processes that were started below the folder, except for the servers that
        listen: the command line of each."""
        listening = {server.process.pid for server in self.servers}
        found = {}
        for path in Path("/proc").iterdir():
            if not path.name.isdigit() or int(path.name) in listening:
                continue
            with contextlib.suppress(OSError):
                words = (
                    (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
                around = (path / "environ").read_bytes().decode(errors="replace")
                if str(self.folder) in words + around and is_alive(int(path.name)):
                    found[int(path.name)] = words
        return found

    def others(self):
        """Returns what is left beside the daemons and their workers."""
        return {
            pid: words
            for pid, words in self.processes().items()
            if "serve --detached" not in words and " worker" not in words
        }

    def sessions(self):
        """Returns the processes of servers that serve a login."""
        return [pid for pid, words in self.of_servers() if "@notty" in words]

    def of_servers(self):
        for path in Path("/proc").iterdir():
            with contextlib.suppress(OSError, IndexError):
                status = (path / "stat").read_text().rsplit(")", 1)[1].split()
                words = (path / "cmdline").read_text()
                if path.name.isdigit() and self.is_of_server(int(status[1])):
                    yield int(path.name), words

    def is_of_server(self, pid, depth=3):
        if any(server.process.pid == pid for server in self.servers):
            return True
        with contextlib.suppress(OSError, ValueError):
            parent = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1]
            return depth > 0 and self.is_of_server(int(parent), depth - 1)
        return False

    def must_be_left_alone(self):
        """Checks that no process of a client, of SSH or of a bridge is left."""
        wait_for(
            lambda: not self.others() and not self.sessions(),
            lambda: f"processes left: {self.others()} {self.sessions()}",
        )

    def close(self):
        for server in self.servers:
            server.close()
        end = time.monotonic() + PATIENCE_S
        while (left := self.processes()) and time.monotonic() < end:
            for pid in left:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
