#!/usr/bin/env python3
"""Checks the rules of this project that no compiler checks.

Usage: tools/policy/check.py [--root FOLDER] [--rule NAME]... [--json] [--write [--adopt NAME]]
       tools/policy/check.py [--root FOLDER] --map

The rules and their limits are in policy.toml, and the lines that a crate may have in budget.toml.
The places that break a rule today are in allowed.toml, each with its figure. A place that breaks a
rule and is not listed there fails, and so does a place whose figure grew. The check names a place
whose figure shrank, because a list that is too generous permits the figure to grow again. --write
writes the list anew. It refuses to add a place or to raise a figure. --adopt NAME lists the places
of a new rule once. --map writes the map of the crates in ARCHITECTURE.md anew.
"""

import argparse
import json
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import budget
import c_source
import count
import crate_map
import python_source
import thread_names
from repetition import lines_of, lines_of_c, lines_of_python, repetitions
from rust_source import (
    Crate,
    blank,
    circles,
    closing,
    functions,
    only_tests,
    test_modules,
    tuples,
    without_comments,
    without_tests,
)

HERE = Path(__file__).parent
PLATFORM = "x86_64-unknown-linux-gnu"
TEXT = {".rs", ".md", ".c", ".h", ".cu", ".cl", ".cpp", ".py", ".sh", ".toml"}


@dataclass(frozen=True)
class Finding:
    """One place that breaks a rule. `figure` says how far, where the rule has a limit."""

    rule: str
    place: str
    figure: int
    text: str


