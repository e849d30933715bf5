#!/usr/bin/env python3
"""Several CUDA clients on one device: sharing.py PROGRAM. PROGRAM is built from sharing.cu.

Two clients that both have work must get equal shares. The long queue of one client must not delay
short calls of another.

Both figures compare what happened at the same time, because other load on the host changes
everything that is measured one after the other.
"""

import statistics
import subprocess
import sys

# Eleven slices of sharing.cu, and a first one in which one client starts before the other.
SECONDS = 6
SLICE_S = 0.5
# One client's part of the launches of both, in the median slice. tests/cuda/run.sh has all processes
# run on one core, where the kernel gives equal time to all threads that have work. If one client had
# two turns for each turn of the other, its part would be 0.33 or 0.67, and these bounds are nearer
# to equal parts than that. The parts of single slices were 0.45 to 0.53 at a load of 17.
PART_MIN, PART_MAX = 0.42, 0.58
# Duration of a launch of a busy client, and of a short one. A running kernel is not interrupted, so
# a short call waits at least as long as the former.
BUSY_MS, SHORT_MS = 2, 0.1
# Number of launches in the long queue: see sharing.cu.
QUEUE = 100
# Longest time of a short call, in the time that the queue needs to become empty. A call that waited
# behind the queue would take one of these. A call that has its turn waits for one launch or two,
# which are 0.02.
P50_MAX, P99_MAX = 0.1, 0.5


class Client:
    def __init__(self, program, kind, rounds):
        self.process = subprocess.Popen(
            [program, kind, str(SECONDS), str(rounds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def until_ready(self):
        for line in self.process.stdout:
            if line.strip() == "ready":
                return self
        sys.exit("a client ended before it was ready")

    def start(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def figures(self):
        text, _ = self.process.communicate(timeout=60)
        if self.process.returncode != 0:
            sys.exit(f"a client ended with code {self.process.returncode}: {text}")
        return text.split()


def rounds_of(program, wanted_ms):
    done = subprocess.run(
        [program, "measure", str(wanted_ms)], capture_output=True, text=True, timeout=60
    )
    if done.returncode != 0:
        sys.exit(f"measuring failed: {done.stdout}{done.stderr}")
    return int(done.stdout.split()[1])


def run(program, *kinds):
    """Runs several clients, given as pairs of kind and rounds. All are ready before any of them
    starts."""
    clients = [Client(program, kind, rounds).until_ready() for kind, rounds in kinds]
    for client in clients:
        client.start()
    return [client.figures() for client in clients]


def counts(words):
    """Returns the number of launches that ended in each slice but the first."""
    return [int(count) for count in words[3::2]]


def equal_parts(program, busy):
    both = [counts(words) for words in run(program, ("steady", busy), ("steady", busy))]
    parts = [one / (one + other) for one, other in zip(*both) if one + other]
    part = statistics.median(parts) if parts else 0
    rates = [statistics.median(it) / SLICE_S for it in both]
    return PART_MIN <= part <= PART_MAX, (
        f"two clients: {rates[0]:.0f} and {rates[1]:.0f} launches/s;"
        f" {100 * part:.0f} % in the median slice, {100 * min(parts, default=0):.0f} to"
        f" {100 * max(parts, default=0):.0f} % in others"
    )


def short_beside_long(program, busy, short):
    queue, words = run(program, ("queue", busy), ("short", short))
    ended = sum(counts(queue))
    if not ended:
        return False, "no launch of the long queue ended"
    queue_us = QUEUE * len(counts(queue)) * SLICE_S / ended * 1e6
    figures = {name: float(value) for name, value in zip(words[::2], words[1::2])}
    p50, p99 = figures["p50_us"], figures["p99_us"]
    return p50 <= P50_MAX * queue_us and p99 <= P99_MAX * queue_us, (
        f"short calls: p50 {p50:.0f} us, p99 {p99:.0f} us beside a queue of {queue_us:.0f} us"
        f" ({p50 / queue_us:.3f} and {p99 / queue_us:.3f}, at most {P50_MAX} and {P99_MAX})"
    )


def main():
    program = sys.argv[1]
    busy, short = (rounds_of(program, wanted_ms) for wanted_ms in (BUSY_MS, SHORT_MS))
    results = [equal_parts(program, busy), short_beside_long(program, busy, short)]
    for good, text in results:
        print(f"  {'ok  ' if good else 'FAIL'} {text}", flush=True)
    failed = [good for good, _ in results].count(False)
    print(f"sharing: {2 - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
