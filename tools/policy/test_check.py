"""Each rule of check.py is seen to fail on a planted violation, and to pass without it."""

import contextlib
import io
import json
import subprocess

import check as check_py
import count
import pytest

POLICY = """\
unchecked = ["generated/", "tools/policy/allowed.toml"]
floors = { low = 0, high = 1 }
[limits]
file_lines = 20
function_lines = 5
columns = 60
circle_files = 2
repeated_lines = 3
tuple_elements = 2
document_bytes = { "ARCHITECTURE.md" = 600 }
[unsafe.places]
low = ["sys.rs"]
[decoders]
crates = ["low"]
[dependencies]
licenses = ["MIT", "ISC"]
sources = ["home"]
banned = ["bad"]
twice = ["old"]
"""
PACKAGE = {"name": "good", "version": "1", "license": "(MIT OR GPL-2.0) AND ISC", "source": "home"}
BUDGET = "[lines]\nlow = 18\nhigh = 3\n"
ARCHITECTURE = """\
# Parts

<!-- tools/policy/check.py --map writes this map. -->

```text
1  high
0  low
```

**`crates/room/`**: What tests plant in.

| crate | is | uses | unsafe code may be in |
|---|---|---|---|
| `high` | Asks | low | – |
| `low` | Stores | – | `sys.rs` |

<!-- The map ends here. -->

The parts work.
"""
PROCESSES = """\
# Processes

## Threads

| thread | does |
|---|---|

## Bytes

| `other` | bytes |
"""
CLEAN = {
    "Cargo.toml": 'members = [\n  # What tests plant in.\n  "crates/room/low",\n'
    '  "crates/room/high",\n]\n',
    "ARCHITECTURE.md": ARCHITECTURE,
    "crates/room/low/Cargo.toml": '[package]\nname = "penstock-low"\ndescription = "Stores"\n'
    "[lib]\ntest = false\n",
    "crates/room/low/src/lib.rs": "#![deny(clippy::indexing_slicing)]\n"
    "mod a;\nmod b;\nmod c;\nmod sys;\n",
    "crates/room/low/src/a.rs": "pub struct A;\n",
    "crates/room/low/src/b.rs": "use crate::a::A;\n// unsafe\npub struct B(A);\n",
    "crates/room/low/src/c.rs": "use super::{a::A, b::B};\nfn f(_: A, _: B) {}\n",
    "crates/room/low/src/sys.rs": "fn f() { unsafe { g() } }\n",
    "crates/room/high/Cargo.toml": '[package]\ndescription = "Asks"\n'
    '[dependencies]\npenstock-low = "1"\n',
    "crates/room/high/src/lib.rs": "",
    "docs/processes.md": PROCESSES,
}
# What is planted: the rule, the file, and its text.
PLANTED = [
    (
        "arrows",
        "crates/room/low/Cargo.toml",
        '[package]\ndescription = "Stores"\n[dependencies]\npenstock-high = "1"\n',
    ),
    ("map", "ARCHITECTURE.md", ARCHITECTURE.replace("Stores", "Keeps")),
    ("document-bytes", "ARCHITECTURE.md", ARCHITECTURE + "word\n" * 80),
    ("circles", "crates/room/low/src/a.rs", "use super::c;\npub struct A;\n"),
    ("file-lines", "tool.py", "\n" * 21),
    ("function-lines", "crates/room/low/src/sys.rs", "fn f() {\n" + "\n" * 5 + "}\n"),
    ("width", "README.md", "word " * 13 + "\n"),
    ("unsafe", "crates/room/low/src/a.rs", "fn f() { unsafe { g() } }\npub struct A;\n"),
    ("skips", "crates/room/low/tests/all.rs", 'fn f() { eprintln!("SKIPPED: no device") }\n'),
    ("lost-tests", "crates/room/low/src/sys.rs", "#[test]\nfn t() {}\n"),
    (
        "times",
        "crates/room/low/tests/all.rs",
        'fn f() { assert!(began.elapsed() < LIMIT, "late") }\n',
    ),
    ("indexing", "crates/room/low/src/lib.rs", "mod a;\n"),
    ("tuples", "crates/room/low/src/sys.rs", "fn f() -> (A, B, C) {}\n"),
    ("threads", "crates/room/low/src/sys.rs", 'fn f() { spawn_quiet("one", 8, work); }\n'),
    (
        "budgets",
        "crates/room/low/src/sys.rs",
        "".join(f"const A{n}: u8 = {n};\n" for n in range(9)),
    ),
]


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A small working tree that keeps all rules, and a `cargo` that prints its dependencies."""
    write(tmp_path, "generated/cargo", '#!/bin/sh\ncat "${0%cargo}metadata"\n')
    (tmp_path / "generated/cargo").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/generated", prepend=":")
    depend_on(tmp_path, PACKAGE)
    for name, text in CLEAN.items():
        write(tmp_path, name, text)
    write(tmp_path, "tools/policy/policy.toml", POLICY)
    write(tmp_path, "tools/policy/allowed.toml", "")
    write(tmp_path, "tools/policy/budget.toml", BUDGET)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    return tmp_path


def write(tree, name, text):
    path = tree / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def depend_on(tree, *packages):
    write(tree, "generated/metadata", json.dumps({"packages": packages}))


def check(tree, *options):
    """Does what check.py does with these options. A process of its own would take longer to start
    than to check."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = check_py.main(["--root", str(tree), *options])
        except SystemExit as end:
            code = end.code
    return subprocess.CompletedProcess(options, code, out.getvalue(), err.getvalue())


