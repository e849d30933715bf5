"""The stages of the tests: what each proves, and the commands that it runs, by lane.

A command is either a runner, which tells its cases in TEST_TALLY itself, or one case.
"""

from dataclasses import dataclass, field

TEST, ALL, PERF = "test", "all", "perf"
LANES = {
    TEST: "the proof of correctness: what must pass before a change lands",
    ALL: "the same, and all that takes long: random campaigns, fuzzing, each attack at each level",
    PERF: "what judges time, rates, shares and memory: run it alone",
}
# No runner takes as long on a quiet host with two cores.
RUNNER_LIMIT_S = {TEST: 600, ALL: 3600, PERF: 3600}


@dataclass
class Command:
    words: list
    # The name of the case, or None for a runner.
    case: str | None = None
    environment: dict = field(default_factory=dict)
    limit_s: int | None = None


def runner(text, **environment):
    return Command(text.split(), environment=environment)


def case(name, text, **environment):
    return Command(text.split(), name, environment)


@dataclass
class Stage:
    name: str
    proves: str
    commands: dict
    # A heavy stage starts many processes. Only one heavy stage runs at a time.
    heavy: bool = True
    needs: tuple = ("build",)

    def of(self, lane):
        """Returns the commands of this stage in a lane: `all` contains `test`."""
        wanted = {TEST: (TEST,), ALL: (TEST, ALL), PERF: (PERF,)}[lane]
        return [command for name in wanted for command in self.commands.get(name, ())]


def lint():
    # The build is Clippy's, too: see `build` in __main__.py.
    return [
        case("lint/format", "tools/format.sh --check"),
        case("lint/spelling", ".venv/bin/typos --config typos.toml --format brief"),
        case("lint/policy", ".venv/bin/python tools/policy/check.py"),
        case("lint/policy-rules", ".venv/bin/python -m pytest -q -p no:cacheprovider tools/policy"),
        case("lint/oldest-rust", "tools/oldest-rust.sh"),
        case("lint/doc", "tools/doc.sh", RUSTDOCFLAGS="-D warnings"),
    ]


def c():
    run = "tests/c/run.sh --on"
    return [
        runner(f"{run} unix"),
        # Heaps use other paths here: the proxy over TCP and over a Unix socket, and between drivers.
        runner(f"{run} far multi_heaps"),
        runner(f"{run} two multi_heaps", PENSTOCK_HEAP_PATH="proxy"),
        runner(f"{run} two"),
        # Encrypted links to and between the nodes: large and small transfers, events, heaps.
        runner(
            f"{run} encrypted buffers kernels mapping rects multi_buffers multi_events multi_heaps multi_programs"
        ),
        runner(f"{run} platforms includes"),
        # Nodes that do not reach each other: the client relays.
        runner(
            f"{run} apart multi_buffers multi_events multi_gates multi_host_memory multi_programs multi_views"
        ),
    ]


def model(programs, pools, cuda_pools, machine):
    checks = [case("model/machine", f"{{bin}}/penstock check --machine --programs {machine}")]
    options = f"--programs {programs} --shrink-seconds 10 --findings 3"
    checks += [case(f"model/{pool}", f"tests/model/run.sh --on {pool} {options}") for pool in pools]
    return checks + [
        case(f"model/cuda-{pool}", f"tests/model/run.sh --on {pool} --cuda {options}")
        for pool in cuda_pools
    ]


def water():
    return [
        case("water/programs", "tests/water/programs.sh {bin}"),
        runner("tests/water/run.sh --on two"),
        runner("tests/water/ranks.sh --mpi openmpi --ranks 2,4"),
        runner("tests/water/ranks.sh --mpi mpich --ranks 2"),
        case("water/heaps", "tests/water/heaps.sh"),
        case("water/simulated", "tools/sim/test.sh"),
        case(
            "water/python",
            ".venv/bin/python -m pytest -q -p no:cacheprovider python/tests",
            PENSTOCK_WATER_LIBRARY="{bin}/libwater.so",
        ),
    ]


def cuda():
    return [
        # Everything once per device. Over TCP and on two nodes only what depends on the transport or
        # needs two devices.
        runner("tests/cuda/run.sh --on unix --device pocl"),
        runner("tests/cuda/run.sh --on unix --device intel"),
        runner(
            "tests/cuda/run.sh --on tcp vectorAdd matrixMul-static bicubicTexture asyncAPI copies streams numba_vectors"
        ),
        runner("tests/cuda/run.sh --on two devices vectorAdd matrixMul BlackScholes-static heaps"),
        runner("tests/cuda/run.sh --on two --device intel heaps"),
        runner("tests/cuda/run.sh --on far heaps"),
        runner("tests/cuda/native.sh"),
    ]


