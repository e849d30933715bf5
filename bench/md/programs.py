"""The programs of the study: how each is started, how long its steps took, and which of its results
must be equal to those of a native run."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import guests as md_guests

TOP = Path(__file__).resolve().parent.parent.parent
LAMMPS = TOP / ".cache/lammps"
OPENMM_CUDA = TOP / ".venv-openmm/bin/python"
RUN_S = 1800
# LAMMPS builds its neighbour lists anew after this number of steps.
REBUILD_STEPS = 20
LOOP = re.compile(r"^Loop time of ([\d.]+) on (\d+) procs for (\d+) steps with (\d+) atoms", re.M)
# Forces of OpenMM may differ by the order of additions: root mean square, relative.
FORCES_RMS_MOST = 1e-5


@dataclass
class Outcome:
    """One run of a program."""

    seconds: float
    # What must be equal to the native run: a text, or the path of a file with forces.
    physics: str


@dataclass
class Case:
    """A program with its size."""

    name: str
    program: str
    atoms: int
    steps: int
    ranks_per_device: int = 1
    options: dict = field(default_factory=dict)
    # Seconds of one run with the local driver, on two cores of 2026, for the estimate at the start.
    about_s: float = 10

    @property
    def is_cuda(self):
        return self.options.get("platform") == "CUDA"


class RunFailed(Exception):
    """A program that does not run. Its text says why."""


def cases(quick):
    """Returns all cases, the small ones first."""
    found = [Case("lj-4k", "lj", 4000, 20 if quick else 100, options={"cells": 10})]
    for scale, steps in ((1, 400), (2, 100), (4, 50)):
        steps = steps // 10 if quick else steps
        name, atoms = f"lj-{32 * scale}k", 32000 * scale
        found.append(Case(name, "lj", atoms, steps, 1, {"x": scale}, 8))
    found.append(Case("lj-32k-2ranks", "lj", 32000, 10 if quick else 100, 2, {"x": 1}, 8))
    for scale, steps in ((1, 20), (2, 10)):
        steps = steps // 5 if quick else steps
        options, name = {"x": scale}, f"rhodopsin-{32 * scale}k"
        found.append(Case(name, "rhodo", 32000 * scale, steps, 1, options, 10 * scale))
    # Each size of OpenMM's CUDA platform has kernels of its own, which the first run builds, and
    # its kernels are slow where no hardware keeps the threads of a warp in step.
    sizes = [("OpenCL", 32000, 200, 12), ("OpenCL", 256000, 200, 60)]
    sizes += [("CUDA", 1000, 10, 120), ("CUDA", 32000, 1, 1000)]
    for platform, atoms, steps, about_s in sizes:
        name = f"openmm-{platform.lower()}-lj-{atoms // 1000}k"
        steps = max(steps // 10, 1) if quick else steps
        found.append(Case(name, "openmm", atoms, steps, 1, {"platform": platform}, about_s))
    return found


def lammps_input(case, folder):
    """Writes the benchmark's input with the number of steps and the scale of the case."""
    bench = "in.lj" if case.program == "lj" else "in.rhodo"
    text = (LAMMPS / "bench" / bench).read_text()
    text = re.sub(r"^run\s.*$", f"run {case.steps}", text, flags=re.M)
    scale = case.options.get("x", 1)
    if case.program == "rhodo":
        shutil.copy(LAMMPS / "bench/data.rhodo", folder)
        text = re.sub(r"^thermo\s.*$", "thermo 5", text, flags=re.M)
        if scale > 1:
            text = text.replace("special_bonds", f"replicate {scale} 1 1\nspecial_bonds", 1)
    else:
        text = re.sub(r"^run", "thermo 50\nrun", text, flags=re.M)
        cells = case.options.get("cells", 20)
        text = re.sub(r"20\*\$([xyz])", rf"{cells}*$\1", text)
    (folder / "in.study").write_text(text)
    return ["-var", "x", str(scale)] if case.program == "lj" else []


def run_lammps(case, way, folder):
    if not (LAMMPS / "lmp").exists():
        raise RunFailed("LAMMPS is not built: tools/lammps.sh")
    variables = lammps_input(case, folder)
    environments = [env for env in way.ranks for _ in range(case.ranks_per_device)]
    several = len(environments) > 1
    if several and not way.builds_lists and case.steps >= REBUILD_STEPS:
        raise RunFailed(
            f"LAMMPS with several ranks stops on this driver at step {REBUILD_STEPS} "
            "(CL_MISALIGNED_SUB_BUFFER_OFFSET); use `--driver .venv-cuda/vendors/intel.icd`, or "
            f"fewer than {REBUILD_STEPS} steps (`--steps`)"
        )
    # On the host, several ranks make sub-buffers that are not aligned.
    neigh = "yes" if several and way.builds_lists else "no"
    command = [str(LAMMPS / "lmp"), "-sf", "gpu", "-pk", "gpu", "1", "neigh", neigh]
    command += ["-in", "in.study", "-log", "none", *variables]
    if way.guest:
        command = in_guest(case, way, command, folder)
    elif several:
        command = mpirun(environments, command, folder)
    log = run([*way.before, *command], environments[0], folder)
    loop = LOOP.search(log)
    if not loop:
        raise RunFailed("LAMMPS reports no loop time")
    if int(loop[3]) != case.steps or int(loop[4]) != case.atoms:
        raise RunFailed(f"LAMMPS ran another case: {loop[0]}")
    return Outcome(float(loop[1]), thermo(log))