def test_a_clean_tree_passes(tree):
    result = check(tree)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(("rule", "name", "text"), PLANTED, ids=[rule for rule, *_ in PLANTED])
def test_a_planted_violation_is_found(tree, rule, name, text):
    write(tree, name, text)
    if rule != "map":
        assert check(tree, "--map").returncode == 0
    result = check(tree)
    assert result.returncode == 1, result.stdout
    assert [line.split(":")[0] for line in result.stdout.splitlines()] == [rule], result.stdout


def test_the_map_follows_the_manifests_and_the_policy(tree):
    manifest = '[package]\ndescription = "Keeps"\n[dependencies]\nserde = "1"\n'
    write(tree, "crates/room/low/Cargo.toml", manifest)
    places = 'low = ["sys.rs", "a/"]\nhigh = [""]'
    write(tree, "tools/policy/policy.toml", POLICY.replace('low = ["sys.rs"]', places))
    assert "the map is not that of the manifests" in check(tree, "--rule", "map").stdout
    assert check(tree, "--map").returncode == 0
    assert check(tree, "--rule", "map").returncode == 0
    text = (tree / "ARCHITECTURE.md").read_text()
    assert "| `high` | Asks | low | everywhere |" in text
    assert "| `low` | Keeps | – | `a/`, `sys.rs` |" in text
    assert text.startswith("# Parts\n") and text.endswith("\nThe parts work.\n")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("ARCHITECTURE.md", "# Parts\n", "lacks the two comments"),
        ("Cargo.toml", 'members = [\n  "crates/room/low",\n]\n', "what crates/room is for"),
        ("crates/room/low/Cargo.toml", "[package]\n", "low has no description"),
    ],
)
def test_what_the_map_lacks_is_named(tree, name, text, message):
    write(tree, name, text)
    result = check(tree, "--rule", "map")
    assert result.returncode == 1 and message in result.stdout, result.stdout


@pytest.mark.parametrize(
    ("text", "is_wrong"),
    [
        ("assert!(a.elapsed().as_secs() < 3);", True),
        ("assert!(took < Duration::from_secs(1), x);", True),
        ("assert!(took <= 2 * std::time::Duration::from_millis(9));", True),
        ("assert!(std::time::Instant::now() < deadline);", True),
        ("assert!(a.elapsed() >= LIMIT); assert!(Instant::now() > began + LIMIT);", False),
        ("while Instant::now() < end {}", False),
        ("} fn perf_f() { assert!(a.elapsed() < LIMIT); ", False),
    ],
)
def test_a_judged_time_is_found(tree, text, is_wrong):
    write(
        tree,
        "crates/room/low/src/b.rs",
        f"use crate::a::A;\n#[cfg(test)]\nmod tests {{ fn f() {{ {text} }} }}\n",
    )
    assert ("times: " in check(tree).stdout) == is_wrong
    write(tree, "crates/room/low/src/b.rs", f"use crate::a::A;\nfn f() {{ {text} }}\n")
    assert "times: " not in check(tree).stdout


