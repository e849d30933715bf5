#!/usr/bin/env python3
"""Plants one failing case into each command of each stage, and one that hangs, and demands that
`make test-all` goes red for each.

    tools/proof/planted.py [STAGE...]

Prints one line per stage and plant; the last line counts them. With TEST_PLANT a runner runs the
planted case in place of all others, and a command that is one case fails in its place.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import stages

ROOT = Path(__file__).resolve().parent.parent.parent
PLANTS = ("all", "all:hang")
STAGE = re.compile(
    r"^(\S+) +[\d.]+ s +[\d.]+ s of CPU time +(\d+) passed, (\d+) failed, (\d+) skip"
)


def planted(chosen, plant):
    """Runs the stages with a plant. Returns the counts of each, the failed cases, and the code."""
    command = ["tools/test.sh", "--lane", stages.ALL, "--only", ",".join(chosen)]
    ended = subprocess.run(
        command, env=os.environ | {"TEST_PLANT": plant}, capture_output=True, text=True, check=False
    )
    found, failed = {}, []
    for line in ended.stdout.splitlines():
        if match := STAGE.match(line):
            found[match[1]] = tuple(map(int, match.groups()[1:]))
        elif line.startswith("FAILED "):
            failed.append(line.removeprefix("FAILED "))
    return found, failed, ended.returncode


def main():
    os.chdir(ROOT)
    table = {stage.name: stage.of(stages.ALL) for stage in stages.STAGES}
    chosen = sys.argv[1:] or [name for name, commands in table.items() if commands]
    if not set(chosen) <= set(table):
        sys.exit(f"there are these stages: {' '.join(table)}")
    good = bad = 0
    for plant in PLANTS:
        found, failed, code = planted(chosen, plant)
        verdicts = {}
        for name in chosen:
            # Exactly the planted cases must have failed.
            wanted, seen = (0, len(table[name]), 0), found.get(name)
            verdicts[name] = None if seen == wanted else f"{wanted} was wanted, and {seen} came"
        cases = {it.case for name in chosen for it in table[name] if it.case}
        others = [name for name in failed if "planted" not in name and name not in cases]
        verdicts["names"] = f"these failed: {', '.join(others)}" if others else None
        verdicts["exit code"] = None if code == 1 else f"it was {code}"
        for name, why in verdicts.items():
            good, bad = good + (why is None), bad + (why is not None)
            print(f"{'FAIL' if why else 'ok':<4} planted/{name}: {plant}  {why or ''}".rstrip())
    print(f"{good} passed, {bad} failed, 0 skipped")
    return 1 if bad else 0


sys.exit(main())
