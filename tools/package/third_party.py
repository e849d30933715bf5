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
TEXTS = ("LICEN", "COPYING", "NOTICE", "COPYRIGHT", "UNLICENSE")


def printed(*command):
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def linked(target):
    """Returns the names and versions of the crates that a default build links: those for tests,
    build scripts and macros are not among them."""
    command = ["cargo", "tree", "--workspace", "--locked", "--target", target]
    command += ["--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}"]
    found = (line.split() for line in printed(*command).splitlines() if line)
    return {(words[0], words[1].removeprefix("v")) for words in found}


def crates(target):
    """Returns the linked packages of others, sorted by name and version."""
    command = "cargo metadata --format-version 1 --locked --filter-platform"
    packages = json.loads(printed(*command.split(), target))["packages"]
    wanted = linked(target)
    found = [it for it in packages if it["source"] and (it["name"], it["version"]) in wanted]
    return sorted(found, key=lambda it: (it["name"], it["version"]))


def texts(folder):
    """Returns the paths of the licence texts that a crate brings, relative to its folder."""
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(
        path for path in found if path.name.upper().startswith(TEXTS) and path.suffix != ".rs"
    )


def licences(packages):
    """Yields the lines of third-party.txt. A text that several crates bring stands once."""
    yield f"Penstock's programs and libraries contain {len(packages)} crates of others, and Rust's"
    yield "standard library, which is under MIT or Apache-2.0: https://github.com/rust-lang/rust"
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
    packages = crates(printed("rustc", "--print", "host-tuple").strip())
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "third-party.txt").write_text("\n".join(licences(packages)) + "\n")
    (folder / "sbom.cdx.json").write_text(json.dumps(bill(packages), indent=1) + "\n")


if __name__ == "__main__":
    main()
