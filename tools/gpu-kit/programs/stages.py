"""Stages of a program of a framework: each prints its name, "ok" or "FAIL", and its result."""

import sys
import time
import traceback


def run(stages):
    """Runs the stages whose names are on the command line, or all. A stage that fails does not end
    the others."""
    wanted = sys.argv[1:] or list(stages)
    failed = 0
    for name in wanted:
        began = time.monotonic()
        try:
            result = stages[name]()
            print(f"STAGE\t{name}\tok\t{time.monotonic() - began:.2f}\t{result}", flush=True)
        except Exception as error:  # noqa: BLE001  A stage may fail in any way.
            failed += 1
            text = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            print(f"STAGE\t{name}\tFAIL\t{time.monotonic() - began:.2f}\t{text}", flush=True)
            traceback.print_exc()
    sys.exit(1 if failed else 0)