@pytest.mark.parametrize(
    "packages",
    [
        [PACKAGE | {"license": "MIT AND GPL-2.0"}],
        [PACKAGE | {"license": None}],
        [PACKAGE | {"source": "elsewhere"}],
        [PACKAGE | {"name": "bad"}],
        [PACKAGE, PACKAGE | {"version": "2"}],
    ],
    ids=["licence", "no licence", "source", "banned", "twice"],
)
def test_a_planted_dependency_is_found(tree, packages):
    depend_on(tree, *packages)
    result = check(tree)
    assert result.returncode == 1 and result.stdout.startswith("dependencies: "), result.stdout


def test_permitted_dependencies_pass(tree):
    old = PACKAGE | {"name": "old", "license": "GPL-2.0/MIT"}
    ours = {"name": "ours", "version": "1", "license": None, "source": None}
    depend_on(tree, ours, old, old | {"version": "2", "license": "ISC WITH LLVM-exception"})
    result = check(tree)
    assert result.returncode == 0, result.stdout


def test_an_allowed_figure_may_shrink_and_must_not_grow(tree):
    write(tree, "tool.py", "\n" * 22)
    write(tree, "tools/policy/allowed.toml", '[file-lines]\n"tool.py" = 22\n')
    assert check(tree).returncode == 0
    write(tree, "tool.py", "\n" * 23)
    assert "permits 22" in check(tree).stdout
    assert check(tree, "--write").returncode == 1
    write(tree, "tool.py", "\n" * 21)
    result = check(tree)
    assert "better than allowed.toml says" in result.stdout and result.returncode == 0
    assert check(tree, "--write").returncode == 0
    assert check(tree).returncode == 0
    write(tree, "tool.py", "\n" * 20)
    result = check(tree)
    assert "must not list it" in result.stdout and result.returncode == 0


def test_the_places_of_a_new_rule_are_adopted_once(tree):
    write(tree, "tool.py", "\n" * 22)
    assert check(tree, "--write", "--adopt", "file-lines").returncode == 0
    assert check(tree).returncode == 0
    write(tree, "other.py", "\n" * 22)
    assert check(tree, "--write", "--adopt", "file-lines").returncode == 2
    assert check(tree, "--write").returncode == 1


def test_a_path_through_a_child_module_is_an_import(tree):
    write(tree, "crates/room/low/src/a.rs", "mod x;\nmod y;\npub use x::X;\npub use y::{Y, Z};\n")
    write(tree, "crates/room/low/src/a/x.rs", "use super::Y;\npub struct X;\n")
    text = "use super::super::a::X;\npub struct Y;\npub struct Z;\n"
    write(tree, "crates/room/low/src/a/y.rs", text)
    result = check(tree)
    assert "3 files of crates/room/low import each other: a, a::x, a::y" in result.stdout


STEPS = "one(&two);\nthree(4); // five\n\nsix.seven();\n"


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        (f"fn g() {{\n{STEPS}}}\n", True),
        (f"fn g() {{\n{STEPS.replace('&two', '& two')}}}\n", True),
        (f"fn g() {{\n{STEPS.replace('4', '5')}}}\n", False),
        (f"#[cfg(test)]\nmod tests {{\nfn g() {{\n{STEPS}}}\n}}\n", False),
        ("use a;\nuse b;\nuse c;\nfn x(\n a: u8,\n b: u8,\n c: u8,\n) {\n}\n", False),
    ],
    ids=["repeated", "spaces", "another number", "test", "imports and signature"],
)
def test_repeated_lines_are_found(tree, text, is_found):
    header = "use a;\nuse b;\nuse c;\nfn y(\n a: u8,\n b: u8,\n c: u8,\n) {\n"
    write(tree, "crates/room/low/src/d.rs", f"{header}{STEPS}}}\n")
    write(tree, "crates/room/low/src/e.rs", text)
    result = check(tree, "--rule", "repetition")
    assert result.returncode == is_found, result.stdout


def test_lines_that_repeat_in_one_file_are_found(tree):
    write(tree, "crates/room/low/src/d.rs", f"fn f() {{\n{STEPS * 2}}}\n")
    result = check(tree, "--rule", "repetition")
    assert "3 lines of crates/room/low/src/d.rs stand again" in result.stdout
    write(tree, "crates/room/low/src/d.rs", "fn f() {\n" + "one();\n" * 5 + "}\n")
    assert check(tree, "--rule", "repetition").returncode == 0


