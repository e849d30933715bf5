#!/usr/bin/env python3
"""Counts the Rust code of each crate, in the working tree or in a commit.

Usage: tools/policy/count.py [--formatted] [COMMIT [COMMIT]]

With one commit, counts that commit. With two, counts both and prints how the second one differs
from the first. The word `tree` names the working tree. Without arguments, counts the working tree.
--formatted has rustfmt format all files first, so that two commits are compared that were formatted
for lines of different widths. That takes about 15 seconds for each commit.

  code    lines of code below `src`, without comments, blank lines, tests and generated code
  words   thousands of words and signs of that code: what does not depend on the width of lines
  unsafe  those lines of code that contain the word `unsafe`, except `#[unsafe(no_mangle)]`
  tests   functions with `#[test]` anywhere in the crate
"""

import io
import re
import subprocess
import sys
import tarfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import chain
from pathlib import Path, PurePath

from rust_source import blank, test_modules, without_comments, without_tests

ROOT = Path(__file__).parent.parent.parent
TREE = "tree"
COLUMNS = ("code", "words", "unsafe", "tests")


def files_of(commit):
    """Returns the Rust files of all crates and their texts."""
    if commit == TREE:
        command = "git ls-files -z --cached --others --exclude-standard crates".split()
        names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        paths = [name for name in names.split("\0") if name.endswith(".rs")]
        return {name: (ROOT / name).read_text() for name in paths if (ROOT / name).is_file()}
    packed = subprocess.run(
        ["git", "archive", "--format=tar", commit, "crates"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        return {
            member.name: archive.extractfile(member).read().decode()
            for member in archive
            if member.isfile() and member.name.endswith(".rs")
        }


def is_generated(name, text):
    return name.startswith(unchecked()) or "@generated" in text[:1000]


@cache
def unchecked():
    policy = tomllib.loads((ROOT / "tools/policy/policy.toml").read_text())
    return tuple(policy["unchecked"])


def formatted(files):
    """Returns the files as rustfmt writes them with the configuration of the working tree."""
    command = ["rustfmt", "--edition", "2024", "--config-path", ROOT, "--emit", "stdout"]

    def one(text):
        done = subprocess.run(command, input=text, capture_output=True, text=True)
        return done.stdout if done.returncode == 0 else text

    with ThreadPoolExecutor() as pool:
        return dict(zip(files, pool.map(one, files.values())))


def count(files):
    """Returns for each crate its figures, in the order of COLUMNS. The words are not rounded."""
    tests = {module for name, text in files.items() for module in test_modules(name, blank(text))}
    figures = {}
    for name, text in files.items():
        # Commits before that of the rooms have all crates in one folder.
        found_at = re.match(r"crates/(?:\w+/)??([\w-]+)/(src|tests|examples|build)\b", name)
        crate, place = found_at.groups()
        found = figures.setdefault(crate, [0] * len(COLUMNS))
        code = blank(text)
        found[3] += len(re.findall(r"#\[test\]", code))
        in_tests = any(name == it or name.startswith(it.removesuffix(".rs") + "/") for it in tests)
        if place != "src" or in_tests or is_generated(name, text):
            continue
        # Literals are code, so they stay: a line of a long string counts.
        shown = without_tests(without_comments(text), code)
        found[0] += lines_with(r"\S", shown)
        found[1] += len(re.findall(r"\w+|[^\w\s]", shown))
        code = re.sub(r"#!?\[unsafe\(.*?\)\]", "", without_tests(code))
        found[2] += lines_with(r"\bunsafe\b", code)
    return figures


def lines_with(pattern, code):
    return sum(1 for line in code.splitlines() if re.search(pattern, line))


def table(commits, prepared):
    """Yields the lines of the table: one per crate, with the figures of the commits in a row."""
    counted = [count(prepared(files_of(commit))) for commit in commits]
    none = [0] * len(COLUMNS)
    rows = [[name, *(it.get(name, none) for it in counted)] for name in sorted({*chain(*counted)})]
    rows.append(["all", *([sum(each) for each in zip(*it.values())] for it in counted)])
    groups = [*commits, "change"] if len(commits) == 2 else commits
    yield " " * 11 + "".join(f"{group[:30]:>34}" for group in groups)
    yield f"{'crate':<11}" + "".join(
        f"{name:>{10 if name == 'code' else 8}}" for name in COLUMNS * len(groups)
    )
    for name, *cells in rows:
        texts = [row(cell, "") for cell in cells]
        if len(cells) == 2:
            texts.append(row([after - before for before, after in zip(*cells)], "+"))
        yield f"{name:<11}" + "".join(texts)


def row(cell, sign):
    code, words, unsafe, tests = cell
    return f"{code:{sign}10}{words / 1000:{sign}8.1f}{unsafe:{sign}8}{tests:{sign}8}"


def main():
    options = [word for word in sys.argv[1:] if word.startswith("-")]
    commits = [word for word in sys.argv[1:] if word not in options] or [TREE]
    if len(commits) > 2 or options not in ([], ["--formatted"]):
        sys.exit(__doc__)
    for line in table(commits, formatted if options else dict):
        print(line)


if __name__ == "__main__":
    main()
