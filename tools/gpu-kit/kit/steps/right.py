"""Whether programs compute the same on the driver and on pools."""

import sys
from contextlib import ExitStack

from kit.pool import WAYS, Pool, direct, joined
from kit.process import side_by_side

# Programs beside each other. Each has a context of some hundred megabytes on the GPU.
JOBS_MAX = 10
# A test of 120 s elsewhere has at most this time.
PROGRAM_S = 40
C_TEST_S = 30
# Tests whose figures others would disturb, or that need another pool.
ALONE = ("sharing", "heaps", "memcheck")
SCRIPTS = (
    "numba_vectors",
    "numba_matrices",
    "numba_histogram",
    "nvrtc_saxpy",
    "nvml",
    "cublas",
    "cublas_lt",
    "cufft",
    "cupy_arrays",
    "cupy_libraries",
)
# Programs of steps of their own.
NATIVE = ("native", "native_heaps", "pinned")
# OpenCL tests that need several devices or PoCL itself.
PARTS = ("stress", "multi_", "torn", "sub-devices")


def native(session):
    """native.c on the driver itself, on each kind of pool, and with two devices of one GPU; and
    pinned.c on pools that share memory with the program, and on one that does not."""
    program, pinned = (session.root / "tests/cuda" / name for name in ("native", "pinned"))

    def on_driver():
        session.judged(
            "native, driver",
            session.command("native, driver", [program], direct(session), PROGRAM_S),
        )

    def on_pool(name, way, command=(program,), **more):
        title = f"{command[0].name}, {name}"
        with Pool(session, way, confine=session.confine, log="info", **more) as pool:
            result = session.command(title, list(command), pool.client(), PROGRAM_S)
            row = session.judged(title, result)
            if row["verdict"] == "FAIL":
                row["tail"] += f"\n-- daemon\n{pool.said(8)}"

    jobs = [on_driver, *(lambda way=way: on_pool(way, way) for way in WAYS)]
    jobs.append(lambda: on_pool("two devices", "unix", PENSTOCK_CUDA_EACH="2"))
    shared, pages = (pinned, "shared"), (pinned, "pages")
    jobs.append(lambda: on_pool("unix", "unix", shared))
    jobs.append(lambda: on_pool("two devices", "unix", shared, PENSTOCK_CUDA_EACH="2"))
    jobs.append(lambda: on_pool("tcp", "tcp", pages))
    jobs.append(lambda: on_pool("PTX only", "unix", CUDA_FORCE_PTX_JIT="1"))
    side_by_side(jobs, session.cores)


def programs(session):
    """Returns the CUDA programs: name, command beside the driver, command on a pool."""
    tests, penstock = session.root / "tests/cuda", session.root / "bin/penstock"
    run = [penstock, "run", "--no-local", "--"]
    found = []
    for path in sorted(tests.iterdir()):
        if path.suffix or path.name in ALONE or path.name in NATIVE:
            continue
        found.append((path.name, [path], [path]))
    for path in sorted((session.root / "tests/examples").iterdir()):
        found.append((path.name, [path, "--small"], [*run, path, "--small"]))
    for name in SCRIPTS:
        script = [sys.executable, tests / f"{name}.py"]
        patch = session.root / "lib/cuda/libpenstock_cudapatch.so"
        shown = ["env", f"LD_PRELOAD={patch}"] if name.startswith("cupy") else []
        found.append((name, script, [*run, *shown, *script]))
    return found


def cuda(session):
    """Every CUDA program on the driver and on three kinds of pools. The verdict of a pool is
    compared with that of the driver."""
    listed = programs(session)
    results = {}
    with ExitStack() as stack:
        pools = {
            way: stack.enter_context(Pool(session, way, confine=session.confine)) for way in WAYS
        }

        def one(name, way, command):
            if session.left() < 1:
                return
            env = pools[way].client() if way in pools else direct(session)
            env["LD_LIBRARY_PATH"] = joined(env["LD_LIBRARY_PATH"])
            env["CUPY_COMPILE_WITH_PTX"] = "1"
            env["CUPY_ACCELERATORS"] = ""
            env["CUPY_CACHE_DIR"] = str(session.work / f"cupy-{way}")
            results[name, way] = session.command(f"{name}, {way}", command, env, PROGRAM_S)

        jobs = [lambda n=name, c=beside: one(n, "driver", c) for name, beside, _ in listed]
        for way in WAYS:
            jobs += [lambda n=name, w=way, c=pool: one(n, w, c) for name, _, pool in listed]
        # The driver and the Unix socket first, program by program.
        count = len(listed)
        jobs = [job for pair in zip(jobs[:count], jobs[count : 2 * count]) for job in pair] + jobs[
            2 * count :
        ]
        side_by_side(jobs, min(JOBS_MAX, session.cores))
        for name, _, _ in listed:
            compare(session, name, results)
        for way, pool in pools.items():
            said = pool.said(12)
            if said:
                session.item(f"daemon, {way}", "info", "its last lines", tail=said)