class Tree:
    """The files of a working tree that git tracks, and the policy for them."""

    def __init__(self, root, policy):
        self.root = root
        self.policy = policy
        listed = subprocess.run(
            ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        unchecked = tuple(policy["unchecked"])
        self.files = sorted(
            name
            for name in listed.split("\0")
            if name
            and Path(name).suffix in TEXT
            and not name.startswith(unchecked)
            and (root / name).is_file()
        )

    @cache
    def text(self, name):
        return (self.root / name).read_text(errors="replace")

    def code(self, name):
        """Returns the Rust text of a file without comments and literals."""
        return blank(self.text(name))

    @cache
    def functions(self, name):
        """Returns the functions of a file, or none if its language has no reader."""
        if name.endswith(".rs"):
            return list(functions(self.code(name)))
        if name.endswith(c_source.SUFFIXES):
            return c_source.functions(c_source.blank(self.text(name)))
        return python_source.functions(self.text(name)) if name.endswith(".py") else []

    def texts(self, suffixes):
        """Returns the texts of all files with one of these suffixes, by name."""
        return {name: self.text(name) for name in self.files if name.endswith(suffixes)}

    def rust(self):
        return [name for name in self.files if name.endswith(".rs")]

    @cache
    def sources(self):
        """Returns the Rust files of the crates that are not only for tests."""
        names = [name for name in self.rust() if re.match(r"crates/[^/]+/[^/]+/src/", name)]
        tests = {module for name in names for module in test_modules(name, self.code(name))}
        folders = tuple(module[:-3] + "/" for module in tests)
        return [name for name in names if name not in tests and not name.startswith(folders)]

    def crates(self):
        """Returns the folder of each crate, such as `crates/pool/wire`, by the crate's name."""
        found = (re.match(r"(crates/[^/]+/([^/]+))/", name) for name in self.files)
        return {crate[2]: crate[1] for crate in found if crate}


def arrows(tree):
    """A crate depends only on crates of lower floors."""
    floors = tree.policy["floors"]
    for crate, folder in tree.crates().items():
        if crate not in floors:
            yield Finding("arrows", crate, 1, f"{folder} has no floor in policy.toml")
            continue
        manifest = tomllib.loads(tree.text(f"{folder}/Cargo.toml"))
        for name in manifest.get("dependencies", {}):
            other = name.removeprefix("penstock-")
            if other != name and floors.get(other, floors[crate]) >= floors[crate]:
                text = f"{crate} depends on {other}, which is not on a lower floor"
                yield Finding("arrows", f"{crate} -> {other}", 1, text)


def crates_on_the_map(tree):
    """The map of the crates says what the manifests and policy.toml say."""
    name = crate_map.DOCUMENT
    try:
        is_right = crate_map.expected(tree) == tree.text(name)
        text = f"{name}: the map is not that of the manifests and policy.toml; run with --map"
    except (ValueError, FileNotFoundError) as error:
        is_right, text = False, str(error)
    if not is_right:
        yield Finding("map", name, 1, text)


def document_bytes(tree):
    """A document that newcomers read as a whole has a limited number of bytes."""
    for name, limit in tree.policy["limits"]["document_bytes"].items():
        size = len(tree.text(name).encode())
        if size > limit:
            text = f"{name} has {size} bytes, the limit is {limit}"
            yield Finding("document-bytes", name, size, text)


def import_circles(tree):
    """No more than a few files of a crate import each other in a circle, and no more than a few
    files of C or Python use each other."""
    limit = tree.policy["limits"]["circle_files"]
    for name, folder in tree.crates().items():
        for group in circles(Crate.of(tree, folder).imports()):
            if len(group) > limit:
                modules = ", ".join("::".join(module) or "lib" for module in sorted(group))
                place = f"{name}: " + ("::".join(min(group)) or "lib")
                text = f"{len(group)} files of {folder} import each other: {modules}"
                yield Finding("circles", place, len(group), text)
    c, python = tree.texts(c_source.SUFFIXES), tree.texts((".py",))
    for group in [*circles(c_source.uses(c)), *circles(python_source.imports(python))]:
        if len(group) > limit:
            text = f"{len(group)} files use each other: {', '.join(sorted(group))}"
            yield Finding("circles", min(group), len(group), text)


def file_lines(tree):
    """A file has a limited number of lines."""
    limit = tree.policy["limits"]["file_lines"]
    for name in tree.files:
        lines = tree.text(name).count("\n")
        if lines > limit and not name.endswith(".md"):
            yield Finding(
                "file-lines", name, lines, f"{name} has {lines} lines, the limit is {limit}"
            )


def function_lines(tree):
    """A function has a limited number of lines in Rust, C and Python."""
    limit = tree.policy["limits"]["function_lines"]
    for name in tree.files:
        for function in tree.functions(name):
            if function.lines > limit:
                text = f"{name}:{function.line}: {function.name} has {function.lines} lines, the limit is {limit}"
                yield Finding("function-lines", f"{name} {function.name}", function.lines, text)
    for name, text in tree.texts(c_source.SUFFIXES).items():
        if not c_source.is_whole(c_source.blank(text)):
            text = (
                f"{name} has a brace without its counterpart, so functions behind it are not seen"
            )
            yield Finding("function-lines", name, 1, text)


def width(tree):
    """Lines have a limited number of columns. In documents, rows of tables, links and what a program
    printed may be longer, and in TOML the names of tables."""
    limit = tree.policy["limits"]["columns"]
    for name in tree.files:
        text = tree.text(name).splitlines()
        printed = printed_lines(text) if name.endswith(".md") else set()
        lines = [
            number
            for number, line in enumerate(text, 1)
            if len(line) > limit and number not in printed and not may_be_wide(name, line)
        ]
        if lines:
            some = ", ".join(map(str, lines[:5])) + (", ..." if len(lines) > 5 else "")
            text = f"{name}: {len(lines)} lines have more than {limit} columns: {some}"
            yield Finding("width", name, len(lines), text)


def may_be_wide(name, line):
    """Returns whether the line of a file cannot be broken."""
    if name.endswith(".toml"):
        return line.startswith("[")
    is_row_or_link = line.lstrip().startswith("|") or "](" in line or "://" in line
    return name.endswith(".md") and is_row_or_link


def printed_lines(lines):
    """Returns the numbers of the lines that a document quotes from a program's output: those in
    fences that are marked as `console` or not marked."""
    printed, fence = set(), None
    for number, line in enumerate(lines, 1):
        if line.startswith("```"):
            fence = line[3:].strip() if fence is None else None
        elif fence in ("", "console"):
            printed.add(number)
    return printed


def unsafe_places(tree):
    """`unsafe` stands only in the folders and files that policy.toml names."""
    allowed = tree.policy["unsafe"]["places"]
    for name in tree.rust():
        found = re.match(r"crates/[^/]+/([^/]+)/(src/.*)", name)
        if not found:
            continue
        crate, rest = found.groups()
        code = re.sub(r"\bunsafe_\w+|\w+_unsafe\w*", "", tree.code(name))
        count = len(re.findall(r"\bunsafe\b", code))
        if count and not any(rest.startswith(f"src/{place}") for place in allowed.get(crate, [])):
            text = f"{name} has unsafe code, and policy.toml does not allow it there"
            yield Finding("unsafe", name, count, text)


def no_printed_skips(tree):
    """A test that cannot check something calls `penstock_trial::skip`, which is counted."""
    for name in tree.rust():
        if re.search(r'println!\(\s*"SKIP', tree.text(name)) and "/trial/src/" not in name:
            text = f"{name} prints that a test is skipped: call penstock_trial::skip"
            yield Finding("skips", name, 1, text)


def no_lost_tests(tree):
    """A library or program whose manifest says that it has no tests has none: nobody runs them."""
    for folder in tree.crates().values():
        manifest = tomllib.loads(tree.text(f"{folder}/Cargo.toml"))
        programs = {f"{folder}/{it['path']}": it for it in manifest.get("bin", []) if "path" in it}
        for name in tree.rust():
            if name.startswith(f"{folder}/src/"):
                target = programs.get(name, manifest.get("lib", {}))
                if not target.get("test", True) and "#[test]" in tree.code(name):
                    text = f"{name} has tests that nobody runs: see `test` in {folder}/Cargo.toml"
                    yield Finding("lost-tests", name, 1, text)


# What judges a time from above: `began.elapsed() < x`, `took < Duration::from_secs(1)`, and a wait
# with a limit of its own, `Instant::now() < deadline`.
TIMES = re.compile(
    r"elapsed\(\)(?:\.\w+\(\))*\s*<|<=?\s*(?:\d+\s*\*\s*)?(?:std::time::)?Duration::"
    r"|Instant::now\(\)\s*<"
)


def no_judged_times(tree):
    """A test judges no time, because a host may be slow: `penstock_trial` has the only patience.
    Tests whose names begin with `perf_` do, and run alone."""
    sources = set(tree.sources())
    for name in tree.rust():
        if not name.startswith("crates/") or name.startswith("crates/base/trial/"):
            continue
        code = tree.code(name)
        tests = only_tests(code) if name in sources else code
        perf = [it for it in tree.functions(name) if it.name.startswith("perf_")]
        lines = []
        for match in re.finditer(r"\b(?:debug_)?assert!\s*\(", tests):
            end = closing(tests, match.end() - 1, "()")
            line = tests.count("\n", 0, match.start()) + 1
            is_perf = any(it.line <= line < it.line + it.lines for it in perf)
            if TIMES.search(tests, match.end(), end) and not is_perf:
                lines.append(line)
        if lines:
            some = ", ".join(map(str, lines[:5])) + (", ..." if len(lines) > 5 else "")
            text = (
                f"{name}: tests judge a time, at lines {some}: assert an order of events, or call"
                " penstock_trial::in_time or wait_for"
            )
            yield Finding("times", name, len(lines), text)


def repeated_lines(tree):
    """No longer sequence of lines of code stands in two places, unless policy.toml explains it. The
    figure of a place is the number of repeated lines of two files. Tests and examples are left out:
    a reader wants to have each of them as a whole."""
    least = tree.policy["limits"]["repeated_lines"]
    explained = tree.policy.get("repetition-explained", {})
    files = {name: lines_of(tree.text(name), tree.code(name)) for name in tree.sources()}
    for suffixes, lines in ((c_source.SUFFIXES, lines_of_c), ((".py",), lines_of_python)):
        for name, text in tree.texts(suffixes).items():
            if not re.match(r"(?:.*/)?(?:tests|examples)/|.*/test_", name):
                files[name] = lines(text)
    found = {}
    for it in repetitions(files, least):
        found.setdefault(f"{it.there[0]} = {it.here[0]}", []).append(it)
    for pair, all_of_them in sorted(found.items()):
        lines = ", ".join(f"{it.there[1]} and {it.here[1]}" for it in all_of_them[:5])
        figure = sum(it.length for it in all_of_them)
        if explained.get(pair, {}).get("lines") != figure:
            there, here = pair.split(" = ")
            text = f"{figure} lines of {there} stand again in {here}, at lines {lines}"
            yield Finding("repetition", pair, figure, text + explains_others(explained.get(pair)))
    for pair in sorted(explained.keys() - found):
        text = f"policy.toml explains {pair}, and these files do not repeat lines"
        yield Finding("repetition", pair, 0, text)


def explains_others(explanation):
    return f" (policy.toml explains {explanation['lines']})" if explanation else ""


def small_tuples(tree):
    """An anonymous tuple in a signature, a field or a type alias has few elements. A struct names
    more than that."""
    limit = tree.policy["limits"]["tuple_elements"]
    for name in tree.sources():
        found = {}
        for it in tuples(without_tests(tree.code(name))):
            if it.elements > limit:
                found.setdefault(it.item, []).append(it)
        for item, all_of_them in found.items():
            most = max(it.elements for it in all_of_them)
            text = (
                f"{name}:{all_of_them[0].line}: {item} has a tuple of {most} elements,"
                f" the limit is {limit}: make it a struct with named fields"
            )
            yield Finding("tuples", f"{name} {item}", len(all_of_them), text)


def no_indexing(tree):
    """The crates that decode bytes of a peer refuse indexing, which panics on a wrong length."""
    for crate in tree.policy["decoders"]["crates"]:
        name = f"{tree.crates()[crate]}/src/lib.rs"
        if not re.search(r"deny\([^)]*clippy::indexing_slicing", tree.text(name)):
            text = f"{name} does not deny clippy::indexing_slicing"
            yield Finding("indexing", name, 1, text)


def listed_threads(tree):
    """A function of `penstock_process` starts each thread of the crates, and a page lists the
    thread by its name."""
    names = [name for name in tree.sources() if not name.startswith(thread_names.HOME)]
    for name in names:
        for line in thread_names.strays(without_tests(tree.code(name))):
            text = f"{name}:{line} starts a thread: call penstock_process::start by this path"
            yield Finding("threads", f"{name}:{line}", 1, text)
    sources = {
        name: without_tests(without_comments(tree.text(name)), tree.code(name))
        for name in names
        if not name.startswith(thread_names.OF_TESTS)
    }
    page = thread_names.DOCUMENT
    for name, thread in thread_names.compared(sources, tree.text(page)):
        text = f"{name} starts the thread `{thread}`, which no table of {page} lists"
        if name == page:
            text = f"{page} lists the thread `{thread}`, and nothing starts it"
        yield Finding("threads", f"{name} {thread}", 1, text)


def budgets(tree):
    """A crate has no more lines of Rust than its budget. A budget is raised in a commit of its own,
    with the reason."""
    rust = {name: text for name, text in tree.texts((".rs",)).items() if name.startswith("crates/")}
    counted = {name: lines for name, (lines, *_) in count.count(rust).items()}
    table = tomllib.loads(tree.text(budget.FILE))
    for place in budget.overrun(counted, table["lines"]):
        yield Finding("budgets", *place)
    try:
        if why := budget.unjudged(tree.root):
            print(f"budgets: the raises are not judged, because {why}", file=sys.stderr)
            return
        for text in budget.faults(tree.root, table.get("accepted")):
            yield Finding("budgets", budget.FILE, 1, text)
    except budget.Unreadable as error:
        yield Finding("budgets", budget.FILE, 1, f"the raises cannot be judged: {error}")


def dependencies(tree):
    """Other people's crates have a permitted licence and source, and none is banned or there twice."""
    policy = tree.policy["dependencies"]
    command = [
        "cargo",
        "metadata",
        "--format-version",
        "1",
        "--locked",
        "--filter-platform",
        PLATFORM,
    ]
    printed = subprocess.run(command, cwd=tree.root, check=True, capture_output=True, text=True)
    versions = {}
    for package in json.loads(printed.stdout)["packages"]:
        name, source = package["name"], package["source"]
        if source is None:
            continue
        versions.setdefault(name, set()).add(package["version"])
        if source not in policy["sources"]:
            yield Finding("dependencies", name, 1, f"{name} comes from {source}")
        if not is_permitted(package["license"] or "none", policy["licenses"]):
            text = f"{name} has the licence {package['license']}, which policy.toml does not permit"
            yield Finding("dependencies", name, 1, text)
        if name in policy["banned"]:
            yield Finding("dependencies", name, 1, f"{name} is banned by policy.toml")
    for name, there in sorted(versions.items()):
        if len(there) > 1 and name not in policy["twice"]:
            text = f"{name} is in the build in {len(there)} versions: {', '.join(sorted(there))}"
            yield Finding("dependencies", name, len(there), text)


def is_permitted(expression, licenses):
    """Tells whether the choices of an SPDX expression permit one with permitted licences only."""
    # "MIT/Apache-2.0" is an older form of OR. An exception only adds permissions.
    words = re.findall(r"[()]|[\w.+-]+", re.sub(r"WITH\s+\S+", "", expression.replace("/", " OR ")))
    python = {"(": "(", ")": ")", "AND": "and", "OR": "or"}
    return eval(" ".join(python.get(word, str(word in licenses)) for word in words))


RULES = {
    "arrows": arrows,
    "map": crates_on_the_map,
    "document-bytes": document_bytes,
    "circles": import_circles,
    "file-lines": file_lines,
    "function-lines": function_lines,
    "width": width,
    "unsafe": unsafe_places,
    "skips": no_printed_skips,
    "lost-tests": no_lost_tests,
    "times": no_judged_times,
    "repetition": repeated_lines,
    "tuples": small_tuples,
    "indexing": no_indexing,
    "threads": listed_threads,
    "budgets": budgets,
    "dependencies": dependencies,
}


def judge(findings, allowed):
    """Returns what is wrong, as texts: new places and grown figures; and what has become better, so
    that the list should be written again. Better is not wrong, because otherwise a change would
    fail for what another change has repaired."""
    wrong, better, seen = [], [], set()
    for finding in findings:
        limit = allowed.get(finding.rule, {}).get(finding.place)
        seen.add((finding.rule, finding.place))
        if limit is None:
            wrong.append(f"{finding.rule}: {finding.text}")
        elif finding.figure > limit:
            wrong.append(f"{finding.rule}: {finding.text} (allowed.toml permits {limit})")
        elif finding.figure < limit:
            better.append(
                f"{finding.rule}: {finding.place} is better than allowed.toml says:"
                f" {finding.figure}, not {limit}; run with --write"
            )
    for rule, places in allowed.items():
        for place in places:
            if (rule, place) not in seen:
                better.append(
                    f"{rule}: {place} keeps the rule now, so allowed.toml must not list it;"
                    " run with --write"
                )
    return wrong, better


def shrunk(findings, allowed):
    """Returns the list with all figures that shrank. Raises ValueError if a place is new or grew."""
    new = {}
    for finding in findings:
        limit = allowed.get(finding.rule, {}).get(finding.place)
        if limit is None or finding.figure > limit:
            raise ValueError(f"{finding.rule}: {finding.text}")
        new.setdefault(finding.rule, {})[finding.place] = finding.figure
    return new


def written(allowed):
    lines = [
        "# Places that break a rule of policy.toml today. Figures only shrink. tools/policy/check.py",
        "# --write keeps this list.",
    ]
    for rule in sorted(allowed):
        lines.append(f"\n[{rule}]")
        lines += [f'"{place}" = {figure}' for place, figure in sorted(allowed[rule].items())]
    return "\n".join(lines) + "\n"


def main(words=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--root", type=Path, default=HERE.parent.parent, help="the working tree to check"
    )
    parser.add_argument("--rule", action="append", choices=RULES, help="check only this rule")
    parser.add_argument(
        "--json", action="store_true", help="print all findings, also the allowed ones, as JSON"
    )
    parser.add_argument(
        "--write", action="store_true", help="write allowed.toml with what has become better"
    )
    parser.add_argument(
        "--adopt", choices=RULES, help="with --write: list the places of a rule without a list"
    )
    parser.add_argument("--map", action="store_true", help="write the map in ARCHITECTURE.md anew")
    options = parser.parse_args(words)
    # A tree of its own brings its own rules. The tests use this.
    home = options.root / "tools/policy"
    tree = Tree(options.root, tomllib.loads((home / "policy.toml").read_text()))
    if options.map:
        (options.root / crate_map.DOCUMENT).write_text(crate_map.expected(tree))
        return 0
    allowed = tomllib.loads((home / "allowed.toml").read_text())
    rules = options.rule or list(RULES)
    allowed = {rule: places for rule, places in allowed.items() if rule in rules}
    findings = [finding for rule in rules for finding in RULES[rule](tree)]
    if options.json:
        print(json.dumps([vars(finding) for finding in findings], indent=1))
        return 0
    if options.write:
        if options.rule:
            parser.error("--write needs all rules")
        if options.adopt in allowed:
            parser.error(f"allowed.toml has places of {options.adopt} already")
        if options.adopt:
            of_rule = [finding for finding in findings if finding.rule == options.adopt]
            allowed[options.adopt] = {finding.place: finding.figure for finding in of_rule}
        try:
            (home / "allowed.toml").write_text(written(shrunk(findings, allowed)))
        except ValueError as error:
            print(f"not written: {error}", file=sys.stderr)
            return 1
        return 0
    wrong, better = judge(findings, allowed)
    for text in [*better, *wrong]:
        print(text)
    if not wrong:
        print(
            f"{len(rules)} rules hold in {len(tree.files)} files; {len(findings)} old places are still listed"
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
