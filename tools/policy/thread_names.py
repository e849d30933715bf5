"""Compares the names of the threads that the code starts with the tables of docs/processes.md.

The rule sees a literal name, or one made by `format!`, in the calls that `STARTED` lists. It does
not see a thread without a name, such as that of `thread::spawn`, a name that is a constant or a
variable, and a builder that one statement makes and another one names.
"""

import re

DOCUMENT = "docs/processes.md"
# What only tests build. Users meet no thread of it.
OF_TESTS = ("crates/base/process/src/world/", "crates/tools/simulate/")
SECTION = re.compile(r"^## Threads\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
# How a thread gets its name. Other calls may stand between `Builder::new()` and `.name`.
STARTED = re.compile(
    r"(?:\bBuilder::new\(\)(?:\s*\.\w+\((?:[^()]|\([^()]*\))*\))*?\s*\.name\("
    r"|\b(?:spawn_quiet|in_thread)\(|\bWorker::new\("
    r"|\.run\([\w.]+,)\s*(?P<made>format!\()?\s*\"(?P<name>[^\"]+)\""
)
# What the page writes for a part of a name that is made at run time, such as NODE.
PLACEHOLDER = "[A-Z]+"


def missing(sources, document):
    """Yields the threads of `sources`, which maps files to texts without comments and tests, that
    the document does not list: the file and the name."""
    listed = names_of(document)
    for file, text in sources.items():
        for it in STARTED.finditer(text):
            if not any(is_name(it, name) for name in listed):
                yield file, it["name"]


def gone(sources, document):
    """Yields the threads that the document lists and no file starts."""
    started = [it for text in sources.values() for it in STARTED.finditer(text)]
    for name in sorted(names_of(document)):
        if not any(is_name(it, name) for it in started):
            yield name


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