def compare(session, name, results, ways=WAYS):
    """Notes one line per program: what the driver says of it, and what each pool says."""
    beside = results.get((name, "driver"))
    words, worst, tails = [], "ok", []
    for way in ("driver", *ways):
        result = results.get((name, way))
        if result is None:
            words.append(f"{way}: not run")
            continue
        word = "ok" if result.is_good else "skip" if result.code == 77 else result.why()
        words.append(f"{way}: {word} {result.seconds:.1f} s")
        if not result.is_good and result.code != 77:
            is_new = way != "driver" and (beside is None or beside.is_good)
            worst = "FAIL" if is_new else worst if worst == "FAIL" else "info"
            failed = [line for line in result.text.splitlines() if not line.startswith("  ok ")]
            if not any(failed[-6:] == before for _, before in tails):
                tails.append((way, failed[-6:]))
    if beside is not None and beside.code == 77 and worst == "ok":
        worst = "skip"
    text = "\n".join(f"-- {way}\n" + "\n".join(lines) for way, lines in tails)
    session.item(name, worst, "; ".join(words), **({"tail": text[:4000]} if text else {}))


def opencl(session):
    """The C tests of OpenCL on NVIDIA's driver itself and on a pool with it."""
    kind = "nvidia" if session.driver.opencl else "pocl"
    if kind == "nvidia":
        session.item("NVIDIA's OpenCL", "info", str(session.driver.opencl))
    elif not (session.root / "lib/pocl/libpocl.so.2").exists():
        session.item("NVIDIA's OpenCL", "lacks", "no libnvidia-opencl.so.1 was found, and no PoCL")
        return
    else:
        session.item("NVIDIA's OpenCL", "lacks", "no libnvidia-opencl.so.1; PoCL in its place")
    tests = [
        path
        for path in sorted((session.root / "tests/c").iterdir())
        if not path.name.startswith(PARTS) and not path.suffix
    ]
    results = {}
    with Pool(session, "unix", (kind,), session.confine) as pool:
        beside = direct(session)
        beside["OCL_ICD_VENDORS"] = beside["OPENCL_VENDOR_PATH"] = str(session.vendors(kind))
        ways = {"driver": beside, "unix": pool.client(PENSTOCK_TEST_POOL="unix")}

        def one(path, way):
            if session.left() >= 1:
                results[path.name, way] = session.command(
                    f"{path.name}, {way}", [path], ways[way], C_TEST_S
                )

        side_by_side(
            [lambda p=path, w=way: one(p, w) for path in tests for way in ways],
            min(JOBS_MAX, session.cores),
        )
        for path in tests:
            compare(session, path.name, results, ["unix"])
        session.item("daemon", "info", "its last lines", tail=pool.said(12))


def check(session):
    """Random programs of `penstock check` on the driver and on pools."""
    penstock = session.root / "bin/penstock-check"
    seconds = max(5, int(min(session.left() - 8, 25)))
    options = ["--seconds", str(seconds), "--shrink-seconds", "0", "--findings", "3", "--jobs", "2"]
    with ExitStack() as stack:
        ways = {("--cuda", "driver"): direct(session)}
        pool = stack.enter_context(Pool(session, confine=session.confine))
        ways["--cuda", "unix"] = pool.client()
        if session.driver.opencl:
            both = stack.enter_context(Pool(session, "unix", ("nvidia",), session.confine))
            ways["", "driver"] = direct(session)
            ways["", "unix"] = both.client()

        def one(face, way, env):
            folder = session.work / f"check{face}-{way}"
            folder.mkdir()
            name = f"check {'CUDA' if face else 'OpenCL'}, {way}"
            command = [penstock, *options, *([face] if face else [])]
            result = session.command(name, command, env, seconds + 20, folder)
            row = session.judged(name, result)
            # A finding beside the driver is one about the driver, or about our model of it.
            if way == "driver" and row["verdict"] == "FAIL":
                row["verdict"] = "info"
            for file in sorted(folder.glob("*.c"))[:3]:
                session.keep_log(f"finding of {name}: {file.name}", file.read_text())

        side_by_side([lambda k=key, e=env: one(*k, e) for key, env in ways.items()], session.cores)
