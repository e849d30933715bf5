#!/usr/bin/env python3
"""Runs the commands that the documents show, and compares what they print.

    tests/documents/run.py [--show] [DOCUMENT...]

Installs the build into a scratch directory, so that the commands find what `make install` leaves,
and runs the blocks of each document in one shell with a home directory of its own. The devices are
those of this host, on an embedded daemon or on daemons that the document starts. blocks.py says how
a block is written. Prints one line for each block. --show prints what each command printed.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from blocks import Block, Command, WrongDocument, blocks_of, differences, fits

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent))
from patience import CASE_S, PATIENCE_S
from processes import tree
from tally import Skipped, Tally

TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
BIN = Path(os.environ.get("PENSTOCK_BIN", TARGET / "release")).resolve()
# What would make a command depend on the person who runs the test.
FOREIGN = (
    "PENSTOCK_",
    "SLURM_",
    "MAKE",
    "MFLAGS",
    "WTR_",
    "OCL_",
    "OPENCL_",
    "CUDA_",
    "POCL_",
    "LD_",
    "XDG_",
    "LC_",
)
MARK = "\x01"


class Place:
    """A scratch directory with an installed Penstock."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-documents."))
        self.prefix = self.folder / "prefix"
        subprocess.run(
            ["make", "--no-print-directory", "-s", "install", f"PREFIX={self.prefix}"]
            + [f"PROFILE={BIN.name}", f"CARGO_TARGET_DIR={BIN.parent}"],
            cwd=ROOT,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        self.count = 0

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def home(self):
        """Makes a home directory for one document. Returns it and the environment of its shell."""
        self.count += 1
        home = self.folder / f"home-{self.count}"
        (home / "run").mkdir(parents=True, mode=0o700)
        env = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        env |= {
            "HOME": str(home),
            "XDG_RUNTIME_DIR": str(home / "run"),
            "PATH": f"{self.prefix}/bin:{env['PATH']}",
            "LD_LIBRARY_PATH": f"{self.prefix}/lib",
            "PKG_CONFIG_PATH": f"{self.prefix}/lib/pkgconfig",
            "MANPATH": f"{self.prefix}/share/man:",
            # What the hidden commands of a document may use.
            "ROOT": str(ROOT),
            "PREFIX": str(self.prefix),
            "LC_ALL": "C.UTF-8",
        }
        return home, env


def script_of(blocks, places):
    """Returns the shell script that runs the blocks of one document. `places` tells what stands for
    a path of the documents."""
    lines = []
    for b, block in enumerate(blocks):
        if block.not_run:
            continue
        for name, content in block.files.items():
            end = f"end-of-{name.replace('/', '-')}"
            lines.append(f"cat >{name} <<'{end}'\n{content}{end}")
        for before in block.before:
            lines += step(f"{b} before", before)
        for c, command in enumerate(block.commands):
            lines += step(f"{b} {c}", text_of(command, f"{b}-{c}"))
    # The jobs are the daemons that the document has started.
    script = "\n".join([*lines, "kill $(jobs -p) 2>/dev/null", "wait", ""])
    for shown, here in places.items():
        script = script.replace(shown, here)
    return script


def step(name, text):
    return [
        f"printf '\\n{MARK}begin {name}{MARK}\\n'",
        text,
        f"printf '\\n{MARK}end {name} %s{MARK}\\n' $?",
    ]


def text_of(command, name):
    if not command.is_in_background:
        return command.text
    # The output of a job is shown as soon as it has as many lines as the document shows.
    wanted = sum(1 for line in command.printed if line.strip() not in ("", "..."))
    out = f"$XDG_RUNTIME_DIR/job-{name}"
    return (
        f"{{ {command.text}\n}} >{out} 2>&1\n"
        f"for ((tries = 0; tries < {PATIENCE_S * 20:.0f}; tries++)); do\n"
        f'    [ "$(wc -l <{out})" -ge {wanted} ] && break; sleep 0.05\n'
        f"done; cat {out}"
    )


def run(blocks, place):
    """Runs the blocks of one document. Returns {name of the step: (output, status or None)}."""
    home, env = place.home()
    places = {
        "/usr/local": str(place.prefix),
        "/run/user/1000": str(home / "run"),
        "/home/user": str(home),
    }
    script = home / "run/script"
    script.write_text(script_of(blocks, places))
    with open(home / "run/output", "w+b") as output:
        shell = subprocess.Popen(
            ["bash", "--norc", "--noprofile", script],
            cwd=home,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            shell.wait(CASE_S)
        except subprocess.TimeoutExpired:
            for pid in [*tree(shell.pid), shell.pid]:
                os.kill(pid, signal.SIGKILL)
            shell.wait()
        output.seek(0)
        text = output.read().decode(errors="replace")
    for shown, here in places.items():
        text = text.replace(here, shown)
    found = {}
    for part in re.split(f"{MARK}begin ", text)[1:]:
        name, _, rest = part.partition(f"{MARK}\n")
        printed, _, end = rest.partition(f"{MARK}end {name} ")
        status = re.match(r"\d+", end)
        found[name] = (printed, int(status[0]) if status else None)
    return found


def judge(b, block, found, show):
    """Returns what is wrong with a block, as lines; none if all commands did what it shows."""
    for step_, text in [("before", text) for text in block.before]:
        printed, status = found.get(f"{b} {step_}", ("", None))
        if status != 0:
            return [f"the hidden command `{text}` ended with {status}", *printed.splitlines()]
    for c, command in enumerate(block.commands):
        printed, status = found.get(f"{b} {c}", ("", None))
        wanted = block.status if c == len(block.commands) - 1 else 0
        if show:
            print("\n".join(f"        > {line}" for line in [command.text, *printed.splitlines()]))
        if status is None:
            return [
                f"`{command.text}` did not end, or an earlier one did not",
                *printed.splitlines(),
            ]
        if status != wanted:
            return [f"`{command.text}` ended with {status}, not {wanted}", *printed.splitlines()]
        if not fits(command, printed, block.varies):
            difference = differences(command, printed, block.varies)
            return [f"`{command.text}` prints something else:", *difference]
    return []


def read(path):
    """Returns the name and the blocks of a document, or why they cannot be read."""
    name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path.name
    try:
        return name, blocks_of(path.read_text()), ""
    except WrongDocument as wrong:
        return name, [Block(0, [], [], [])], str(wrong)


def check(document, place, show, count):
    """Checks one document, with one case for each block. The first one runs them all."""
    name, blocks, wrong = document
    found = None
    for b, block in enumerate(blocks):
        lines = [wrong] if wrong else []
        with count.case(f"documents/{name}:{block.line}", CASE_S + PATIENCE_S):
            if block.not_run:
                raise Skipped(block.not_run)
            if not wrong:
                found = found or run(blocks, place)
                lines = judge(b, block, found, show)
            assert not lines, lines[0]
        for line in lines[1:]:
            print(f"        | {line}")


def documents():
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    paths = [ROOT / name for name in listed.splitlines()]
    return [path for path in paths if path.exists() and "```console" in path.read_text()]


def notices_a_change(place):
    """Checks that a document with another output, or with another status, does not pass."""
    wrong = [Command("echo yes", ["no"])], [Command("false")], [Command("echo yes")]
    right = [Command("echo 'yes  1.5'", ["yes 2.5"])], [Command("seq 9", ["1", "...", "9"])]
    varies = [re.compile(r"\d\.\d")]
    blocks = [Block(1, commands, [], varies) for commands in (*wrong, *right)]
    found = run(blocks, place)
    verdicts = [not judge(b, block, found, False) for b, block in enumerate(blocks)]
    return verdicts == [False, False, False, True, True]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--show", action="store_true", help="print what each command printed")
    parser.add_argument("document", nargs="*", type=Path)
    options = parser.parse_args()
    if not (BIN / "penstock").exists():
        sys.exit(f"no penstock in {BIN}: run `make build` first")
    paths = [path.resolve() for path in options.document] or documents()
    read_ones = [read(path) for path in paths]
    count = Tally("documents")
    count.plan(1 + sum(len(blocks) for _, blocks, _ in read_ones))
    place = Place()
    try:
        with count.case("documents/a changed output is noticed"):
            assert notices_a_change(place)
        for document in read_ones:
            check(document, place, options.show, count)
    finally:
        place.close()
    return count.end()


sys.exit(main())
