#!/usr/bin/env python3
"""Makes the packages of what is built, installs them in an empty system, and uses them.

    tests/packaging/packages.py

Needs root, mmdebstrap, lintian, and access to Debian's packages. The system is a folder with the
suite of this host; its processes see only each other. No systemd runs there, so the test starts the
service's command itself, as its user. PENSTOCK_BIN names the folder with the built programs.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent))
from patience import PATIENCE_S, wait_for
from tally import Skipped, Tally

TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
BIN = Path(os.environ.get("PENSTOCK_BIN", TARGET / "release"))
# Has auditwheel and numpy.
PYTHON = ROOT / ".venv/bin/python"
# What a program with Numba's CUDA kernels needs from PyPI.
NUMBA = "numba-cuda|numpy|nvidia-nvvm|nvidia-cuda-(?:nvcc|nvrtc|runtime)|cuda-core|cuda-bindings"
# Installing PoCL with its compiler in an empty system.
INSTALL_S = 10 * PATIENCE_S


def output(*command, **options):
    """Runs a command, and returns what it prints. If it fails, the error has what it printed."""
    done = subprocess.run(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,
    )
    assert done.returncode == 0, f"{shlex.join(map(str, command))}: {done.stdout[-3000:]}"
    return done.stdout


def packed(folder, **settings):
    """Makes Debian packages, quickly compressed. Returns their paths by the name of the package."""
    output(
        ROOT / "tools/package/deb.sh",
        folder,
        env=os.environ
        | {"PENSTOCK_BIN": str(BIN), "PENSTOCK_DEB_COMPRESSION": "-Zgzip -z1"}
        | settings,
    )
    return {path.name.split("_")[0]: path for path in sorted(Path(folder).glob("*.deb"))}


class System:
    """An empty Debian system in a folder."""

    def __init__(self, folder):
        self.root = folder.resolve() / "root"
        sources = [*Path("/etc/apt/sources.list.d").glob("debian*.sources")]
        sources += [path for path in [Path("/etc/apt/sources.list")] if path.exists()]
        suite = output("sh", "-c", ". /etc/os-release; echo $VERSION_CODENAME").strip()
        output("mmdebstrap", "--quiet", "--variant=apt", suite, self.root, *sources)
        # A host may reach its packages through a proxy.
        for path in Path("/etc/apt/apt.conf.d").glob("*"):
            if re.search(r"(?i)acquire.*proxy", path.read_text()):
                shutil.copy(path, self.root / "etc/apt/apt.conf.d")
        shutil.copy("/etc/resolv.conf", self.root / "etc/resolv.conf")
        # PoCL asks for the cores of the host in /sys.
        inside = 'mount --rbind /sys "$0/sys" && exec chroot "$0" sleep infinity'
        words = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        words += [f"--mount-proc={self.root}/proc", "sh", "-c", inside, self.root]
        self.first = subprocess.Popen(words)

    def start(self):
        wait_for(lambda: self.pid() is not None, "the system did not start")
        self.run("apt-get", "update", "-q")

    def pid(self):
        """Returns the first process inside."""
        children = Path(f"/proc/{self.first.pid}/task/{self.first.pid}/children")
        found = [int(pid) for pid in children.read_text().split()]
        return next(
            (pid for pid in found if os.readlink(f"/proc/{pid}/root") == str(self.root)), None
        )

    def words(self, *command, user=None, **settings):
        inside = ["nsenter", f"--target={self.pid()}", "--mount", "--pid", "chroot", self.root]
        if user:
            inside += ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        settings = {
            "PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
        } | settings
        pairs = [f"{name}={value}" for name, value in settings.items()]
        return [str(word) for word in [*inside, "env", "-i", *pairs, *command]]

    def run(self, *command, **options):
        return output(*self.words(*command, **options))

    def install(self, *packages):
        """Installs packages: the paths of files, or names."""
        for package in packages:
            if isinstance(package, Path):
                shutil.copy(package, self.root / "tmp")
        words = [f"/tmp/{it.name}" if isinstance(it, Path) else it for it in packages]
        options = ["-y", "--no-install-recommends", "-q"]
        return self.run("apt-get", "install", *options, *words, DEBIAN_FRONTEND="noninteractive")

    def end(self):
        self.first.kill()
        self.first.wait()


def files_of(root):
    """Returns the files and links of a system that have Penstock's names."""
    names = re.compile(r"penstock|libwater|/wtr|ggas\.h")
    folders = ["etc", "usr", "lib", "var/lib/penstock", "var/cache/penstock"]
    found = (path for folder in folders for path in (root / folder).rglob("*"))
    inside = {f"/{it.relative_to(root)}" for it in found if it.is_symlink() or not it.is_dir()}
    return {it for it in inside if names.search(it)}


