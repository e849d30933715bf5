"""Finds sequences of equal lines of code in different places.

Lines are compared by their tokens: comments, blank lines and spaces do not count. Left out are
imports, directives, attributes, tests, signatures of Rust functions, and lines without a word, such
as closing braces. Two lines are equal only if all their names and literals are equal.

The part [repetition-explained] of policy.toml explains repetitions that are there on purpose.
"""

import re
from dataclasses import dataclass

import c_source
from rust_source import body_of, with_blanks, without_comments, without_tests

TOKEN = re.compile(r"\w+|\"(?:\\.|[^\"\\])*\"|[^\w\s]", re.DOTALL)
USE = re.compile(r"(?:pub(?:\([^)]*\))?\s+)?use\s")


@dataclass
class Repetition:
    """A sequence of `length` lines of code at `there` and at `here`: pairs of a file's name and the
    number of its first line."""

    length: int
    there: tuple
    here: tuple


def lines_of(text, code):
    """Returns the lines of code that count, as pairs of a line's number and its tokens."""
    shown = without_signatures(without_tests(without_comments(text), code), code)
    found, in_import = [], False
    for number, line in enumerate(shown.splitlines(), 1):
        stripped = line.strip()
        in_import = in_import or bool(USE.match(stripped))
        if in_import:
            in_import = not stripped.endswith(";")
        elif re.search(r"\w", stripped) and not stripped.startswith(("#[", "#![")):
            found.append((number, " ".join(TOKEN.findall(stripped))))
    return found


def lines_of_c(text):
    return plain_lines(c_source.without_comments(text), ("#",))


def lines_of_python(text):
    # The last lines of a program only call it.
    return plain_lines(text.partition("\nif __name__ ==")[0], ("#", "import ", "from "))


def plain_lines(text, left_out):
    """Like `lines_of`. Leaves out the lines that begin with one of `left_out`."""
    stripped = ((number, line.strip()) for number, line in enumerate(text.splitlines(), 1))
    return [
        (number, " ".join(TOKEN.findall(line)))
        for number, line in stripped
        if re.search(r"\w", line) and not line.startswith(left_out)
    ]


def without_signatures(text, code):
    """Returns `text` with the signatures of functions blanked, from `fn` to the body."""
    spans, at = [], 0
    for match in re.finditer(r"\bfn\s+\w+", code):
        body = body_of(code, match.end())
        if body is not None and match.start() >= at:
            spans.append((match.start(), body))
            at = body
    return with_blanks(text, spans)


def repetitions(files, least):
    """Yields the sequences of at least `least` equal lines that stand in two places.

    `files` maps a name to its lines. A part of a longer sequence is not reported again. A third
    place is reported with the first one.
    """
    seen = {}
    for name in sorted(files):
        lines, at = files[name], 0
        while at + least <= len(lines):
            key = tuple(tokens for _, tokens in lines[at : at + least])
            there, start = seen.setdefault(key, (name, at))
            if (there, start) == (name, at):
                at += 1
                continue
            length = common(lines, at, files[there], start)
            if there == name:
                # A sequence does not repeat itself by overlapping.
                length = min(length, at - start)
            if length < least:
                at += 1
                continue
            yield Repetition(length, (there, files[there][start][0]), (name, lines[at][0]))
            at += length


def common(lines, at, others, there):
    """Returns the number of equal lines from the two places on."""
    length = 0
    while at + length < len(lines) and there + length < len(others):
        if lines[at + length][1] != others[there + length][1]:
            break
        length += 1
    return length
