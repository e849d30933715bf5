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
# How many stages run at the same time on two cores, however busy the host is, and how many while
# the cores have time left. A stage of the lane `test` waits for most of its time, but a case has a
# limit of time, which too many stages on a busy host would exceed. Measurements run alone.
WIDTH = {TEST: 4, ALL: 2, PERF: 1}
WIDTH_MAX = {TEST: 6, ALL: 3, PERF: 1}
# The longest runner takes 300 s on a host with two cores, and each of its cases has a limit of its
# own. So this limit is for a runner that is broken, also on a host that is a quarter as fast.
RUNNER_LIMIT_S = {TEST: 1800, ALL: 7200, PERF: 7200}


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

    def of(self, lane):
        """Returns the commands of this stage in a lane: `all` contains `test`."""
        wanted = {TEST: (TEST,), ALL: (TEST, ALL), PERF: (PERF,)}[lane]
        return [command for name in wanted for command in self.commands.get(name, ())]


def lint():
    # Clippy has run with the build, and rustdoc runs with the examples in the documentation.
    return [
        case("lint/format", "tools/format.sh --check"),
        case("lint/spelling", ".venv/bin/typos --config typos.toml --format brief"),
        case("lint/policy", ".venv/bin/python tools/policy/check.py"),
        case("lint/policy-rules", ".venv/bin/python -m pytest -q -p no:cacheprovider tools/policy"),
        case("lint/oldest-rust", "tools/oldest-rust.sh"),
    ]


def c():
    run = "tests/c/run.sh --on"
    multi = "multi_buffers multi_events multi_gates multi_host_memory multi_programs multi_views"
    return {
        TEST: [
            runner(f"{run} unix"),
            # What depends on the transport.
            runner(f"{run} tcp buffers kernels mapping rects host_memory svm surroundings"),
            runner(f"{run} two {multi} multi_choice multi_heaps multi_printing multi_taken"),
            # Heaps use other paths here: the proxy over TCP, and between two drivers.
            runner(f"{run} far multi_heaps"),
            runner(f"{run} mixed multi_heaps"),
            # Encrypted links to and between the nodes.
            runner(f"{run} encrypted buffers mapping multi_buffers multi_heaps"),
            runner(f"{run} platforms includes"),
            # Nodes that do not reach each other: the client relays.
            runner(f"{run} apart multi_buffers multi_events multi_host_memory"),
        ],
        ALL: [
            # Without Penstock: the tests themselves.
            runner(f"{run} local"),
            runner(f"{run} tcp"),
            runner(f"{run} two"),
            runner(f"{run} two multi_heaps", PENSTOCK_HEAP_PATH="proxy"),
            runner(f"{run} encrypted kernels rects multi_events multi_programs"),
            runner(f"{run} apart multi_gates multi_programs multi_views"),
        ],
        PERF: [runner(f"{run} unix information")],
    }


def model(programs, machine, kernels):
    """Random programs, the same in each run. `tests/model/run.sh --seed` searches from others."""
    check = "{bin}/penstock check --machine --programs"
    # A program includes builds, which take long on a busy host. This is tests/patience.py's limit.
    run = "tests/model/run.sh --hang-seconds 60"
    options = f"--programs {programs} --shrink-seconds 10 --findings 3"
    pools = ["unix", "two", "tcp", "far", "apart", "mixed", "platforms"]
    return [
        case("model/machine", f"{check} {machine}"),
        *[case(f"model/{pool}", f"{run} --on {pool} {options}") for pool in pools],
        *[
            case(f"model/cuda-{pool}", f"{run} --on {pool} --cuda {options}")
            for pool in ("unix", "two")
        ],
        case("model/kernels", f"{run} --on unix --kernels --programs {kernels}"),
    ]


def water():
    ranks = "tests/water/ranks.sh --mpi"
    return {
        TEST: [
            case("water/programs", "tests/water/programs.sh {bin}"),
            runner("tests/water/run.sh --on two"),
            runner(f"{ranks} openmpi --ranks 2"),
            runner(f"{ranks} mpich --ranks 2"),
            runner("tests/water/heaps.sh"),
            case("water/simulated", "tools/sim/test.sh"),
            case(
                "water/python",
                ".venv/bin/python -m pytest -q -p no:cacheprovider python/tests",
                PENSTOCK_WATER_LIBRARY="{bin}/libwater.so",
            ),
        ],
        ALL: [runner(f"{ranks} openmpi --ranks 4,8"), runner(f"{ranks} mpich --ranks 4")],
    }


def cuda():
    run = "tests/cuda/run.sh --on"
    return {
        # Everything once.
        TEST: [runner(f"{run} unix"), runner("tests/cuda/native.sh")],
        PERF: [runner(f"{run} unix sharing")],
    }


def cuda_pools():
    """What depends on the pool or the driver."""
    run = "tests/cuda/run.sh --on"
    return {
        TEST: [
            runner(f"{run} unix --device intel vectorAdd matrixMul-static copies atomics branches"),
            runner(f"{run} unix --device intel managed"),
            runner(f"{run} tcp vectorAdd asyncAPI copies streams managed managed_variables"),
            runner(f"{run} two devices vectorAdd heaps"),
        ],
        ALL: [
            runner(f"{run} unix --device intel"),
            runner(f"{run} tcp matrixMul-static bicubicTexture numba_vectors"),
            runner(f"{run} two matrixMul BlackScholes-static managed managed_variables"),
            runner(f"{run} two --device intel heaps"),
            runner(f"{run} far heaps"),
        ],
    }


