"""A plugin for pytest: writes what becomes of each test to a file while the tests run.

The file, which PENSTOCK_SUITE_RECORD names, has one JSON list for each line: `["collected", COUNT]`
before the tests, and `["begin", TEST]`, `["report", TEST, OUTCOME, MESSAGE]` and `["end", TEST]`
for each. If the process is killed or crashes, the
file names the test that ran. PENSTOCK_SUITE_DONE names a file with the tests that ran before, one
in a line, which are left out.
"""

import json
import os
from pathlib import Path

import pytest

RECORD = os.environ["PENSTOCK_SUITE_RECORD"]
DONE = set(Path(os.environ["PENSTOCK_SUITE_DONE"]).read_text().splitlines())


def write(*fields):
    with open(RECORD, "a") as file:
        file.write(json.dumps(fields) + "\n")


# numba-cuda has this fixture in a file that its package lacks.
@pytest.fixture(scope="class")
def initialize_from_pytest_config(request):
    request.cls._dump_failed_filechecks = False


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    left_out = [item for item in items if item.nodeid in DONE]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.nodeid not in DONE]


# After all selections, those of `-m` among them.
def pytest_collection_finish(session):
    write("collected", len(session.items))


def pytest_collectreport(report):
    if report.outcome != "passed":
        write("report", report.nodeid, report.outcome, message_of(report))


def pytest_runtest_logstart(nodeid):
    write("begin", nodeid)


def pytest_runtest_logreport(report):
    outcome = report.outcome
    if hasattr(report, "wasxfail") and outcome == "skipped":
        outcome = "passed"
    # Set-up and tear-down tell nothing unless they fail or skip.
    if report.when == "call" or outcome != "passed":
        write("report", report.nodeid, outcome, message_of(report))


def pytest_runtest_logfinish(nodeid):
    write("end", nodeid)


def message_of(report):
    """Returns the last line of an error that says something."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        return " ".join(crash.message.split())[:300]
    return " ".join(str(report.longrepr or "").split())[-300:]
