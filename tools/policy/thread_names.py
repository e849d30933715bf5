"""Compares the names of the threads that the code starts with the tables of docs/processes.md, and
refuses threads that do not start with a function of `penstock_process`.

The rule sees a literal name, or one made by `format!`, in the calls that `STARTED` lists. It does
not see a name that is another expression: a constant, a variable, a conversion.
"""

import re

DOCUMENT = "docs/processes.md"
# The crate that starts the threads of all others.
HOME = "crates/base/process/"
# What only tests build. Users meet no thread of it.
OF_TESTS = "crates/tools/simulate/"
SECTION = re.compile(r"^## Threads\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
# How a thread gets its name.
STARTED = re.compile(
    r"(?:\bpenstock_process::\w+\((?:\s*&?\w+,)?|\b(?:spawn_quiet|in_thread)\(|\bWorker::new\("
    r"|\.run\([\w.]+,)\s*(?P<made>format!\()?\s*\"(?P<name>[^\"]+)\""
)
# How a thread would start otherwise, or under another name. The start of a process has no argument.
OTHERWISE = re.compile(
    r"\bthread::(?:\{[^;]*?\b)?(?:spawn|Builder)\b|\bthread::(?:\{[^;]*?)?\*"
    r"|\.spawn\w*(?:::<[^;]*?>)?\(\s*[^\s)]|\bpthread_create\("
    r"|\buse penstock_process::(?:\{[^;]*?\b)?(?:start|at_once)"
)
# What the page writes for a part of a name that is made at run time, such as NODE.
PLACEHOLDER = "[A-Z]+"


def strays(code):
    """Yields the numbers of the lines of `code` that start a thread in another way than with
    `penstock_process::start` or its like. `code` has no comments, literals and tests."""
    for it in OTHERWISE.finditer(code):
        yield code.count("\n", 0, it.start()) + 1


def compared(sources, document):
    """Yields the file and the name of each thread that the document does not list, and of each one
    that the document lists and no file starts. `sources` maps files to texts without comments and
    tests."""
    listed = names_of(document)
    started = [(file, it) for file, text in sources.items() for it in STARTED.finditer(text)]
    for file, it in started:
        if not any(is_name(it, name) for name in listed):
            yield file, it["name"]
    for name in sorted(listed):
        if not any(is_name(it, name) for _, it in started):
            yield DOCUMENT, name


def is_name(started, name):
    """Returns whether the code starts a thread of this name at the match `started`. A fixed name
    is no name that is made at run time, even if both begin alike."""
    if started["made"] is None:
        return name == started["name"]
    fixed = re.split(r"\{[^}]*\}", started["name"])
    return re.fullmatch(PLACEHOLDER.join(map(re.escape, fixed)), name) is not None


def names_of(document):
    """Returns the names in the first cells of the tables about threads."""
    section = SECTION.search(document)
    rows = re.findall(r"^\| (`[^|]*) \|", section[0] if section else "", re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
