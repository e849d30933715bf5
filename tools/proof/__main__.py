"""Runs the tests, one line per case; the last line counts them. `tools/test.sh` starts it.

    tools/test.sh [--lane test|all|perf] [--only STAGE,...] [--repeat N [--beside LOAD]]
                  [--list]

--only    runs these stages on what is built; without it, all stages of the lane run after a build
--repeat  runs the stages N times on what is built, and prints a table of the cases that failed
--beside  with --repeat: every second time, LOAD endless loops run beside the tests
--list    lists the stages of the lane

Four stages run at a time in the lane `test`, more while the cores have time left, and one stage in
the lane `perf`. The results of a whole run are also in target/proof.json: of which commit they are,
and the times of each stage. CPU time is that of processes for which another process of the stage
has waited.
"""

import argparse
import contextlib
import fcntl
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from pathlib import Path

import counts
import stages
import work

ROOT = Path(__file__).resolve().parent.parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
BIN = Path(os.environ["PENSTOCK_BIN"])
PROGRAMS = Path(os.environ.get("PENSTOCK_PROGRAMS", TARGET / "programs"))
LOGS = TARGET / "test-logs"
PROOF = TARGET / "proof.json"
# A run in the lane `test` takes a quarter of an hour on two cores, and twice as long on a host that
# others use. One that takes longer hangs.
WATCHDOG_S = 40 * 60
LOG_LINES_SHOWN = 60
BUILD_LIMIT_S = 1800
SUMMARY = " passed, "


def line(verdict, name, seconds, note):
    return f"{verdict:<4} {name:<32} {seconds:>7.1f} s  {note}"


def broken(result, name, say):
    """Counts a failure that no case has told."""
    result.counts.failed += 1
    result.failures.append(name)
    result.names.append(name)
    say([line("FAIL", name, 0, "")])


class Run:
    """One pass over stages."""

    def __init__(self, lane):
        self.lane = lane
        self.printing = threading.Lock()

    def say(self, lines):
        with self.printing:
            for text in lines:
                print(text, flush=True)

    def command(self, stage, number, command, result, say):
        """Runs one command of a stage."""
        words = [word.format(bin=BIN, programs=PROGRAMS, target=TARGET) for word in command.words]
        environment = {name: value.format(bin=BIN) for name, value in command.environment.items()}
        label = command.case or f"{stage.name}/{Path(words[0]).stem} {' '.join(words[1:])}"
        tally_file = LOGS / f"tally-{stage.name}-{number}"
        tally_file.unlink(missing_ok=True)
        environment |= {
            "TEST_TALLY": str(tally_file),
            "TEST_LANE": self.lane,
            "TEST_LOGS": str(LOGS),
        }
        lines, shown = [], []

        def take(text):
            lines.append(text)
            if command.case:
                shown.append(text)
            elif SUMMARY not in text or not text[:1].isdigit():
                say([text])

        limit = command.limit_s or stages.RUNNER_LIMIT_S[self.lane]
        if command.case and (plant := os.environ.get("TEST_PLANT")):
            words, limit = (["sleep", "1000"], 1) if plant.endswith(":hang") else (["false"], limit)
        # Open MPI's launchers fail if one removes a folder while another one makes it.
        with tempfile.TemporaryDirectory(prefix="ompi.", ignore_cleanup_errors=True) as place:
            environment["OMPI_MCA_orte_tmpdir_base"] = place
            ended = work.Job(label, words, limit, environment, take).finish()
        (LOGS / f"{stage.name}-{number}.log").write_text("\n".join(lines) + "\n")
        result.cpu_s += ended.cpu
        tally = counts.read(tally_file)
        if command.case:
            self.one_case(command.case, ended, shown, tally, say)
        else:
            self.many_cases(label, ended, tally, say)
        if ended.left:
            tally.fail(label)
            say([line("FAIL", label, ended.wall, "left processes behind, which were ended:")])
            say([f"        | {text}" for text in ended.left])
        result.counts.add(tally.counts)
        result.failures += tally.failures
        result.names += tally.names

    @staticmethod
    def one_case(name, ended, shown, tally, say):
        note = shown[-1][:100] if shown else ""
        tally.counts, tally.names = counts.Counts(), [name]
        if ended.code == 0:
            tally.counts.passed = 1
            say([line("ok", name, ended.wall, note)])
        elif ended.code == 77 and not name.startswith("lint/"):
            tally.counts.skipped = 1
            say([line("skip", name, ended.wall, f"SKIPPED: {note}")])
        else:
            tally.counts.failed = 1
            tally.failures = [name]
            say([line("FAIL", name, ended.wall, f"ended with code {ended.code}")])
            say([f"        | {text}" for text in shown[-LOG_LINES_SHOWN:] + ended.hang])

    @staticmethod
    def many_cases(label, ended, tally, say):
        complaint = tally.complaint()
        if ended.hang:
            complaint = ended.hang[0]
        elif ended.code not in (0, 77) and not tally.counts.failed:
            complaint = f"ended with code {ended.code}, but told no failure"
        if complaint:
            tally.fail(label)
            say([line("FAIL", label, ended.wall, complaint)])
            say([f"        | {text}" for text in ended.hang])

    def stage(self, stage, result):
        began = time.monotonic()

        def say(lines):
            # Several stages print at a time, so a line of details says of which stage it is.
            self.say([text.replace("        |", f"{stage.name:<8}|", 1) for text in lines])

        for number, command in enumerate(stage.of(self.lane)):
            try:
                self.command(stage, number, command, result, say)
            except Exception as error:
                # Without this, the thread of a stage could break in silence.
                broken(result, f"{stage.name}: {' '.join(command.words)}: {error!r}", say)
        if result.counts.all == 0:
            broken(result, f"{stage.name}: the stage told no results", say)
        result.wall_s = time.monotonic() - began

    def all(self, chosen):
        """Runs the stages, and returns their results in the order of the table."""
        results = {stage.name: counts.StageResult(stage.name) for stage in chosen}
        waiting, ended, running, host = list(chosen), queue.SimpleQueue(), 0, work.Host()

        def run(stage):
            try:
                self.stage(stage, results[stage.name])
            finally:
                ended.put(stage)

        while waiting or running:
            most = stages.WIDTH[self.lane]
            if running >= most and host.has_time():
                most = stages.WIDTH_MAX[self.lane]
            if waiting and running < most:
                threading.Thread(target=run, args=[waiting.pop(0)]).start()
                running += 1
                # Only a whole look with this stage says whether one more has room.
                host.begin()
                continue
            with contextlib.suppress(queue.Empty):
                ended.get(timeout=work.LOOK_S)
                running -= 1
        return list(results.values())