def mpi():
    """Random calls, the same in each run. `tests/mpi/run.sh --seed` searches from others."""
    run = "tests/mpi/run.sh"
    return {
        TEST: [
            runner(f"{run} --ranks 2 --cases 16"),
            runner(f"{run} --on two --ranks 2 --cases 12 --mpi openmpi"),
        ],
        # MPICH's ranks poll while they wait, so four of them take minutes on two cores.
        ALL: [
            runner(f"{run} --ranks 2,3,4 --cases 240"),
            runner(f"{run} --on two --ranks 2 --cases 240"),
        ],
    }


def programs():
    run = "tests/programs/run.sh --lane"
    return {
        TEST: [runner(f"{run} fast --on unix"), runner(f"{run} fast --on two clinfo matmul")],
        ALL: [runner(f"{run} all --on {pool}") for pool in ("unix", "tcp", "two")],
    }


def scripts(*names, perf=False):
    """Scripts whose cases know their lanes themselves."""
    runners = [runner(f"tests/{name}.py") for name in names]
    return {TEST: runners, PERF: runners if perf else []}


RUST = "tools/cargo-tests.py"

# The stages start in this order, the longest ones first, so that no long one is left at the end.
STAGES = [
    Stage(
        "cargo",
        "the crates with devices, daemons and processes",
        {
            TEST: [runner(f"{RUST} rest")],
            ALL: [
                runner(f"{RUST} long"),
                # As many rounds as long campaigns of heaps need.
                runner(f"{RUST} rest -p penstock-ggas --test kernels", GGAS_TEST_SCALE="5"),
            ],
            PERF: [runner(f"{RUST} perf")],
        },
    ),
    Stage(
        "hostile",
        "attacks by clients, kernels and strangers fail",
        {TEST: [runner("tests/hostile/run.sh")], PERF: [runner("tests/hostile/run.sh")]},
    ),
    Stage("cuda", "CUDA programs, on CPU devices and on a stand-in for NVIDIA's driver", cuda()),
    Stage("c", "OpenCL's functions do what the specification says", c()),
    Stage("cuda-pools", "CUDA programs on other pools and drivers", cuda_pools()),
    Stage("programs", "programs that others wrote", programs()),
    Stage("water", "libWater in one process, on the pool and over MPI", water()),
    Stage(
        "guests",
        "programs in virtual machines",
        scripts("guests/run", "guests/groups", "guests/faults"),
    ),
    Stage("ssh", "nodes behind SSH", scripts("ssh/run")),
    Stage("load", "many clients at a time", scripts("load/run", perf=True)),
    Stage(
        "faults",
        "what ends in the middle disturbs nobody else",
        scripts("faults/run", perf=True),
    ),
    Stage(
        "model",
        "random programs compute what a model computes",
        {TEST: model(40, 20000, 12), ALL: model(400, 100000, 400)},
    ),
    Stage(
        "pure",
        "decisions and computations, without a device and a daemon",
        {
            TEST: [
                runner(f"{RUST} pure"),
                runner(f"{RUST} pure -p penstock-simulate --features world"),
                # The same seeds in each run, and some of them twice.
                case("pure/simulation", "{bin}/penstock-simulate 0..150"),
                case("pure/simulation-repeats", "{bin}/penstock-simulate 150..170 --twice"),
            ],
            ALL: [
                case("simulation/seeds", "{bin}/penstock-simulate 1000..31000"),
                case("simulation/planted", "{bin}/penstock-simulate 0..2000 --planted"),
            ],
        },
    ),
    Stage("mpi", "device memory in MPI calls", mpi()),
    Stage(
        "bench",
        "measurements check their data",
        {
            TEST: [
                case(
                    "bench/quick",
                    "{programs}/penstock-bench --quick --output {target}/bench-quick",
                )
            ],
            PERF: [case("bench/full", "{programs}/penstock-bench --output {target}/bench")],
        },
    ),
    Stage(
        "notices",
        "messages say what happened and what to do; traces and summaries say what was done",
        {
            TEST: [runner(f"tests/{name}/run.py") for name in ("notices", "trace", "summary")],
            PERF: [runner("tests/summary/run.py")],
        },
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
    Stage(
        "packages",
        "packages install, run programs, and leave nothing",
        {ALL: [runner(".venv/bin/python tests/packaging/packages.py")]},
    ),
    Stage(
        "slurm",
        "jobs of Slurm have the devices of their nodes, and leave nothing",
        {ALL: [runner("tests/slurm/run.py"), runner("tests/slurm/run.py --cgroups")]},
    ),
    Stage("containers", "programs in containers", {TEST: [runner("tests/containers/run.sh")]}),
    Stage("lint", "the sources keep the rules", {TEST: lint()}),
    Stage("fuzz", "no input makes a decoder fail", {ALL: [runner("tools/fuzz.sh --short 30")]}),
]
