"""Compares the names of the threads that the code starts with the tables of docs/processes.md."""

import re

DOCUMENT = "docs/processes.md"
SECTION = re.compile(r"^## Threads\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
# How a thread gets its name. A name that is made at run time begins with what stands here.
STARTED = re.compile(
    r"(?:\bBuilder::new\(\)\s*\.name\(|\b(?:spawn_quiet|in_thread)\(|\bWorker::new\("
    r"|\.run\([\w.]+,)\s*(?P<made>format!\()?\s*\"(?P<name>[^\"{]+)"
)


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
    """Returns whether the code starts a thread of this name at the match `started`."""
    begins = name.startswith(started["name"])
    return begins and (started["made"] is not None or name == started["name"])


def names_of(document):
    """Returns the names in the first cells of the tables about threads."""
    section = SECTION.search(document)
    rows = re.findall(r"^\| (`[^|]*) \|", section[0] if section else "", re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
