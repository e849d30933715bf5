"""Guests for the study: what `penstock vm run` needs so that LAMMPS runs in one, and what such a
guest can show on this host."""

import re
import shutil
import subprocess
from pathlib import Path

# Names of the ways, and the transports of `penstock vm run`.
TRANSPORTS = {"vsock": "vsock", "shm": "shm", "net": "tcp"}
# A guest that does nothing starts within 3 s on an idle host, and within 20 s on a busy one.
PROBE_S = 180
# Largest number of atoms times steps in an emulated guest. It computes about ten times slower than
# its host, so this takes some 15 s.
EMULATED_WORK_MAX = 1_500_000


def probe(penstock, transport, env):
    """Boots a guest. Returns whether it is emulated, and why it does not run ("" if it does)."""
    command = [penstock, "vm", "run", "--transport", TRANSPORTS[transport], "auto", "--"]
    command += [str(shutil.which("true"))]
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PROBE_S)
    except subprocess.TimeoutExpired:
        return True, f"a guest that does nothing does not end within {PROBE_S} s"
    said = done.stderr.strip().splitlines()
    if done.returncode != 0:
        return True, said[-1] if said else f"`penstock vm run` ends with {done.returncode}"
    return not any("runs with KVM" in line for line in said), ""


def options(penstock, transport, emulated, cores, plugins):
    """Returns the words of `penstock vm run` up to the files of the program."""
    words = [str(penstock), "vm", "run", "--transport", TRANSPORTS[transport]]
    # A second processor of an emulated guest is a thread that takes a core from the device.
    words += ["--no-kvm"] if emulated else ["--kvm", "--cpus", str(cores)]
    if plugins:
        words += ["--file", str(plugins)]
        # Without `mpirun`, a rank would start the daemon of Open MPI, which the guest lacks.
        words += ["--env", f"OMPI_MCA_mca_base_component_path={plugins}"]
        words += ["--env", "OMPI_MCA_ess_singleton_isolated=1"]
    return words


def libraries_of(program):
    said = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
    return set(re.findall(r"(/\S+) \(0x", said))


def copy_plugins(program, target):
    """Copies the plug-ins of Open MPI that need no libraries besides those of the program. These
    suffice for a single rank. The others are for networks and files, and would triple the guest's
    files. Returns the folder, or None if the program does not use Open MPI."""
    libraries = libraries_of(program)
    mpi = next((Path(it) for it in libraries if Path(it).name.startswith("libmpi.so")), None)
    folder = mpi and next(mpi.resolve().parent.glob("openmpi/lib/openmpi*/mca_pml_ob1.so"), None)
    if not folder:
        return None
    target.mkdir(exist_ok=True)
    for plugin in folder.parent.glob("mca_*.so"):
        if libraries_of(plugin) <= libraries:
            shutil.copy(plugin, target)
    return target
