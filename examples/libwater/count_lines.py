#!/usr/bin/env python3
"""Lines of the host programs in plain OpenCL and in libWater, beside Table 4 of the libWater paper.

A line counts if it holds anything but white space and comments. Only the host programs count, the same way in both versions: options, input, checks and
timing are shared by both and count for none. The OpenCL programs begin with lines that are the same in all six (finding the device, reading and building
the source); a library of helpers could hold them. So the table shows the ratio without the lines that are in all programs of a version, too.
"""

import argparse
import collections
import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent

# Application: name in the paper, lines of its OpenCL version, lines of its libWater version.
PAPER = {
    "perlin_noise": ("PerlinNoise", 412, 301),
    "nbody": ("Nbody", 450, 324),
    "knn": ("kNN", 234, 101),
    "floyd": ("Floyd", 222, 113),
    "matrix_mul": ("MatrixMul", 219, 104),
    "lin_reg": ("LinReg", 298, 149),
}

# A string or character literal, which may hold what looks like a comment; or a comment.
TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*.*?\*/|//[^\n]*', re.DOTALL)


def code_lines(text: str) -> list[str]:
    """The lines of C that are neither blank nor comment, without white space at their ends."""

    def without_comment(match: re.Match[str]) -> str:
        token = match[0]
        return "\n" * token.count("\n") if token.startswith("/") else token

    return [line.strip() for line in TOKEN.sub(without_comment, text).splitlines() if line.strip()]


def count() -> list[dict]:
    """One row per application."""
    versions = {}
    for version in ("opencl", "water"):
        programs = {app: code_lines((HERE / app / f"{version}.c").read_text()) for app in PAPER}
        counters = [collections.Counter(lines) for lines in programs.values()]
        in_all = counters[0]
        for counter in counters[1:]:
            in_all = in_all & counter
        versions[version] = {
            app: (len(lines), len(lines) - in_all.total()) for app, lines in programs.items()
        }
    rows = []
    for app, (name, paper_opencl, paper_water) in PAPER.items():
        opencl, own_opencl = versions["opencl"][app]
        water, own_water = versions["water"][app]
        rows.append(
            {
                "app": app,
                "paper_name": name,
                "opencl": opencl,
                "water": water,
                "own_opencl": own_opencl,
                "own_water": own_water,
                "paper_opencl": paper_opencl,
                "paper_water": paper_water,
            }
        )
    return rows


def table(rows: list[dict]) -> str:
    """The rows and their sum, as text."""
    total = {
        key: sum(row[key] for row in rows) for key in rows[0] if not key.endswith(("app", "name"))
    }
    lines = [
        f"{'':14} {'these programs':^24} {'without common lines':^24} {'Table 4 of the paper':^24}",
        f"{'application':14}" + f" {'OpenCL':>8}{'libWater':>9}{'ratio':>7}" * 3,
    ]
    for row in [*rows, {"app": "all", **total}]:
        line = f"{row['app']:14}"
        for prefix in ("", "own_", "paper_"):
            opencl, water = row[f"{prefix}opencl"], row[f"{prefix}water"]
            line += f" {opencl:8}{water:9}{water / opencl:7.2f}"
        lines.append(line)
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON")
    rows = count()
    print(json.dumps(rows, indent=2) if parser.parse_args().json else table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
