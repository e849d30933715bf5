#!/usr/bin/env python3
"""Runs the tests of CUDA libraries, and our cases of CUB and Thrust, on Penstock's CUDA face.

    tests/suites/run.py [--device pocl|intel] [--suite NAME,...] [--jobs 2] [--long] [FILE...]

The suites: `cccl`, our own cases of CUB and Thrust, because NVIDIA's are in no package;
`numba-cuda`, the tests that its package contains; and `cupy`, CuPy's tests of sorting, searching,
counting, reductions, scans and statistics. `NAME.toml` lists the failures that are known, each with
its kind, its reason and a part of its message, and the number of tests that passed. A failure that
it does not list fails the suite, and so does a listed one that is gone or differs, and a file of
which fewer tests pass. FILE is a part of a file's name, and runs only such files. `--long` runs the
cases of `cccl` also with 100,000 values.

Prints one line for each file and each difference, and a table at the end. What became of each test
is in target/suites/DEVICE/SUITE.json, or in SUITE-part.json if FILE was given.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(ROOT / "tests")]
from known import BAD, Expected
from patience import CASE_S, PATIENCE_S
from runner import Runner

TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
BIN = Path(os.environ.get("PENSTOCK_BIN", TARGET / "release"))
ENVIRONMENT = ROOT / ".venv-cuda"
# The folders with files of numba-cuda's tests. Those in `benchmarks` measure time.
NUMBA = ["cudadrv", "cudapy", "cudasim", "core", "doc_examples", "nocuda", "nrt"]
# The parts of CuPy's tests.
CUPY = [
    "sorting_tests",
    "statistics_tests",
    "math_tests/test_sumprod.py",
    "core_tests/test_ndarray_reduction.py",
    "core_tests/test_cub_reduction.py",
    "core_tests/test_reduction.py",
    "core_tests/test_scan.py",
]
# The types of the values of CUB's and Thrust's cases, as tests/suites/Makefile has them.
TYPES = ["int", "float", "double", "int64", "Point"]


# The OpenCL platforms of the devices.
PLATFORMS = {"pocl": "Portable Computing Language", "intel": "Intel(R) OpenCL"}
# What the programs get of the environment: where programs and the user's files are, and how slow
# the host is. Nothing else may choose a device or change a result.
KEPT = ["PATH", "HOME", "USER", "LANG", "TMPDIR", "XDG_RUNTIME_DIR", "PENSTOCK_TEST_SLOWNESS"]


def environment_of(device, out):
    vendors = ENVIRONMENT / "vendors"
    if device == "pocl":
        vendors = out / "vendors-pocl"
        vendors.mkdir(parents=True, exist_ok=True)
        (vendors / "pocl.icd").write_bytes(Path("/etc/OpenCL/vendors/pocl.icd").read_bytes())
    found = {name: os.environ[name] for name in KEPT if name in os.environ}
    return found | {
        "PYTHONPATH": f"{HERE}:{TARGET / 'suites/python'}",
        "CUPY_CACHE_DIR": str(out / "cupy-cache"),
        "PENSTOCK_TIMEOUT_MS": f"{PATIENCE_S:.0f}000",
        "POCL_DEVICES": "pthread",
        "OCL_ICD_VENDORS": str(vendors),
        "OPENCL_VENDOR_PATH": str(vendors),
    }


def require_device(device, environment):
    """Fails unless all devices that the programs see are of the chosen runtime."""
    words = [BIN / "penstock", "devices", "--json"]
    told = subprocess.run(words, env=environment, check=True, stdout=subprocess.PIPE)
    platforms = {one["platform"] for one in json.loads(told.stdout)["devices"]}
    if platforms != {PLATFORMS[device]}:
        raise SystemExit(f"the devices are of {platforms}, not of {PLATFORMS[device]}")


def pytest(*words):
    return [ENVIRONMENT / "bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]


def numba_files(options):
    """Returns the name of each file of a suite, and the command that runs it."""
    tests = next(ENVIRONMENT.glob("lib/python3*/site-packages/numba_cuda/numba/cuda/tests"))
    words = ["-p", "recorder", "-o", "consider_namespace_packages=true", f"--rootdir={tests}"]
    files = sorted(file for folder in NUMBA for file in tests.glob(f"{folder}/**/test_*.py"))
    return [(str(file.relative_to(tests)), pytest(*words, file)) for file in files]


def cupy_files(options):
    tests = next((TARGET / "suites").glob("cupy-*/tests"))
    files = []
    for part in CUPY:
        path = tests / "cupy_tests" / part
        files += [path] if path.is_file() else sorted(path.glob("test_*.py"))
    words = ["-p", "recorder", "-m", "not slow and not multi_gpu", f"--confcutdir={tests}"]
    return [(str(file.relative_to(tests / "cupy_tests")), pytest(*words, file)) for file in files]


def cccl_files(options):
    sizes = "100000" if options.long else "1000"
    names = [f"{file.stem}-{kind}" for kind in TYPES for file in sorted(HERE.glob("*.cu"))]
    return [(name, [TARGET / "suites/cccl" / name, sizes]) for name in names]


FILES = {"cccl": cccl_files, "numba-cuda": numba_files, "cupy": cupy_files}


def build(files, options):
    """Compiles programs of CUB and Thrust. Each takes a minute."""
    programs = [command[0] for _, command in files]
    words = ["make", "-C", HERE, f"-j{options.jobs}", "--no-print-directory", "--quiet"]
    subprocess.run([*words, f"OUT={TARGET / 'suites/cccl'}", *programs], check=True)


def run(suite, options, out):
    """Runs a suite. Returns the outcome of each test, and the names of the files."""
    files = [
        file
        for file in FILES[suite](options)
        if not options.files or any(word in file[0] for word in options.files)
    ]
    if suite == "cccl" and files:
        build(files, options)
    environment = environment_of(options.device, TARGET / "suites")
    runner = Runner(BIN / "penstock", environment, out, CASE_S)

    def run_file(file):
        name, command = file
        began = time.monotonic()
        found = runner.run_file(command, f"{suite}-{name.replace('/', '.')}")
        bad = sum(outcome.verdict in BAD for outcome in found.values())
        took = time.monotonic() - began
        print(f"     {suite}/{name:<48} {took:7.1f} s  {len(found)} tests, {bad} fail", flush=True)
        # pytest names a test by a path, which depends on the folder.
        return {f"{name}::{test.rpartition('.py::')[2]}": found[test] for test in found}

    outcomes = {}
    with ThreadPoolExecutor(options.jobs) as pool:
        for found in pool.map(run_file, files):
            outcomes.update(found)
    return outcomes, [name for name, _ in files]


def judge(suite, outcomes, files, options):
    """Prints what differs from the list. Returns the counts, and the number of differences."""
    expected = Expected(HERE / f"{suite}.toml", options.device)
    differences = expected.compare(outcomes, files, not options.files)
    if not outcomes:
        differences.append("no test ran")
    for difference in differences:
        print(f"FAIL {suite}: {difference}")
    if not expected.is_complete:
        print(f"note {suite}: {suite}.toml was not made by a complete run on {options.device}")
    return expected.count(outcomes), len(differences)


COLUMNS = ["passed", "skipped", "refused", "wrong", "without end", "foreign", "new"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--device", choices=["pocl", "intel"], default="pocl")
    parser.add_argument("--suite", default="cccl,numba-cuda,cupy")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()
    out = TARGET / "suites" / options.device
    out.mkdir(parents=True, exist_ok=True)
    require_device(options.device, environment_of(options.device, TARGET / "suites"))
    rows, differences = [], 0
    for suite in options.suite.split(","):
        began = time.monotonic()
        outcomes, files = run(suite, options, out)
        told = {test: [outcome.verdict, outcome.message] for test, outcome in outcomes.items()}
        name = f"{suite}-part.json" if options.files else f"{suite}.json"
        (out / name).write_text(json.dumps(told, indent=1))
        counts, found = judge(suite, outcomes, files, options)
        differences += found
        rows.append((suite, len(outcomes), counts, time.monotonic() - began))
    print(f"\n{'suite':<12}{'cases':>7}" + "".join(f"{name:>13}" for name in COLUMNS) + "     time")
    for suite, cases, counts, seconds in rows:
        cells = "".join(f"{counts[name]:>13}" for name in COLUMNS)
        print(f"{suite:<12}{cases:>7}{cells}{seconds:>7.0f} s")
    print(f"on {options.device}: {differences} differences from what is expected")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