def build():
    """Builds everything that the tests run. Returns its result."""
    result = counts.StageResult("build")
    shown = []

    def take(text):
        shown.append(text)
        if text.startswith("building "):
            print(text, flush=True)

    began = time.monotonic()
    ended = work.Job(
        "build", ["make", "--no-print-directory", "tested"], BUILD_LIMIT_S, {}, take
    ).finish()
    result.wall_s, result.cpu_s = time.monotonic() - began, ended.cpu
    result.names = ["build"]
    if ended.code:
        result.counts.failed, result.failures = 1, ["build"]
        print(line("FAIL", "build", ended.wall, f"ended with code {ended.code}"))
        for text in shown[-200:] + ended.hang:
            print(f"        | {text}")
    else:
        result.counts.passed = 1
        print(
            line("ok", "build", ended.wall, "all crates, with Clippy, and all programs"), flush=True
        )
    return result


def summary(results, lane, began, proven):
    """Prints the counts. `proven` is the state of the sources before the build, or `None` if this
    run is only a part, which proves nothing."""
    budgets = tomllib.loads((ROOT / "tools/proof/budget.toml").read_text()).get(lane, {})
    total = counts.Counts()
    failures = []
    print()
    for result in results:
        total.add(result.counts)
        failures += result.failures
        print(result.line(budgets.get(result.name)))
    wall = time.monotonic() - began
    cpu = sum(result.cpu_s for result in results)
    print(f"took {wall:.0f} s, and {cpu:.0f} s of CPU time; logs in {LOGS}")
    for name in failures:
        print(f"FAILED {name}")
    if proven:
        proven |= {"lane": lane, "wall_s": round(wall, 1)}
        counts.write_proof(PROOF, proven, results, total, budgets)
    print(total, flush=True)
    return 1 if total.failed or not total.passed else 0


def repeat(chosen, lane, times, load):
    rounds = []
    for number in range(times):
        loaded = bool(load) and number % 2 == 1
        loops = [
            subprocess.Popen(["sh", "-c", "while :; do :; done"])
            for _ in range(load if loaded else 0)
        ]
        try:
            print(
                f"== run {number + 1} of {times}"
                + (f", beside {load} endless loops" if loaded else ""),
                flush=True,
            )
            rounds.append(Run(lane).all(chosen))
        finally:
            for loop in loops:
                loop.kill()
                loop.wait()
        # Twenty runs take hours, so the table is there after each of them.
        table = counts.repetition_table(rounds)
        (TARGET / "repeat.txt").write_text("\n".join(table) + "\n")
        print("\n".join(["", *table]), flush=True)
    return 1 if any(result.failures for results in rounds for result in results) else 0


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--lane", choices=stages.LANES, default=os.environ.get("TEST_LANE", stages.TEST)
    )
    parser.add_argument("--only", default="")
    parser.add_argument("--repeat", type=int, default=0)
    parser.add_argument("--beside", type=int, default=0)
    parser.add_argument("--list", action="store_true")
    return parser.parse_args()


def main():
    asked = arguments()
    os.chdir(ROOT)
    names = [stage.name for stage in stages.STAGES] + ["build"]
    only = [name for name in asked.only.split(",") if name]
    unknown = [name for name in only if name not in names]
    if unknown:
        sys.exit(f"no such stage: {', '.join(unknown)}; there are: {' '.join(names)}")
    chosen = [
        stage
        for stage in stages.STAGES
        if stage.of(asked.lane) and (not only or stage.name in only)
    ]
    if asked.list:
        for stage in chosen:
            print(f"{stage.name:<11} {stage.proves}")
        return 0
    LOGS.mkdir(parents=True, exist_ok=True)
    alone = open(LOGS / "lock", "w")
    try:
        fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit(f"another run of the tests uses {TARGET}: wait for its end, or end it")
    work.end_at_signals()
    began = time.monotonic()
    if asked.lane == stages.TEST and not asked.repeat:
        work.watch(WATCHDOG_S * work.slowness())
    if asked.repeat:
        return repeat(chosen, asked.lane, asked.repeat, asked.beside)
    results, proven = [], None
    if not only:
        PROOF.unlink(missing_ok=True)
        proven = counts.sources() | {"programs": str(BIN)}
    if not only or "build" in only:
        results.append(build())
        if results[0].failures:
            return summary(results, asked.lane, began, proven)
    return summary(results + Run(asked.lane).all(chosen), asked.lane, began, proven)


sys.exit(main())
