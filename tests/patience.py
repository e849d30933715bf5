"""How long a test waits, and which lane runs: the one place for both.

Nothing that a test waits for is judged by its time. A wait ends with an event, or it reaches
PATIENCE_S, which means that it hangs. On a slow host, PENSTOCK_TEST_SLOWNESS multiplies every
patience.
"""

import os
import time

SLOWNESS = float(os.environ.get("PENSTOCK_TEST_SLOWNESS") or 1)
PATIENCE_S = 60 * SLOWNESS
# The longest time of one case, in which it may wait for several things.
CASE_S = 5 * PATIENCE_S

# `test`: the quick proof of correctness. `all`: also the long cases. `perf`: only what judges time,
# rates, shares and memory that the system chooses.
LANE = os.environ.get("TEST_LANE") or "test"
LANES = {"test": ("test",), "all": ("test", "all"), "perf": ("perf",)}


def runs(lane):
    """Returns whether a case of this lane runs now. Each case belongs to one lane."""
    return lane in LANES[LANE]


def wait_for(condition, what, patience_s=PATIENCE_S):
    """Waits until a state that can be asked for is there. `what` is told if it does not come."""
    end = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(what() if callable(what) else what)
        time.sleep(0.02)


def lane(name):
    """Puts a case into a lane; without this it is in `test`."""

    def mark(case):
        case.lane = name
        return case

    return mark


def chosen(cases, words, name_of):
    """Returns the cases that run now: those whose name contains one of the words, whatever their
    lane, or without words those of this lane."""
    if words:
        return [case for case in cases if any(word in name_of(case) for word in words)]
    return [case for case in cases if runs(getattr(case, "lane", "test"))]