def in_guest(case, way, command, folder):
    """Returns the command that runs LAMMPS in a guest."""
    if case.ranks_per_device > 1:
        raise RunFailed("a guest runs one rank: it has no mpirun")
    work_max = md_guests.EMULATED_WORK_MAX
    if way.emulated and (case.program != "lj" or case.atoms * case.steps > work_max):
        raise RunFailed("too long for an emulated guest, which only runs short cases (lj-4k)")
    return [*way.guest, "--file", str(folder), "auto", "--", *command]


def thermo(log):
    """Returns the lines with energies, without the times that stand between them."""
    multi = re.findall(r"(\w+) += +([-\d.]+)", log)
    if "TotEng" in dict(multi):
        return "\n".join(f"{name} {value}" for name, value in multi if name != "CPU")
    lines, on = [], False
    for line in log.splitlines():
        if line.startswith("Loop time"):
            on = False
        if on:
            lines.append(line.strip())
        if line.split()[:1] == ["Step"]:
            on = True
    if len(lines) < 2:
        raise RunFailed("LAMMPS printed no thermodynamic lines")
    return "\n".join(lines)


def mpirun(environments, command, folder):
    """Returns the command that starts one rank in each environment."""
    launcher = shutil.which("mpirun.openmpi")
    if not launcher:
        raise RunFailed("mpirun.openmpi is missing: install the Debian package openmpi-bin")
    words = [launcher, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
    words += ["--mca", "mpi_yield_when_idle", "1"]
    for number, env in enumerate(environments):
        names = ["PENSTOCK_NODES", "OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH", "PENSTOCK_KEY"]
        names += ["POCL_DEVICES", "POCL_MAX_PTHREAD_COUNT", "DPCPP_CPU_NUM_CUS"]
        given = [f"{name}={env[name]}" for name in names if name in env]
        words += [":"] * (number > 0) + ["-n", "1", "env", *given, *command]
    return words


def run_openmm(case, way, folder):
    if len(way.ranks) > 1:
        raise RunFailed("OpenMM uses one process for all devices")
    if way.guest:
        raise RunFailed("a guest of the study has no Python with OpenMM")
    forces = folder / "forces.npy"
    program = Path(__file__).with_name("openmm_lj.py")
    python = OPENMM_CUDA if case.is_cuda else sys.executable
    command = [str(python), str(program), case.options["platform"], str(case.atoms)]
    command += [str(case.steps), str(forces)]
    if case.is_cuda:
        if not way.native:
            raise RunFailed("the native driver of this machine is no CUDA driver")
        if not OPENMM_CUDA.exists():
            raise RunFailed("OpenMM's CUDA platform is not installed: tools/setup.sh openmm")
        binary = Path(way.ranks[0]["OCL_ICD_VENDORS"], "penstock.icd").read_text().strip()
        command = [str(Path(binary).with_name("penstock")), "run", "--", *command]
    said = run([*way.before, *command], way.ranks[0], folder)
    return Outcome(json.loads(said.splitlines()[-1])["seconds"], str(forces))


def reference(case, folder):
    """Returns the physics that all ways of a case must have, if no native run can tell: forces of
    OpenMM's Reference platform."""
    if not case.is_cuda:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    forces, program = folder / "reference.npy", Path(__file__).with_name("openmm_lj.py")
    run(
        [sys.executable, str(program), "Reference", str(case.atoms), "0", str(forces)], None, folder
    )
    return str(forces)


def run(command, env, folder):
    try:
        done = subprocess.run(
            command, env=env, cwd=folder, capture_output=True, text=True, timeout=RUN_S
        )
    except subprocess.TimeoutExpired as error:
        raise RunFailed(f"still running after {RUN_S} s") from error
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines()
        reason = next((line for line in said if "error" in line.lower()), said[-1] if said else "")
        raise RunFailed(f"ends with {done.returncode}: {reason.replace(str(TOP), '')[:200]}")
    return done.stdout


def is_equal(case, native, other):
    """Returns whether a run computed what the native run did."""
    if case.program != "openmm":
        return native == other
    import numpy

    one, two = numpy.load(native), numpy.load(other)
    difference = numpy.sqrt(((one - two) ** 2).mean()) / numpy.sqrt((one**2).mean())
    return bool(difference <= FORCES_RMS_MOST)


def perform(case, way, folder):
    """Runs a case in an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return (run_openmm if case.program == "openmm" else run_lammps)(case, way, folder)
