#!/usr/bin/env python3
"""Traces: what the client sent is what the worker received, a replay gets the same answers, and a
wrong answer is found.

    tests/trace/run.py

Runs the program matmul on an embedded daemon with PENSTOCK_TRACE. Prints one line per case.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from patience import PATIENCE_S, wait_for
from tally import Tally

TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
BIN = Path(os.environ.get("PENSTOCK_BIN", TARGET / "release")).resolve()
PROGRAMS = Path(os.environ.get("PENSTOCK_PROGRAMS", TARGET / "programs")).resolve()
PENSTOCK = BIN / "penstock"
# Sizes of the format, from crates/pool/wire/src/trace.rs.
FILE_HEADER_BYTES = 26
RECORD_HEADER_BYTES = 18
FRAME_HEADER_BYTES = 16
RECEIVED, RECEIVED_PAYLOAD = 4, 5
REPLY, READ_DATA = 0x8000, 0x8002


class Place:
    """A scratch directory, with an environment that names no pool."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-trace."))
        self.env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PENSTOCK_", "SLURM_"))
        }
        self.env |= {
            "HOME": str(self.folder),
            "XDG_RUNTIME_DIR": str(self.folder),
            # What these tests check does not depend on it, and drivers compile less.
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")),
            "PENSTOCK_LIB": str(BIN / "libpenstock_opencl.so"),
        }

    def call(self, *arguments, **variables):
        """Runs penstock. Returns its exit status, standard output and standard error."""
        done = subprocess.run(
            [PENSTOCK, *arguments],
            env=self.env | variables,
            cwd=self.folder,
            timeout=PATIENCE_S,
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stdout, done.stderr

    def record(self, name, *program, **variables):
        """Runs a program with traces. Returns the traces of the client and of its worker."""
        path = self.folder / name
        status, out, err = self.call("run", "--", *program, PENSTOCK_TRACE=str(path), **variables)
        assert status == 0, f"{program} ended with {status}: {out}{err}"
        # The program may end before the worker has written its trace. The guard of `penstock run`
        # removes the directory of the run when the daemon and its workers have ended.
        wait_for(
            lambda: not any((self.folder / "penstock").glob("run-*")),
            "the daemon of the run did not end",
        )
        files = sorted(self.folder.glob(f"{name}.*"))
        by_writer = {}
        for file in files:
            events = self.show(file)
            if any(event["event"] in ("sent", "received") for event in events):
                by_writer[events[0]["writer"]] = file
        assert set(by_writer) == {"client", "worker"}, f"{len(files)} traces: {by_writer}"
        return by_writer["client"], by_writer["worker"]

    def show(self, *files):
        status, out, err = self.call("trace", "show", "--json", "--payload", *map(str, files))
        assert status == 0, err
        return [json.loads(line) for line in out.splitlines()]


def frames(events, direction):
    keys = ("call", "fields", "waits", "payload_bytes", "payload")
    return [{key: event[key] for key in keys} for event in events if event["event"] == direction]


def names(frame):
    """Returns the request and the event that a call names, and by which its answer names them."""
    fields = frame["fields"]
    return {(key, fields[key]) for key in ("request", "event") if fields.get(key)}


def assert_begins_with(sent, taken, who):
    """Asserts that the frames that one side took are the first that the other side sent."""
    assert len(taken) <= len(sent), f"{who} {len(taken)} frames of {len(sent)}: {taken[len(sent)]}"
    for at, (one, other) in enumerate(zip(sent, taken)):
        assert one == other, f"{who} {other} as frame {at} in place of {one}"


def both_sides_tell_the_same(place, client, worker):
    client, worker = place.show(client), place.show(worker)
    sent, received = frames(client, "sent"), frames(worker, "received")
    assert len(sent) > 20, f"only {len(sent)} calls"
    calls = {frame["call"] for frame in sent}
    assert {"LaunchKernel", "CreateBuffer", "Finish"} & calls, calls
    # The worker may end before it has received the last calls of a program that ends.
    assert_begins_with(sent, received, "the worker received")
    answers, taken = frames(worker, "sent"), frames(client, "received")
    # It has received each call whose answer the client has.
    answered = [names(frame) for frame in taken]
    last = max(at for at, frame in enumerate(sent) if any(names(frame) & it for it in answered))
    assert last > 10, f"the last call with an answer is call {last}"
    assert len(received) > last, f"the worker's trace has only {len(received)} of {last + 1} calls"
    assert_begins_with(answers, taken, "the client received")


def text_is_in_the_order_of_time(place, client, worker):
    status, out, err = place.call("trace", "show", str(client), str(worker))
    assert status == 0, err
    lines = out.splitlines()
    times = [float(line.split()[0]) for line in lines]
    assert times == sorted(times)
    launches = [line for line in lines if " LaunchKernel " in line]
    assert any(" client " in line and " -> " in line for line in launches), lines[:5]
    assert any(" worker " in line and " <- " in line for line in launches), lines[:5]
    status, out, _ = place.call("trace", "show", "--call", "LaunchKernel", str(client))
    assert status == 0 and out and all(" LaunchKernel " in line for line in out.splitlines())


def a_replay_gets_the_same_answers(place, client, _):
    status, out, err = place.call("trace", "replay", str(client))
    assert status == 0 and out.rstrip().endswith("0 differ"), f"{status}: {out}{err}"
    compared = int(out.split("; ")[1].split()[0])
    assert compared > 3, out


def records(data):
    """Returns position, kind and content position and size of each record."""
    at = FILE_HEADER_BYTES
    while at + RECORD_HEADER_BYTES <= len(data):
        kind = int.from_bytes(data[at : at + 2], "little")
        size = int.from_bytes(data[at + 14 : at + 18], "little")
        yield at, kind, at + RECORD_HEADER_BYTES, size
        at += RECORD_HEADER_BYTES + size


def a_wrong_answer_is_found(place, client, _):
    data = bytearray(client.read_bytes())
    opcode = lambda at: int.from_bytes(data[at : at + 2], "little")
    last, changed = None, 0
    for _, kind, at, size in records(bytes(data)):
        if kind == RECEIVED:
            last = opcode(at)
        elif kind == RECEIVED_PAYLOAD and last == READ_DATA and not changed:
            data[at + size // 2] ^= 1
            changed += 1
    if not changed:
        # Without a read the status of a reply is changed.
        for _, kind, at, _ in records(bytes(data)):
            if kind == RECEIVED and opcode(at) == REPLY and not changed:
                data[at + FRAME_HEADER_BYTES + 8] ^= 1
                changed += 1
    assert changed, "the trace has neither a read nor a reply"
    wrong = place.folder / "wrong"
    wrong.write_bytes(data)
    status, out, err = place.call("trace", "replay", str(wrong))
    assert status == 1 and "; 1 differ\n" in out, f"{status}: {out}{err}"
    assert "in the trace" in out.splitlines()[1], out


def a_trace_that_was_cut_off_is_shown(place, client, _):
    data = client.read_bytes()
    cut = place.folder / "cut"
    cut.write_bytes(data[: len(data) // 2 + 1])
    status, out, err = place.call("trace", "show", str(cut))
    assert status == 0 and out and "was interrupted" in err, f"{status}: {err}"


def what_is_no_trace_is_refused(place, client, worker):
    other = place.folder / "other"
    other.write_text("hello")
    for arguments, reason in [
        (("show", str(other)), "not a trace"),
        (("replay", str(worker)), "trace of a worker"),
        (("show", str(place.folder / "absent")), "cannot read"),
    ]:
        status, out, err = place.call("trace", *arguments)
        assert status in (1, 2) and reason in err and not out, f"{status}: {out}{err}"


def payloads_can_be_left_out(place, *_):
    client, _ = place.record("short", PROGRAMS / "matmul", "--n", "256", PENSTOCK_TRACE_PAYLOAD="4")
    events = [event for event in place.show(client) if event.get("payload_bytes", 0) > 4]
    assert events and all(len(event["payload"].split()) <= 4 for event in events)
    status, _, err = place.call("trace", "replay", str(client))
    assert status == 2 and "PENSTOCK_TRACE_PAYLOAD" in err, f"{status}: {err}"


def an_empty_variable_traces_nothing(place, *_):
    before = set(place.folder.iterdir())
    status, _, err = place.call("run", "--", "true", PENSTOCK_TRACE="")
    assert status == 0, err
    files = [path for path in set(place.folder.iterdir()) - before if path.is_file()]
    assert not files, files


def a_trace_that_cannot_be_written_stops_nothing(place, *_):
    status, _, err = place.call(
        *("run", "--", str(PROGRAMS / "matmul"), "--n", "256"),
        PENSTOCK_TRACE=str(place.folder / "absent/t"),
    )
    assert status == 0 and "the trace" in err, f"{status}: {err}"


CASES = [
    both_sides_tell_the_same,
    text_is_in_the_order_of_time,
    a_replay_gets_the_same_answers,
    a_wrong_answer_is_found,
    a_trace_that_was_cut_off_is_shown,
    what_is_no_trace_is_refused,
    payloads_can_be_left_out,
    an_empty_variable_traces_nothing,
    a_trace_that_cannot_be_written_stops_nothing,
]


def main():
    if not PENSTOCK.exists():
        sys.exit(f"no penstock in {BIN}: run `make build` first")
    place, count = Place(), Tally("trace")
    count.plan(1 + len(CASES))
    traces = ()
    try:
        with count.case("trace/a program is traced"):
            traces = place.record("t", PROGRAMS / "matmul", "--n", "256", "--slice", "32")
        for case in CASES:
            with count.case(f"trace/{case.__name__.replace('_', ' ')}"):
                assert traces, "there are no traces"
                case(place, *traces)
    finally:
        shutil.rmtree(place.folder, ignore_errors=True)
    return count.end()


if __name__ == "__main__":
    sys.exit(main())
