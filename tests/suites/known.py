"""The failures of a suite that are known, with their reasons, and what differs from them."""

import tomllib
from collections import Counter

BAD = ("failed", "crashed", "without end")
# A known failure is refused by name, a wrong result, or without end; or the test demands what CUDA
# does not promise or what the host lacks.
KINDS = ("refused", "wrong", "without end", "foreign")


class Expected:
    """The list of a suite, for one device. An entry without devices is for all, and one with a file
    names tests of this file. `complete` names the devices on which all files were run to make the
    list. `passed` has how many tests of each file passed there."""

    def __init__(self, path, device):
        with open(path, "rb") as file:
            told = tomllib.load(file)
        self.is_complete = device in told.get("complete", [])
        self.passed = told.get("passed", {}).get(device, {})
        self.entries = {}
        for entry in told.get("known", []):
            # A failure without end has no message.
            needed = ["reason"] if entry["kind"] == "without end" else ["reason", "says"]
            if entry["kind"] not in KINDS or not all(entry.get(word) for word in needed):
                raise SystemExit(f"{path}: {entry['tests']}: needs a kind and {needed}")
            if device in entry.get("devices", [device]):
                file = f"{entry['file']}::" if "file" in entry else ""
                self.entries.update((file + test, entry) for test in entry["tests"])

    def is_known(self, test, outcome):
        """Returns whether the list has this failure. A test that fails in another way than listed
        has a failure that is not known, and no list can have a crash."""
        entry = self.entries.get(test)
        if entry is None:
            return False
        if entry["kind"] == "without end":
            return outcome.verdict == "without end"
        return outcome.verdict == "failed" and entry["says"] in outcome.message

    def compare(self, outcomes, files, is_full):
        """Returns a sentence for each difference. `files` were run, and `is_full` says that they
        are all files of the suite."""
        differences = []
        for test, outcome in sorted(outcomes.items()):
            if outcome.verdict in BAD and not self.is_known(test, outcome):
                differences.append(f"{test}: {outcome.verdict}: {outcome.message}")
            elif outcome.verdict not in BAD and test in self.entries:
                differences.append(f"{test} is listed as a failure, and does not fail")
        if is_full:
            lost = sorted(self.entries.keys() - outcomes.keys())
            differences += [f"{test} is listed as a failure, and did not run" for test in lost]
            files = set(files) | self.passed.keys()
        passed = Counter(
            test.partition("::")[0]
            for test, outcome in outcomes.items()
            if outcome.verdict == "passed"
        )
        differences += [
            f"{file}: {passed[file]} tests passed instead of {self.passed[file]}"
            for file in sorted(files)
            if passed[file] < self.passed.get(file, 0)
        ]
        return differences

    def count(self, outcomes):
        """Returns how many tests passed, were skipped, and failed by each kind."""
        return Counter(
            outcome.verdict
            if outcome.verdict not in BAD
            else self.entries[test]["kind"]
            if self.is_known(test, outcome)
            else "new"
            for test, outcome in outcomes.items()
        )
