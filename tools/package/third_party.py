#!/usr/bin/env python3
"""Lists the crates of others that are in Penstock's programs and libraries.

    tools/package/third_party.py FOLDER

Writes into FOLDER:
    third-party.txt   each crate with its version, its licence, and the texts that it brings
    sbom.cdx.json     the same crates as a bill of materials, CycloneDX 1.5

Both are the same for the same Cargo.lock.
"""

import argparse
import json
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = "x86_64-unknown-linux-gnu"
TEXTS = ("LICEN", "COPYING", "NOTICE", "COPYRIGHT", "UNLICENSE")
# How deep the licences of bundled C sources lie below a crate's folder: aws-lc-sys/aws-lc/LICENSE.
DEPTH = 2


def crates():
    """Returns the packages of others that a default build links, without those for tests and build
    scripts, sorted by name and version."""
    command = "cargo metadata --format-version 1 --locked --filter-platform".split()
    told = subprocess.run([*command, TARGET], cwd=ROOT, check=True, capture_output=True, text=True)
    metadata = json.loads(told.stdout)
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    reached, left = set(), list(metadata["workspace_members"])
    while left:
        this = left.pop()
        if this not in reached:
            reached.add(this)
            links = nodes[this]["deps"]
            left += [
                it["pkg"] for it in links if any(kind["kind"] is None for kind in it["dep_kinds"])
            ]
    found = [it for it in metadata["packages"] if it["id"] in reached and it["source"]]
    return sorted(found, key=lambda it: (it["name"], it["version"]))


def texts(folder):
    """Returns the paths of the licence texts that a crate brings, relative to its folder."""
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(
        path for path in found if len(path.parts) <= DEPTH and path.name.upper().startswith(TEXTS)
    )


def licences(packages):
    """Yields the lines of third-party.txt. A text that several crates bring stands once."""
    yield f"Penstock's programs and libraries contain {len(packages)} crates of others."
    seen = {}
    for it in packages:
        yield f"\n{'=' * 80}\n{it['name']} {it['version']}: {it['license']}"
        if it["repository"]:
            yield it["repository"]
        folder = Path(it["manifest_path"]).parent
        for path in texts(folder):
            text = (folder / path).read_text(errors="replace").strip()
            first = seen.setdefault(text, f"{it['name']} {it['version']}, {path}")
            same = first != f"{it['name']} {it['version']}, {path}"
            yield f"\n--- {path}" + (f": the text of {first}" if same else f"\n{text}")


def bill(packages):
    """Returns the bill of materials."""
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    sums = {(it["name"], it["version"]): it.get("checksum") for it in lock["package"]}
    own = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]

    def component(it):
        checksum = sums[it["name"], it["version"]]
        return {
            "type": "library",
            "name": it["name"],
            "version": it["version"],
            "purl": f"pkg:cargo/{it['name']}@{it['version']}",
            "licenses": [{"expression": it["license"].replace("/", " OR ")}],
            "hashes": [{"alg": "SHA-256", "content": checksum}] if checksum else [],
        }

    program = {"type": "application", "name": "penstock", "version": own}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": program},
        "components": [component(it) for it in packages],
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    packages = crates()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "third-party.txt").write_text("\n".join(licences(packages)) + "\n")
    (folder / "sbom.cdx.json").write_text(json.dumps(bill(packages), indent=1) + "\n")


if __name__ == "__main__":
    main()
