"""Daemons of this machine, and the environments of programs that use them or the driver itself."""

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

from kit.process import end_group, read

# Time in which a daemon must listen, and in which it must end.
START_S, END_S = 20, 5
WAYS = ("unix", "tcp", "encrypted")
# Variables of the user that would change what is measured.
FOREIGN = ("PENSTOCK_", "OCL_ICD_", "OPENCL_", "POCL_", "LD_PRELOAD", "CUDA_VISIBLE_DEVICES")


def plain_environment(session):
    """Returns the environment of all programs: the user's, without what would change the run."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(FOREIGN)}
    env.update(TMPDIR=str(session.work), PYTHONUNBUFFERED="1", PYTHONDONTWRITEBYTECODE="1")
    return env


def joined(*entries):
    return ":".join(str(entry) for entry in entries if entry)


def direct(session, **more):
    """Returns the environment of a program that uses the driver without Penstock."""
    env = plain_environment(session)
    env["LD_LIBRARY_PATH"] = joined(
        # Toolkits bring an ICD loader of their own, which does not know OCL_ICD_VENDORS.
        *session.driver.folders,
        session.root / "lib",
        session.driver.runtime,
        env.get("LD_LIBRARY_PATH"),
    )
    env["OCL_ICD_VENDORS"] = env["OPENCL_VENDOR_PATH"] = str(session.vendors("nvidia"))
    if session.driver.nodes:
        env["PENSTOCK_NODES"] = session.driver.nodes
    env.update(more)
    return env


class Pool:
    """One daemon of its own in a folder of its own. Use it in a `with` statement."""

    count = 0
    lock = threading.Lock()

    def __init__(self, session, way="unix", drivers=("cuda",), confine="full", log="warn", **more):
        with Pool.lock:
            Pool.count += 1
            self.folder = session.work / f"pool-{Pool.count}"
        self.session, self.way = session, way
        self.folder.mkdir()
        self.env = plain_environment(session)
        self.env["XDG_CONFIG_HOME"] = str(self.folder)
        if way != "unix":
            self.env["PENSTOCK_KEY"] = str(self.folder / "key")
        self.env["PENSTOCK_ENCRYPTION"] = "always" if way == "encrypted" else "never"
        self.serve = dict(
            self.env, PENSTOCK_CONFINE=confine, PENSTOCK_LOG=log, HOME=str(self.folder)
        )
        self.drivers(drivers)
        self.serve.update(more)
        self.log, self.process, self.address = self.folder / "daemon.log", None, None

    def drivers(self, wanted):
        """Makes the daemon use these drivers: `cuda`, `nvidia` (its OpenCL), `pocl`."""
        driver, root = self.session.driver, self.session.root
        named = driver.cuda if "cuda" in wanted and driver.cuda else self.folder / "no-driver"
        vendors = str(self.session.vendors(*(it for it in wanted if it != "cuda")))
        self.serve.update(
            PENSTOCK_LIBCUDA=str(named),
            PENSTOCK_LIBOPENCL=str(root / "lib/libOpenCL.so.1"),
            OCL_ICD_VENDORS=vendors,
            OPENCL_VENDOR_PATH=vendors,
            LD_LIBRARY_PATH=joined(
                *([] if driver.nodes else driver.folders),
                root / "lib/pocl" if "pocl" in wanted else None,
                self.serve.get("LD_LIBRARY_PATH"),
            ),
            POCL_DEVICES="pthread",
        )
        if driver.nvml:
            self.serve["PENSTOCK_ENERGY_NVML"] = str(driver.nvml)
        if driver.nodes:
            self.serve["PENSTOCK_LIBCUDA_NODES"] = driver.nodes
        if driver.cublas:
            self.serve["PENSTOCK_LIBCUBLAS"] = str(driver.cublas)
        if driver.cufft:
            self.serve["PENSTOCK_LIBCUFFT"] = str(driver.cufft)

    def __enter__(self):
        penstock = self.session.root / "bin/penstock"
        daemon = self.session.root / "bin/penstockd"
        key = []
        if self.way != "unix":
            key = ["--key", self.env["PENSTOCK_KEY"]]
            subprocess.run(
                [penstock, "key", "--create"],
                env=self.env,
                capture_output=True,
                timeout=START_S,
                check=False,
            )
        listen = f"unix:{self.folder}/node.sock" if self.way == "unix" else "tcp:127.0.0.1:0"
        out = self.folder / "daemon.out"
        with open(out, "wb") as said, open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [daemon, "--listen", listen, *key],
                env=self.serve,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=log,
                start_new_session=True,
            )
        end = time.monotonic() + START_S
        while time.monotonic() < end and self.process.poll() is None and not self.address:
            for line in read(out).splitlines():
                if line.startswith("listening on "):
                    self.address = line.removeprefix("listening on ").strip()
            time.sleep(0.02)
        self.session.pools.append(self)
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(END_S)
            except subprocess.TimeoutExpired:
                pass
        if self.process:
            end_group(self.process)
        if self in self.session.pools:
            self.session.pools.remove(self)
            self.session.keep_log(f"daemon of {self.folder.name}, {self.way}", self.said())

    def said(self, lines=None):
        """Returns the log of the daemon."""
        text = read(self.log) if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:]) if lines else text

    def client(self, **more):
        """Returns the environment of a program that uses this pool."""
        root = self.session.root
        vendors = str(self.session.vendors("penstock"))
        env = dict(
            self.env,
            PENSTOCK_NODES=self.address or "none",
            OCL_ICD_VENDORS=vendors,
            OPENCL_VENDOR_PATH=vendors,
            LD_LIBRARY_PATH=joined(root / "lib/cuda", root / "lib"),
            # Names each call of CUDA that fails.
            PENSTOCK_LOG="warn,cuda=debug,cudart=debug",
        )
        env.update(more)
        return env

    def workers(self):
        """Returns the process ids of the daemon's descendants."""
        return descendants(self.process.pid)


def descendants(pid):
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in path.read_text().split()]
        except OSError:
            continue
        for child in children:
            found += [child, *descendants(child)]
    return found
