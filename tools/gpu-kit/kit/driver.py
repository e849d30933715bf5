"""Finds NVIDIA's libraries and tools. The loader need not know where they are."""

import ctypes
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


def folder_with(name, patterns):
    """Returns the first folder that has a file, or None."""
    for pattern in patterns:
        for folder in sorted(glob.glob(str(pattern))):
            if (Path(folder) / name).exists():
                return Path(folder)
    return None


def packages():
    """Returns the folders in which packages of this Python have NVIDIA's libraries."""
    parts = ("cu13", "cublas", "cufft")
    return [f"{entry}/nvidia/{part}/lib" for entry in sys.path if entry for part in parts]


def find_in_toolkits(name, more=()):
    """Returns the folder that has a library: a toolkit's, a Python package's, one of `more`."""
    return folder_with(name, (*TOOLKITS, *packages(), *more))


def cuda_version(cuda):
    """Returns the major version of CUDA that a driver has, or None if it does not say."""
    version = ctypes.c_int()
    try:
        code = ctypes.CDLL(str(cuda)).cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return None
    return version.value // 1000 if code == 0 else None


def find_library(name, versions, newest):
    """Returns a library of NVIDIA that the driver runs, or None. `versions` has the library's
    version for each of CUDA, and `newest` is the driver's. The packages of Python come first: they
    are the programs' own ones, so their results are the same on the driver and on the pool."""
    for patterns in (packages(), TOOLKITS):
        for cuda in sorted(versions, reverse=True):
            file = f"{name}.{versions[cuda]}"
            folder = folder_with(file, patterns) if newest is None or cuda <= newest else None
            if folder:
                return folder / file
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
    newest = cuda_version(cuda) if cuda else None
    beside = [cuda.parent, cuda.resolve().parent] if cuda else []
    found = Driver(
        cuda,
        find("libnvidia-opencl.so.1", beside),
        find("libnvidia-ml.so.1", beside),
        shutil.which("nvidia-smi"),
        runtime=runtime,
        cublas=find_library("libcublas.so", {13: 13, 12: 12}, newest),
        cufft=find_library("libcufft.so", {13: 12, 12: 11}, newest),
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