RUST = "tools/cargo-tests.py"

STAGES = [
    Stage("lint", "the sources keep the rules", {TEST: lint()}, heavy=False),
    Stage(
        "pure",
        "the crates compute and decide rightly: no device, no daemon, no second process",
        {TEST: [runner(f"{RUST} pure")]},
        heavy=False,
    ),
    Stage(
        "cargo",
        "the crates with devices, daemons and processes",
        {TEST: [runner(f"{RUST} rest")], PERF: [runner(f"{RUST} perf")]},
    ),
    Stage(
        "c",
        "OpenCL's functions do what the specification says",
        {
            TEST: c(),
            ALL: [
                runner("tests/c/run.sh --on local"),
                runner("tests/c/run.sh --on tcp"),
                runner("tests/c/run.sh --on mixed multi_heaps"),
            ],
        },
    ),
    Stage(
        "cuda",
        "CUDA programs, on CPU devices and on a stand-in for NVIDIA's driver",
        {TEST: cuda()},
    ),
    Stage("water", "libWater in one process, on the pool and over MPI", {TEST: water()}),
    Stage(
        "mpi",
        "device memory in MPI calls",
        {
            # Random calls, the same in each run. `tests/mpi/run.sh --seed` searches from other seeds.
            # MPICH's ranks poll while they wait, so four of them take minutes on two cores.
            TEST: [runner("tests/mpi/run.sh --ranks 2 --cases 60")],
            ALL: [
                runner("tests/mpi/run.sh --ranks 2,3 --cases 120"),
                runner("tests/mpi/run.sh --on two --ranks 2"),
            ],
        },
    ),
    Stage(
        "model",
        "random programs compute what a model computes",
        {
            # The same programs in each run. `tests/model/run.sh --seed` searches from other seeds.
            TEST: model(100, ["unix", "tcp", "two", "apart", "mixed"], ["two"], 30000),
            ALL: model(
                400,
                ["unix", "tcp", "two", "far", "apart", "mixed", "platforms"],
                ["unix", "two"],
                100000,
            ),
        },
    ),
    Stage(
        "programs",
        "programs that others wrote",
        {
            TEST: [runner("tests/programs/run.sh --lane fast --on two")],
            ALL: [
                runner(f"tests/programs/run.sh --lane slow --on {pool}")
                for pool in ("unix", "tcp", "two")
            ],
        },
    ),
    Stage(
        "hostile",
        "attacks by clients, kernels and strangers fail",
        {TEST: [runner("tests/hostile/run.sh")]},
    ),
    Stage(
        "faults",
        "what ends in the middle disturbs nobody else",
        {
            TEST: [runner("tests/faults/run.py --times 2")],
            ALL: [runner("tests/faults/run.py --times 100")],
        },
    ),
    Stage(
        "notices",
        "messages say what happened and what to do",
        {TEST: [runner("tests/notices/run.py"), runner("tests/trace/run.py")]},
    ),
    Stage(
        "documents",
        "the commands in the documents work",
        {
            TEST: [
                runner("tests/documents/run.py"),
                case("documents/units", "tests/packaging/units.sh"),
            ]
        },
    ),
    Stage("ssh", "nodes behind SSH", {TEST: [runner("tests/ssh/run.py")]}),
    Stage("containers", "programs in containers", {TEST: [runner("tests/containers/run.sh")]}),
    Stage(
        "guests",
        "programs in virtual machines",
        {
            TEST: [runner("tests/guests/run.py")],
            ALL: [
                runner("tests/guests/groups.py"),
                runner("tests/guests/faults.py --times 100"),
                runner("tests/guests/faults.py --times 100 --transport shm"),
            ],
        },
    ),
    Stage(
        "load",
        "many clients at a time",
        {PERF: [runner("tests/load/run.py --programs 40 --on tcp --alone 4")]},
    ),
    # Not for the figures, but because each measurement checks its data.
    Stage(
        "bench",
        "measurements check their data",
        {
            ALL: [
                case(
                    "bench/quick", "{programs}/penstock-bench --quick --output {target}/bench-quick"
                )
            ]
        },
    ),
    Stage("fuzz", "no input makes a decoder fail", {ALL: [runner("tools/fuzz.sh --short 30")]}),
]
