"""Finds NVIDIA's libraries and tools. The loader need not know where they are."""

import glob
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

# Where drivers and toolkits are, apart from the places that the loader knows.
FOLDERS = (
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/nvidia*",
    "/opt/nvidia*/lib*",
    "/usr/local/cuda*/compat",
)
TOOLKITS = (
    "/usr/local/cuda*/lib64",
    "/usr/local/cuda*/targets/x86_64-linux/lib",
    "/opt/cuda/lib64",
)


@dataclass
class Driver:
    """The libraries of a driver; None for what is not there."""

    cuda: Path | None
    opencl: Path | None = None
    nvml: Path | None = None
    smi: str | None = None
    # Nodes that the driver uses, if it is Penstock's own library.
    nodes: str | None = None
    # Folder with NVIDIA's libcudart.so.13, for programs beside the pool.
    runtime: Path | None = None
    # NVIDIA's cuBLAS, with its other half beside it, and cuFFT.
    cublas: Path | None = None
    cufft: Path | None = None
    folders: list = field(default_factory=list)


def known_to_loader(name):
    """Returns the file that the loader would open, from its cache, or None."""
    for tool in ("/sbin/ldconfig", "/usr/sbin/ldconfig", "ldconfig"):
        try:
            done = subprocess.run(
                [tool, "-p"], capture_output=True, text=True, timeout=20, check=False
            )
        except (OSError, subprocess.SubprocessError):
            continue
        for line in done.stdout.splitlines():
            if line.strip().startswith(name + " ") and "=>" in line:
                return Path(line.split("=>")[1].strip())
    return None


def find(name, more=()):
    """Returns the path of a library, or None."""
    named = [it for it in os.environ.get("LD_LIBRARY_PATH", "").split(":") if it]
    for pattern in (*more, *named, *FOLDERS):
        for folder in sorted(glob.glob(str(pattern))):
            if (Path(folder) / name).exists():
                return Path(folder) / name
    return known_to_loader(name)


def find_in_toolkits(name, more=()):
    """Returns the folder that has a library: a toolkit's, a Python package's, one of `more`."""
    entries = [entry for entry in sys.path if entry]
    places = [
        f"{entry}/nvidia/{part}/lib" for entry in entries for part in ("cu13", "cublas", "cufft")
    ]
    for pattern in (*TOOLKITS, *places, *more):
        for folder in sorted(glob.glob(str(pattern))):
            if (Path(folder) / name).exists():
                return Path(folder)
    return None


def find_library(*names):
    """Returns the first of these libraries of NVIDIA, or None. The packages of Python are the
    programs' own ones, so their results are the same on the driver and on the pool."""
    for name in names:
        folder = find_in_toolkits(name)
        if folder:
            return folder / name
    return None


def find_driver(root, named, nodes):
    """Returns the driver of this machine, or the one that the user named."""
    runtime = find_in_toolkits("libcudart.so.13", [root / "lib/runtime"])
    if named:
        cuda = named.resolve()
        named = Driver(cuda, nodes=nodes, runtime=runtime, folders=[cuda.parent])
        # Penstock's own driver has Penstock's own libraries beside it.
        for attribute, name in (("cublas", "libcublas.so.13"), ("cufft", "libcufft.so.12")):
            if (cuda.parent / name).exists():
                setattr(named, attribute, cuda.parent / name)
        return named
    cuda = find("libcuda.so.1")
    beside = [cuda.parent, cuda.resolve().parent] if cuda else []
    found = Driver(
        cuda,
        find("libnvidia-opencl.so.1", beside),
        find("libnvidia-ml.so.1", beside),
        shutil.which("nvidia-smi"),
        runtime=runtime,
        cublas=find_library("libcublas.so.13", "libcublas.so.12"),
        cufft=find_library("libcufft.so.12", "libcufft.so.11"),
    )
    if not found.smi:
        for folder in ("/usr/local/nvidia/bin", "/usr/bin", "/opt/bin"):
            if os.access(f"{folder}/nvidia-smi", os.X_OK):
                found.smi = f"{folder}/nvidia-smi"
                break
    for library in (found.cuda, found.opencl, found.nvml):
        if library and library.parent not in found.folders:
            found.folders.append(library.parent)
    return found