def test_an_explained_repetition_passes_while_it_has_the_same_number_of_lines(tree):
    pair = "crates/room/low/src/d.rs = crates/room/low/src/e.rs"
    why = f'[repetition-explained]\n"{pair}" = {{ lines = 3, why = "A reason." }}\n'
    write(tree, "tools/policy/policy.toml", POLICY + why)
    write(tree, "crates/room/low/src/d.rs", f"fn f() {{\n{STEPS}eight();\n}}\n")
    write(tree, "crates/room/low/src/e.rs", f"fn g() {{\n{STEPS}}}\n")
    result = check(tree, "--rule", "repetition")
    assert result.returncode == 0, result.stdout
    write(tree, "crates/room/low/src/e.rs", f"fn g() {{\n{STEPS}eight();\n}}\n")
    result = check(tree, "--rule", "repetition")
    assert "4 lines of crates/room/low/src/d.rs stand again" in result.stdout
    assert "policy.toml explains 3" in result.stdout
    write(tree, "crates/room/low/src/e.rs", "fn g() {}\n")
    result = check(tree, "--rule", "repetition")
    assert result.returncode == 1 and "do not repeat lines" in result.stdout


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("fn f((a, b, c): (A, B, C)) {}\n", True),
        ("fn f(a: A) -> Option<(A, B, C)>;\n", True),
        ("fn f<'a>(a: &'a [&'a (A, B, C)]) {}\n", True),
        ("struct S {\n    a: Vec<(A, [u8; 2], fn(A, B) -> C)>,\n}\n", True),
        ("struct S(Vec<(A, B, C)>);\n", True),
        ("enum E {\n    V(u8, (A, B, C)),\n}\n", True),
        ("type T = (A, B, C);\n", True),
        ("fn f(a: (A, B), b: [u8; 3], c: C) -> (A, Map<B, C>) {}\n", False),
        ("fn f<F: Fn(A, B, C) -> D>(f: F, g: fn(A, B, C), h: u8) {}\n", False),
        ("struct S(A, B, C);\nenum E {\n    V(A, B, C),\n}\n", False),
        ("fn f() { let (a, b, c): (A, B, C) = g((1, 2, 3)); }\n", False),
        ("entry! { fn f / g |x| (a: A, b: B, c: C) {} }\n", False),
        ("#[cfg(test)]\nmod tests {\n    fn f(a: (A, B, C)) {}\n}\n", False),
    ],
)
def test_large_tuples_are_found(tree, text, is_found):
    write(tree, "crates/room/low/src/d.rs", text)
    result = check(tree, "--rule", "tuples")
    assert result.returncode == is_found, result.stdout


def test_tuples_of_tests_are_left_alone(tree):
    write(tree, "crates/room/low/src/a.rs", "#[cfg(test)]\nmod tests;\npub struct A;\n")
    write(tree, "crates/room/low/src/a/tests.rs", "fn f(a: (A, B, C)) {}\n")
    assert check(tree, "--rule", "tuples").returncode == 0


THREADS = """\
fn f() {
    penstock_process::start(
        "one", work);
    penstock_process::start(format!("to-{node}"), work);
    heaps.run(it.id, "three", work);
    penstock_process::start_scoped(scope, "to-all", work);
    command.spawn();
}
#[cfg(test)]
mod tests { fn f() { spawn_quiet("four", 8, work); thread::spawn(work); } }
"""


