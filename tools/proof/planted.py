#!/usr/bin/env python3
"""Plants one failing case into each runner of each stage, and one that hangs, and
demands that `make test` would go red for it.

    tools/proof/planted.py [STAGE...]

Prints one line per planted case; the last line counts them. With TEST_PLANT a runner runs the
planted case in place of all others.
"""

import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import counts
import stages
import work

ROOT = Path(__file__).resolve().parent.parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
# A planted hang must be ended by the limit of its case long before this.
LIMIT_S = 300


def told(command, plant):
    """Runs a runner with a planted case. Returns its tally and how it ended."""
    with tempfile.TemporaryDirectory() as folder:
        tally = Path(folder, "tally")
        environment = {
            "TEST_TALLY": str(tally),
            "TEST_LANE": stages.TEST,
            "TEST_LOGS": folder,
            "TEST_PLANT": plant,
            "PENSTOCK_BIN": os.environ.get("PENSTOCK_BIN", str(TARGET / "proof")),
        }
        ended = work.Job(
            plant, command.words, LIMIT_S, environment | command.environment, lambda _: None
        ).finish()
        return counts.read(tally), ended


def verdict(tally, ended):
    """Returns what is wrong, or None: exactly the planted case must have failed."""
    if ended.hang:
        return ended.hang[0]
    if tally.complaint():
        return tally.complaint()
    if tally.counts.failed != 1:
        return f"{tally.counts.failed} failures are in the tally"
    if "planted" not in tally.failures[0]:
        return f"the failure has another name: {tally.failures[0]}"
    return None if ended.code else "the runner ended with code 0"


def main():
    os.chdir(ROOT)
    names = [stage.name for stage in stages.STAGES]
    chosen = sys.argv[1:] or names
    if not set(chosen) <= set(names):
        sys.exit(f"there are these stages: {' '.join(names)}")
    good = bad = 0
    seen = set()
    for stage in stages.STAGES:
        for command in stage.commands.get(stages.TEST, []) + stage.commands.get(stages.ALL, []):
            script = command.words[0]
            if stage.name not in chosen or command.case or script in seen:
                continue
            seen.add(script)
            for plant in ("all", "all:hang"):
                why = verdict(*told(command, plant))
                good, bad = good + (why is None), bad + (why is not None)
                verdict_word = "FAIL" if why else "ok"
                print(f"{verdict_word:<4} planted/{stage.name}: {script} {plant}  {why or ''}")
    print(f"{good} passed, {bad} failed, 0 skipped")
    return 1 if bad else 0


sys.exit(main())
