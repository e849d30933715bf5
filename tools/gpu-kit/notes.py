#!/usr/bin/env python3
"""Writes docs/notes/gpu.md from the reports in docs/notes/gpu.

tools/gpu-kit/notes.py              writes the page
tools/gpu-kit/notes.py --check      fails if the page is not what would be written
tools/gpu-kit/notes.py --add FILE   keeps a report.json without its logs, and writes the page
"""

import argparse
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs/notes/gpu.md"
REPORTS = ROOT / "docs/notes/gpu"
HEAD = """# What NVIDIA's GPUs say

`tools/gpu-kit/notes.py` writes this page. `make gpu-kit` packs our programs and tests in one
archive for a machine with an NVIDIA GPU, and `gpu-kit/run` there writes `report.json`.
"""
NONE = "\nNo GPU has been measured.\n"
# Facts that say which machine gave the figures. The others name paths of that machine.
FACTS = ("gpu", "build", "memory", "confinement")
PATHS = re.compile(r"(unix:)?/(tmp|opt|usr/local|proc|home)/\S*")


def kept(report):
    """Returns what is kept of a report: no ends of logs, which name paths of the machine."""
    dropped = ("tail", "lacks", "points")
    items = [
        {
            key: PATHS.sub("...", value) if isinstance(value, str) else value
            for key, value in item.items()
            if key not in dropped
        }
        for item in report["items"]
        if item["name"] != "device" and "last lines" not in item["note"]
    ]
    facts = {name: fact for name, fact in report["facts"].items() if name in FACTS}
    return dict(report, facts=facts, items=items)


def cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")


def section(number, report):
    """Returns the tables of one run."""
    facts = report["facts"]
    card = facts.get("gpu", "an unknown GPU").split(",")
    title = f"{card[0]}, driver {card[1].strip()}" if len(card) > 1 else card[0]
    lines = [
        f"\n## Run {number}: {title}\n",
        f"Build: {facts.get('build', 'unknown')}.",
        f"Confinement of the workers: {facts.get('confinement', 'unknown')}.\n",
    ]
    lines += ["| step | findings |", "|---|---|"]
    for row in report["steps"]:
        counts = ", ".join(f"{n} {v}" for v, n in sorted(row.get("counts", {}).items()))
        lines.append(f"| {row['what']} | {counts or row.get('note', '')} |")
    figures = [it for it in report["items"] if it.get("figures") or it.get("ratios")]
    if figures:
        lines += ["\n| measured | figures |", "|---|---|"]
    for item in figures:
        shown = item.get("figures") or item["ratios"]
        text = ", ".join(f"{name} {value}" for name, value in shown.items())
        lines.append(f"| {cell(item['step'])}: {cell(item['name'])} | {cell(text)} |")
    lines += frameworks(report["items"])
    lines += ["\n| not as on the driver itself | |", "|---|---|"]
    for item in report["items"]:
        if item["verdict"] in ("FAIL", "lacks") and item["step"] != "frameworks":
            note = cell(item["note"])[:200]
            lines.append(f"| {cell(item['step'])}: {cell(item['name'])} | {note} |")
    return "\n".join(lines) + "\n"


def frameworks(items):
    """Returns a table with one row for each program of a framework and each way to run it."""
    rows = {}
    # JAX computes on the processor where it finds no GPU, and says so only in its list of devices.
    on_gpu = {
        item["name"].partition(": ")[0]
        for item in items
        if item["name"].endswith(": devices") and item["verdict"] == "ok"
        if "pool: [CpuDevice" not in item["note"]
    }
    for item in items:
        program, _, stage = item["name"].partition(": ")
        if item["step"] != "frameworks" or not stage:
            continue
        if program.startswith("JAX") and program not in on_gpu:
            item = item | {"verdict": "lacks", "note": "JAX found no GPU on the pool"}
        good, lacking, why = rows.setdefault(program, ([], [], []))
        if item["verdict"] == "ok":
            good.append(stage)
        else:
            lacking.append(stage)
            why.append(item["note"])
    if not rows:
        return []
    lines = [
        "\n| program | as on the driver itself | not | why, for the first |",
        "|---|---|---|---|",
    ]
    for program, (good, lacking, why) in rows.items():
        first = cell(why[0])[:160] if why else ""
        lines.append(f"| {program} | {', '.join(good)} | {', '.join(lacking)} | {first} |")
    return lines


def page():
    reports = sorted(REPORTS.glob("*.json"), key=lambda path: path.name)
    if not reports:
        return HEAD + NONE
    found = [json.loads(path.read_text()) for path in reports]
    sections = [section(number, report) for number, report in enumerate(found, 1)]
    # The newest run comes first.
    return HEAD + "".join(reversed(sections))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--add", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    if arguments.add:
        REPORTS.mkdir(exist_ok=True)
        number = len(list(REPORTS.glob("*.json"))) + 1
        report = kept(json.loads(arguments.add.read_text()))
        (REPORTS / f"{number:02}.json").write_text(json.dumps(report, indent=1) + "\n")
    text = page()
    if arguments.check:
        sys.exit(0 if PAGE.read_text() == text else f"{PAGE} is not what {__file__} writes")
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