@pytest.mark.parametrize(
    ("rows", "messages"),
    [
        ("| `one` | a |\n| `to-NODE` | b |\n| `three`, `to-all` | c |\n", []),
        (
            "| `to-NODE` | a |\n| `to-all` | b |\n",
            ["low/src/sys.rs starts the thread `one`", "the thread `three`"],
        ),
        (
            "| `one` | a |\n| `to-NODE`, `three`, `to-all` | b |\n| `five` | `six` |\n",
            ["lists the thread `five`"],
        ),
        # A fixed name that begins like one that is made at run time stands for itself.
        ("| `one`, `three` | a |\n| `to-NODE` | b |\n", ["starts the thread `to-all`"]),
        ("| `one`, `three` | a |\n| `to-all` | b |\n", ["starts the thread `to-{node}`"]),
        (
            "| `one`, `three` | a |\n| `to-NODE`, `to-all`, `to-some` | b |\n",
            ["lists the thread `to-some`"],
        ),
    ],
)
def test_threads_are_compared_with_the_page(tree, rows, messages):
    write(tree, "crates/room/low/src/sys.rs", THREADS)
    write(tree, "docs/processes.md", PROCESSES.replace("|---|---|\n", f"|---|---|\n{rows}"))
    result = check(tree, "--rule", "threads")
    lines = result.stdout.splitlines()
    assert result.returncode == bool(messages), result.stdout
    assert all(m in line for m, line in zip(messages, lines, strict=bool(messages))), lines


@pytest.mark.parametrize(
    "text",
    [
        "fn f() { std::thread::spawn(work); }\n",
        'fn f() { thread::Builder::new().name("one".into()); }\n',
        "use std::thread::{self, Builder};\n",
        "fn f() { thread::scope(|it| it.spawn(|| work())); }\n",
        "fn f() { thread::scope(|it| thread.spawn_scoped(it, work)); }\n",
        "use penstock_process::{Lock, start};\n",
        "use penstock_process::{lock::{Lock}, start};\n",
        "use std::thread::*;\n",
        "fn f() { thread::scope(|it| it.spawn::<_, ()>(work)); }\n",
    ],
)
def test_a_thread_that_starts_otherwise_is_found(tree, text):
    write(tree, "crates/room/low/src/sys.rs", text)
    result = check(tree, "--rule", "threads")
    assert result.returncode == 1 and "sys.rs:1 starts a thread" in result.stdout, result.stdout
    # The crate that starts the threads of all others.
    write(tree, "crates/room/low/src/sys.rs", "")
    write(tree, "crates/base/process/src/threads.rs", text)
    assert check(tree, "--rule", "threads").returncode == 0


def test_unchecked_files_are_left_alone(tree):
    write(tree, "generated/wide.rs", "x" * 200)
    assert check(tree).returncode == 0


@pytest.mark.parametrize("mark", ["", "console"])
def test_printed_lines_may_be_wide(tree, mark):
    write(tree, "README.md", f"```{mark}\n" + "word " * 30 + "\n```\n")
    assert check(tree).returncode == 0


def test_code_in_documents_may_not_be_wide(tree):
    write(tree, "README.md", "```c\n" + "word " * 30 + "\n```\n")
    assert check(tree).returncode == 1


@pytest.mark.parametrize(
    "text",
    [
        'const A: &str = "crate::c::f and } unsafe {";\n',
        "/* outer /* unsafe */ use crate::c; */\n",
        "#[cfg(test)]\nmod tests {\n    use crate::c;\n}\n",
        "fn f(x: &'static str) { '{'; r#\"unsafe\"#; }\n",
    ],
    ids=["string", "nested comment", "test module", "lifetime and raw string"],
)
def test_comments_literals_and_test_modules_are_no_code(tree, text):
    write(tree, "crates/room/low/src/a.rs", text + "pub struct A;\n")
    result = check(tree)
    assert result.returncode == 0, result.stdout


def test_code_is_counted_without_comments_tests_and_generated_files():
    text = """//! Text.

use std::fmt; // unsafe
/* unsafe
*/
#[unsafe(no_mangle)]
fn f() { unsafe { g("unsafe
") } }
#[cfg(test)]
#[expect(x)]
mod tests { fn t() { unsafe { g() } } }
#[cfg(test)]
mod more;
#[cfg(test)]
const A: [u8; 2] = [1; 2];
"""
    files = {
        "crates/room/low/src/lib.rs": text,
        "crates/room/low/src/more.rs": "#[test]\nfn f() {}\n",
        "crates/room/low/src/more/x.rs": "#[test]\nfn f() {}\n",
        "crates/room/low/tests/all.rs": "#[test]\nfn f() {}\n",
        "crates/base/cl-sys/src/generated.rs": "fn f() {}\n",
    }
    counted = count.count(files)
    assert [counted["low"][at] for at in (0, 2, 3)] == [4, 1, 3]
    assert counted["cl-sys"][0] == 0
