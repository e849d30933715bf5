"""The failures of a suite that are known, with their reasons, and what differs from them."""

import tomllib
from collections import Counter

BAD = ("failed", "crashed", "without end")
# A known failure is refused by name, a wrong result, or without end; or the test demands what CUDA
# does not promise or what the host lacks.
KINDS = ("refused", "wrong", "without end", "foreign")


class Expected:
    """The list of a suite, for one device. An entry without devices is for all, and one with a file
    names tests of this file."""

    def __init__(self, path, device):
        with open(path, "rb") as file:
            entries = tomllib.load(file).get("known", [])
        self.kinds = {}
        for entry in entries:
            if entry["kind"] not in KINDS or not entry["reason"]:
                raise SystemExit(f"{path}: {entry['tests']}: the kind or the reason is missing")
            if device in entry.get("devices", [device]):
                file = f"{entry['file']}::" if "file" in entry else ""
                tests = (file + test for test in entry["tests"])
                self.kinds.update(dict.fromkeys(tests, entry["kind"]))

    def compare(self, outcomes):
        """Returns the failures that are not known, and the listed tests that do not fail."""
        failed = {test for test, outcome in outcomes.items() if outcome.verdict in BAD}
        repaired = (self.kinds.keys() & outcomes.keys()) - failed
        return sorted(failed - self.kinds.keys()), sorted(repaired)

    def count(self, outcomes):
        """Returns how many tests passed, were skipped, and failed by each kind."""
        return Counter(
            self.kinds.get(test, "new") if outcome.verdict in BAD else outcome.verdict
            for test, outcome in outcomes.items()
        )