class Packages:
    """The cases share one system, and come in this order."""

    def __init__(self, folder):
        self.folder, self.system = folder, None

    def lintian_finds_no_error(self):
        self.first = packed(self.folder / "first")
        assert sorted(self.first) == ["penstock", "penstock-dev", "penstockd"], self.first
        output("lintian", "--no-cfg", "--allow-root", "--fail-on", "error", *self.first.values())

    def an_upgrade_restarts_nothing_and_a_removal_stops_the_service(self):
        there = self.folder / "scripts"
        output("dpkg", "--control", self.first["penstockd"], there)
        calls = {
            name: re.findall(r"deb-systemd-invoke (\S+)", (there / name).read_text())
            for name in ("preinst", "postinst", "prerm", "postrm")
            if (there / name).exists()
        }
        assert calls == {"postinst": ["start"], "prerm": ["stop"], "postrm": []}, calls
        stops = (there / "prerm").read_text().split("deb-systemd-invoke stop")[0].splitlines()
        assert '"$1" = remove' in stops[-2], stops

    def the_same_build_makes_the_same_packages(self):
        again = packed(self.folder / "again")
        for name, path in self.first.items():
            assert path.read_bytes() == again[name].read_bytes(), f"{name} differs"

    def an_empty_system_runs_a_program(self):
        self.system = System(self.folder)
        self.system.start()
        self.before = files_of(self.system.root)
        self.system.install(self.first["penstock"], "pocl-opencl-icd", "clinfo")
        told = self.system.run("penstock", "run", "--", "clinfo", "-l")
        assert "Platform #0: Penstock" in told and "Device #0: pthread" in told, told
        plain = self.system.run("clinfo", "-l")
        assert "Penstock" not in plain, f"programs see Penstock without `penstock run`: {plain}"

    def the_service_serves(self):
        self.system.install(self.first["penstockd"])
        unit = (self.system.root / "lib/systemd/system/penstockd.service").read_text()
        (self.system.root / "run/penstock").mkdir()
        (self.system.root / "var/cache/penstock").mkdir()
        (self.system.root / "var/lib/penstock").mkdir(exist_ok=True)
        self.system.run(
            "chown", "penstock:", "/run/penstock", "/var/cache/penstock", "/var/lib/penstock"
        )
        command = re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)[1].replace(
            "$PENSTOCKD_OPTIONS", ""
        )
        settings = {"XDG_CONFIG_HOME": "/var/lib", "CACHE_DIRECTORY": "/var/cache/penstock"}
        words = self.system.words(*command.split(), user="penstock", **settings)
        self.log = open(self.folder / "daemon.log", "w")
        self.daemon = subprocess.Popen(words, stdout=self.log, stderr=self.log)
        socket = self.system.root / "run/penstock/sock"
        wait_for(socket.exists, lambda: (self.folder / "daemon.log").read_text())
        told = self.client("clinfo", "-l")
        assert "Device #0: pthread" in told, told

    def client(self, *command):
        return self.system.run(
            "penstock", "run", "--", *command, PENSTOCK_NODES="unix:/run/penstock/sock"
        )

    def an_upgrade_leaves_sessions_alone(self):
        load = self.folder / "load"
        source = ROOT / "tests/faults/load.c"
        output(
            "gcc",
            "-std=c11",
            "-D_GNU_SOURCE",
            "-O1",
            f"-I{ROOT}/include",
            "-o",
            load,
            source,
            "-lOpenCL",
        )
        shutil.copy(load, self.system.root / "usr/local/bin/load")
        new = packed(self.folder / "new", PENSTOCK_REVISION="2")
        # It works until it is told to end.
        program = ["load", "buffers", "86400"]
        words = self.system.words(
            "penstock", "run", "--", *program, PENSTOCK_NODES="unix:/run/penstock/sock"
        )
        program = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert program.stdout.readline() == "busy\n"
        self.system.install(new["penstock"], new["penstockd"])
        assert program.poll() is None, "the program has ended"
        # A new session of the old daemon, while the program of both is replaced.
        told = self.client("clinfo", "-l")
        assert "Device #0: pthread" in told, told
        self.system.run("sh", "-c", "kill -TERM $(pidof load)")
        assert program.wait(PATIENCE_S) == 0, program.stdout.read()

    def removal_leaves_nothing(self):
        self.daemon.send_signal(signal.SIGTERM)
        self.daemon.wait(PATIENCE_S)
        self.system.run("sh", "-c", "kill -TERM $(pidof penstockd) || true")
        self.system.run("apt-get", "purge", "-y", "-q", "penstock", "penstockd")
        left = files_of(self.system.root) - self.before
        keys = {it for it in left if it.startswith("/var/lib/penstock/")}
        assert not left - keys, sorted(left - keys)

    def headers_compile(self):
        there = self.folder / "dev"
        for name in ("penstock", "penstock-dev"):
            output("dpkg", "-x", self.first[name], there)
        source = self.folder / "program.c"
        source.write_text(
            "#include <wtr.h>\n#include <wtr_ext.h>\n#include <penstock_energy.h>\n"
            "int main(void) { return wtr_get_num_devices == 0; }\n"
        )
        settings = os.environ | {
            "PKG_CONFIG_SYSROOT_DIR": str(there),
            "PKG_CONFIG_LIBDIR": str(there / "usr/lib/pkgconfig"),
        }
        flags = output("pkg-config", "--cflags", "--libs", "libwater", env=settings).split()
        output("gcc", "-o", self.folder / "program", source, *flags)

    def the_same_build_makes_the_same_wheel(self):
        self.wheel = self.made("wheel")
        again = self.made("second-wheel")
        assert self.wheel.name == again.name
        assert self.wheel.read_bytes() == again.read_bytes(), "the wheels differ"

    def made(self, name):
        """Makes a wheel in a folder of this name, and returns its path."""
        settings = os.environ | {"PENSTOCK_BIN": str(BIN)}
        output(ROOT / "tools/package/wheel.sh", self.folder / name, env=settings)
        (wheel,) = (self.folder / name).glob("*.whl")
        return wheel

    def a_wheel_runs_programs(self):
        python = self.folder / "venv/bin/python"
        output(PYTHON, "-m", "venv", self.folder / "venv")
        output(python, "-m", "pip", "install", "--no-deps", "--no-index", self.wheel)
        told = output(
            self.folder / "venv/bin/penstock", "run", "--", "clinfo", "-l", cwd=self.folder
        )
        assert "Platform #0: Penstock" in told and "Device #0: pthread" in told, told
        kernel = (
            "from numba import cuda\nimport numpy\n"
            "@cuda.jit\ndef add(x):\n    i = cuda.grid(1)\n    x[i] += i\n"
            "x = cuda.to_device(numpy.ones(256))\nadd[2, 128](x)\n"
            "assert (x.copy_to_host() == 1 + numpy.arange(256)).all()\nprint('right')\n"
        )
        wanted = (ROOT / "tools/cuda-requirements.txt").read_text()
        output(
            python, "-m", "pip", "install", *re.findall(rf"^(?:{NUMBA})==.*", wanted, re.MULTILINE)
        )
        command = [self.folder / "venv/bin/penstock", "run", "--", python, "-c", kernel]
        told = output(*command, cwd=self.folder)
        assert told.endswith("right\n"), told

    def the_wheel_is_what_its_name_says(self):
        told = json.loads(output(PYTHON, "-m", "auditwheel", "show", "--json", self.wheel))
        # The host's own OpenCL loader is the one library that no wheel may bring.
        outside = {name.split(".so")[0] for name in told["external_libs"]}
        assert outside <= {"libOpenCL"}, told
        tag = self.wheel.name.removesuffix(".whl").split("-")[-1]
        assert tag == told["sym_tag"], f"{tag}, and auditwheel says {told}"
        names = zipfile.ZipFile(self.wheel).namelist()
        assert not [name for name in names if "_mpi_" in name or name.endswith(".service")], names

    def the_water_package_finds_its_library(self):
        python = self.folder / "venv/bin/python"
        packages = next((ROOT / ".venv").glob("lib/python3*/site-packages"))
        program = "from penstock_water import _library; print(_library._load()._name)"
        settings = os.environ | {"PYTHONPATH": str(packages)}
        settings.pop("PENSTOCK_WATER_LIBRARY", None)
        told = output(python, "-c", program, cwd=self.folder, env=settings)
        assert told.strip() == str(self.folder / "venv/lib/libwater.so"), told

    def end(self):
        if self.system:
            self.system.end()


CASES = [
    "lintian_finds_no_error",
    "the_same_build_makes_the_same_packages",
    "an_upgrade_restarts_nothing_and_a_removal_stops_the_service",
    "headers_compile",
    "the_same_build_makes_the_same_wheel",
    "a_wheel_runs_programs",
    "the_wheel_is_what_its_name_says",
    "the_water_package_finds_its_library",
    "an_empty_system_runs_a_program",
    "the_service_serves",
    "an_upgrade_leaves_sessions_alone",
    "removal_leaves_nothing",
]


def main():
    tally = Tally("packages")
    tally.plan(len(CASES))
    with tempfile.TemporaryDirectory(prefix="penstock-packages.") as folder:
        packages = Packages(Path(folder))
        try:
            for name in CASES:
                with tally.case(f"packages/{name}", INSTALL_S):
                    if os.geteuid() != 0:
                        raise Skipped("making a system needs root")
                    getattr(packages, name)()
        finally:
            packages.end()
    return tally.end()


if __name__ == "__main__":
    sys.exit(main())
