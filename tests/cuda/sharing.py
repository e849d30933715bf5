#!/usr/bin/env python3
"""Several CUDA clients on one device: sharing.py PROGRAM. PROGRAM is built from sharing.cu.

Two clients that both have work must get equal shares. The long queue of one client must not delay
short calls of another.
"""

import subprocess
import sys

SECONDS = 3
ATTEMPTS_MAX = 3
# Bounds of one client's share of the sum of both.
PART_MIN, PART_MAX = 0.40, 0.60
SLOWER_MAX = 10
# Duration of a launch of a busy client, and of a short one. A running kernel is not interrupted, so
# a short call waits at least as long as the former.
BUSY_MS, SHORT_MS = 2, 0.1


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
        words = text.split()
        return {name: float(value) for name, value in zip(words[::2], words[1::2])}


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


def equal_parts(program, busy):
    alone = run(program, ("steady", busy))[0]["rate"]
    rates = [figures["rate"] for figures in run(program, ("steady", busy), ("steady", busy))]
    part = rates[0] / sum(rates)
    return (
        PART_MIN <= part <= PART_MAX,
        f"two clients: {rates[0]:.0f} and {rates[1]:.0f} launches/s ({100 * part:.0f} %), alone {alone:.0f}",
    )


def short_beside_long(program, busy, short):
    # The better of two measurements: a disturbed one would accept any result.
    solo = min(
        (run(program, ("short", short))[0] for _ in range(2)), key=lambda figures: figures["p99_us"]
    )
    beside = run(program, ("queue", busy), ("short", short))[1]
    ratio = beside["p99_us"] / solo["p99_us"]
    return ratio <= SLOWER_MAX, (
        f"short calls: p50 {solo['p50_us']:.0f} us, p99 {solo['p99_us']:.0f} us alone;"
        f" p50 {beside['p50_us']:.0f} us, p99 {beside['p99_us']:.0f} us beside a long queue (x{ratio:.1f}, at most x{SLOWER_MAX})"
    )


def attempted(measure, *arguments):
    """Repeats a measurement. Other load on the host slows one client or the other, so the best of a
    few attempts is what the pool achieves."""
    for attempt in range(1, ATTEMPTS_MAX + 1):
        good, text = measure(*arguments)
        print(
            f"  {'ok  ' if good else 'FAIL' if attempt == ATTEMPTS_MAX else 'once more:'} {text}",
            flush=True,
        )
        if good:
            return True
    return False


def main():
    program = sys.argv[1]
    busy, short = (rounds_of(program, wanted_ms) for wanted_ms in (BUSY_MS, SHORT_MS))
    results = [
        attempted(equal_parts, program, busy),
        attempted(short_beside_long, program, busy, short),
    ]
    failed = results.count(False)
    print(f"sharing: {2 - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
