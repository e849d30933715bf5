"""Whether a run of the GPU kit without a GPU found what works there: works.py REPORT."""

import json
import sys
from pathlib import Path

# Findings of a run with the stand-in, and with Penstock's own library as the driver.
NEEDED = (
    "confinement full",
    "native, unix",
    "native, tcp",
    "native, encrypted",
    "pinned, unix",
    "pinned, tcp",
)
# Programs that must be equal on the driver and on all pools, if they run on the driver at all. The
# stand-in runs none.
EQUAL_MIN = 10


def main():
    report = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    verdicts = {item["name"]: item["verdict"] for item in report["items"]}
    missing = [name for name in NEEDED if verdicts.get(name) != "ok"]
    cuda = [item for item in report["items"] if item["step"] == "cuda"]
    runs = [item for item in cuda if item["note"].startswith(("driver: ok", "driver: not run"))]
    equal = [item for item in cuda if item["verdict"] == "ok"]
    if runs and len(equal) < EQUAL_MIN:
        missing.append(f"{EQUAL_MIN} programs with equal results: there are {len(equal)}")
    if missing:
        sys.exit(f"missing: {', '.join(missing)}")


main()
