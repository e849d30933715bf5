"""Frameworks, unmodified: the same program on the driver and on a pool, with equal results. What a
pool lacks is a line of the report and no failure of the kit."""

import importlib.util
import re
import sys

from kit.pool import Pool, direct, joined
from kit.process import side_by_side

PROGRAM_S = 75
# One process for each group, so that a call that breaks the context does not hide the others.
TORCH = {
    "PyTorch, elements": (
        "devices",
        "tensor",
        "elementwise",
        "reductions",
        "sort",
        "random",
        "elementwise_training",
        "elementwise_time",
        "graph",
    ),
    "PyTorch, products": (
        "matmul",
        "matmul_bf16",
        "matmul_half",
        "products_of_batches",
        "linear",
        "training",
        "step_time",
        "matmul_time",
        "matmul_bf16_time",
    ),
    "PyTorch, convolution": ("convolution", "training_convolution"),
    "PyTorch, others": ("fft", "solve"),
}
OTHERS = {
    "CuPy": ("cupy", "cupy_sample.py"),
    "Triton": ("triton", "triton_kernel.py"),
    "JAX": ("jax", "jax_function.py"),
}
# Stages whose results are times, or tell the name of the device.
VARYING = ("devices", "step_time", "elementwise_time", "matmul_time", "matmul_bf16_time")


def work(session):
    packages = ("torch", "cupy", "numba", "triton", "jax")
    absent = [name for name in packages if importlib.util.find_spec(name) is None]
    if absent:
        session.item("Python packages", "lacks", ", ".join(absent))
    programs = {}
    if importlib.util.find_spec("torch"):
        programs |= {name: ("pytorch.py", stages) for name, stages in TORCH.items()}
    for name, (package, file) in OTHERS.items():
        if importlib.util.find_spec(package):
            programs[name] = (file, ())
    if not programs:
        return
    results = {}
    with Pool(session, confine=session.confine) as pool:

        def one(name, way, command, env):
            if session.left() > 2:
                results[name, way] = session.command(f"{name}, {way}", command, env, PROGRAM_S)

        jobs = []
        for name, (file, stages) in programs.items():
            program = [sys.executable, session.root / "programs" / file, *stages]
            for way, (command, env) in ways(session, pool, program).items():
                env["TRITON_CACHE_DIR"] = str(session.work / f"triton-{way}")
                env["CUPY_CACHE_DIR"] = str(session.work / f"cupy-{way}")
                env["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
                # Otherwise JAX computes on the processor where it finds no GPU.
                env["JAX_PLATFORMS"] = "cuda"
                jobs.append(lambda n=name, w=way, c=command, e=env: one(n, w, c, e))
        side_by_side(jobs, min(8, session.cores))
        for name in programs:
            compare(session, name, results)
        session.item("daemon", "info", "its last lines", tail=pool.said(15))


def ways(session, pool, program):
    """Returns the ways to run a program: beside Penstock, by `penstock run`, and with the libraries
    preloaded, for frameworks that look for NVIDIA's in their own folders first."""
    libraries = session.root / "lib/cuda"
    run = [session.root / "bin/penstock", "run", "--no-local", "--", *program]
    preload = pool.client()
    preload["LD_PRELOAD"] = joined(
        libraries / "libcuda.so.1",
        libraries / "libcudart.so.13",
        libraries / "libcublasLt.so.13",
        libraries / "libcublas.so.13",
        libraries / "libcufft.so.12",
        libraries / "libpenstock_cudapatch.so",
    )
    preload["TRITON_LIBCUDA_PATH"] = str(libraries)
    beside = direct(session)
    if session.driver.cuda:
        beside["TRITON_LIBCUDA_PATH"] = str(session.driver.cuda.parent)
    shown = pool.client(TRITON_LIBCUDA_PATH=str(libraries))
    return {
        "driver": (program, beside),
        "run": (run, shown),
        "preload": (program, preload),
    }


def stages_of(result):
    """Returns what each stage of a program said: whether it is good, its seconds, its result."""
    found = {}
    for line in result.text.splitlines() if result else ():
        words = line.split("\t")
        if len(words) == 5 and words[0] == "STAGE":
            found[words[1]] = (words[2] == "ok", float(words[3]), words[4])
    return found


def missing_calls(result):
    """Returns the lines in which Penstock says what it does not serve."""
    lines = [line for line in result.text.splitlines() if line.startswith("penstock:")]
    quiet = re.compile(r"returns (cudaErrorNotReady|CUDA_ERROR_NOT_READY)|ErrorPeerAccess")
    return list(dict.fromkeys(line.strip()[:200] for line in lines if not quiet.search(line)))


def compare(session, name, results):
    beside = stages_of(results.get((name, "driver")))
    for way in ("run", "preload"):
        result = results.get((name, way))
        if result is None:
            session.item(f"{name}, {way}", "skip", "not run")
            continue
        found = stages_of(result)
        for stage in dict.fromkeys([*beside, *found]):
            note_stage(session, f"{name}, {way}: {stage}", stage, beside, found)
        lacks = missing_calls(result)
        session.item(
            f"{name}, {way}",
            "ok" if result.is_good else "lacks",
            result.why(),
            seconds=round(result.seconds, 1),
            lacks=lacks[:40],
            tail="\n".join([*lacks[:12], *result.tail(4).splitlines()])[:3000],
        )
    result = results.get((name, "driver"))
    if result is not None:
        stages = ", ".join(f"{stage}: {said[2]}" for stage, said in beside.items())
        session.item(
            f"{name}, driver",
            "ok" if result.is_good else "info",
            stages or result.why(),
            seconds=round(result.seconds, 1),
            tail="" if result.is_good else result.tail(6),
        )


def note_stage(session, title, stage, beside, found):
    own, ours = beside.get(stage), found.get(stage)
    if ours is None:
        session.item(title, "lacks", "the program ended before")
    elif not ours[0]:
        session.item(title, "lacks", ours[2])
    elif stage == "devices" and own and own[2].split("(")[0] != ours[2].split("(")[0]:
        session.item(title, "lacks", f"driver: {own[2]}; pool: {ours[2]}")
    elif own and own[0] and stage not in VARYING and own[2] != ours[2]:
        # Another result than the driver's is the one thing that must not happen.
        session.item(title, "FAIL", f"driver: {own[2]}; pool: {ours[2]}")
    else:
        text = f"driver: {own[2]}; pool: {ours[2]}" if own else ours[2]
        session.item(title, "ok", f"{text}; {own[1] if own else '-'} s, {ours[1]} s")
