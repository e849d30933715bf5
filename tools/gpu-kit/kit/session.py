"""One run of the kit: its clock, what it has found, and its files."""

import os
import shutil
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

from kit import driver, report
from kit.process import Program, end_group

# Time that is kept for the end: stopping daemons and writing the report.
END_S = 6
# After this time beyond its limit, a step that hangs ends the run.
HANG_S = 20
# All limits together, as a multiple of the time of the run.
LIMITS_OF_TIME = 1.8
LOGS_BYTES_MAX = 15 << 20


class Session:
    def __init__(self, root, arguments):
        self.root, self.arguments = root, arguments
        self.began = time.monotonic()
        self.deadline = self.began + 60 * arguments.minutes - END_S
        self.scale = 1.0
        self.step_deadline, self.step = self.deadline, None
        self.output = arguments.output.resolve()
        self.output.mkdir(parents=True, exist_ok=True)
        # A short path: the names of sockets are short.
        self.work = Path(tempfile.mkdtemp(prefix="gpu-kit."))
        self.lock = threading.Lock()
        self.items, self.facts, self.steps, self.pools, self.programs = [], {}, [], [], []
        self.logs_bytes = 0
        (self.output / "logs.txt").write_text("")
        self.cores = len(os.sched_getaffinity(0))
        self.driver = driver.find_driver(root, arguments.driver, arguments.driver_nodes)
        # The highest level of confinement at which the driver works; the first step finds it.
        self.confine = "full"

    # -- time

    def left(self):
        """Returns the seconds that the step has left."""
        return max(0.0, min(self.step_deadline, self.deadline) - time.monotonic())

    # -- programs

    def run(self, steps):
        wanted = self.arguments.only or [step.name for step in steps]
        chosen = [step for step in steps if step.name in wanted]
        # Fewer steps have more time each.
        limits = sum(step.limit_s for step in chosen)
        self.scale = LIMITS_OF_TIME * 60 * self.arguments.minutes / limits
        for step in chosen:
            self.run_step(step)
        return self.end()

    def run_step(self, step):
        began = time.monotonic()
        self.step = step.name
        # What a step leaves is there for the others.
        self.step_deadline = began + step.limit_s * self.scale
        row = {"name": step.name, "what": step.what, "limit_s": round(step.limit_s * self.scale)}
        self.steps.append(row)
        if self.left() < step.least_s:
            row.update(verdict="skip", seconds=0, note="too little time")
            self.say(f"skip {step.name}: too little time")
            return
        thread = threading.Thread(target=self.guarded, args=(step, row), daemon=True)
        thread.start()
        thread.join(self.left() + HANG_S)
        if thread.is_alive():
            row.update(verdict="FAIL", note="the step did not end")
            self.end_programs()
            thread.join(2)
        for pool in list(self.pools):
            pool.stop()
        row["seconds"] = round(time.monotonic() - began, 1)
        counts = self.counts(step.name)
        row.setdefault("verdict", "FAIL" if counts.get("FAIL") else "ok")
        row["counts"] = counts
        said = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
        self.say(
            f"{row['verdict']:<4} {step.name:<11} {row['seconds']:>6.1f} s  {said}"
            f"{'  ' + row['note'] if row.get('note') else ''}"
        )
        report.write(self)

    def guarded(self, step, row):
        try:
            step.work(self)
        except Exception as error:  # noqa: BLE001  A fault of the kit ends one step only.
            row.update(verdict="FAIL", note=f"{type(error).__name__}: {error}"[:300])
            self.keep_log(f"fault of the step {step.name}", traceback.format_exc())

    def program(self, name, command, env, folder=None, **more):
        with self.lock:
            log = self.work / f"{len(self.programs)}.log"
            program = Program(command, env, log, folder or self.work, **more)
            self.programs.append(program)
        program.name = name
        return program

    def command(self, name, command, env, limit_s, folder=None):
        """Runs a program to its end, within its own limit and that of the step, and keeps its
        log."""
        program = self.program(name, command, env, folder)
        result = program.wait(min(limit_s, self.left()))
        self.keep_log(f"{self.step}: {name}: {result.why()}, {result.seconds:.1f} s", result.text)
        return result

    def end_programs(self):
        for program in self.programs:
            if program.process and program.process.poll() is None:
                end_group(program.process)

    # -- what was found

    def item(self, name, verdict, note="", **more):
        """Notes a finding: `ok`, `FAIL`, `skip`, `info` or `lacks`."""
        row = {"step": self.step, "name": name, "verdict": verdict, "note": note, **more}
        with self.lock:
            self.items.append(row)
        return row

    def judged(self, name, result, note=None, **more):
        """Notes the result of a program."""
        if result.code == 77:
            return self.item(name, "skip", result.last(), seconds=round(result.seconds, 2), **more)
        verdict = "ok" if result.is_good else "FAIL"
        if not result.is_good:
            more.setdefault("tail", result.tail())
        note = note if note is not None else (result.last() if result.is_good else result.why())
        return self.item(
            name, verdict, note, code=result.code, seconds=round(result.seconds, 2), **more
        )

    def counts(self, step):
        counts = {}
        for item in self.items:
            if item["step"] == step:
                counts[item["verdict"]] = counts.get(item["verdict"], 0) + 1
        return counts

    # -- files

    def vendors(self, *names):
        """Returns a folder for the ICD loader with these drivers."""
        folder = self.work / ("vendors-" + "-".join(sorted(names)))
        libraries = {
            "nvidia": self.driver.opencl,
            "pocl": self.root / "lib/pocl/libpocl.so.2",
            "penstock": self.root / "lib/libpenstock_opencl.so",
        }
        with self.lock:
            if not folder.exists():
                folder.mkdir()
                for name in names:
                    library = libraries[name]
                    if library and library.exists():
                        (folder / f"{name}.icd").write_text(f"{library}\n")
        return folder

    def keep_log(self, title, text):
        with self.lock:
            data = f"\n===== {title}\n{text}\n".encode(errors="replace")
            if self.logs_bytes + len(data) <= LOGS_BYTES_MAX:
                self.logs_bytes += len(data)
                with open(self.output / "logs.txt", "ab") as out:
                    out.write(data)

    def say(self, line):
        print(f"[{time.monotonic() - self.began:5.0f} s] {line}", flush=True)

    def end(self):
        self.end_programs()
        report.write(self)
        shutil.rmtree(self.work, ignore_errors=True)
        print(report.summary(self), flush=True)
        sys.stdout.flush()
        # Threads of a step that hangs must not keep the process.
        os._exit(1 if any(row.get("verdict") == "FAIL" for row in self.steps) else 0)
