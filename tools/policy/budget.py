"""Makes the growth of crates visible: budget.toml has the number of lines of Rust that each crate
may have, as count.py counts them.

A budget is raised in a commit of its own, whose message says why. So a reader of the history sees
each raise, and who adds code notices when it needs one. The raise comes before the code, because
then both commits keep the rules. A budget of a new crate comes with the crate, and a budget may be
lowered with any change.

Each raise of the history is judged. If one that breaks the rule has landed, a commit of its own
accepts it: `accepted = "COMMIT"` above the table of budget.toml, and only later ones are judged.
"""

import re
import subprocess
import tomllib

FILE = "tools/policy/budget.toml"
# What a commit that raises a budget may change.
OF_ITS_OWN = {FILE, "CHANGELOG.md"}
# A line of a message that gives no reason: a blank one, a trailer, or what git writes itself.
NO_REASON = re.compile(r"\s*$|[\w-]+:\s|\s+\S|\(cherry picked from")


class Unreadable(Exception):
    """The history cannot be read. The text says why."""


def overrun(counted, budgets):
    """Yields the crates without a budget, those above it, and budgets without a crate: the name,
    the number of lines, and what is wrong."""
    for name in sorted(counted.keys() | budgets.keys()):
        lines, budget = counted.get(name), budgets.get(name)
        if lines is None:
            yield name, 0, f"{FILE} has a budget for {name}, which is no crate"
        elif budget is None:
            yield name, lines, f"{name} has {lines} lines of Rust and no budget in {FILE}"
        elif lines > budget:
            text = f"{name} has {lines} lines of Rust, its budget is {budget}: make it smaller, or"
            yield name, lines, f"{text} raise the budget in a commit before, with the reason"


def unjudged(root):
    """Returns why the raises of the history cannot be judged here, or nothing if they can."""
    if run(root, "rev-parse", "--verify", "--quiet", "HEAD").returncode:
        return "this tree has no commit"
    if git(root, "rev-parse", "--is-shallow-repository").strip() == "true":
        return "this clone is shallow"
    return None


def faults(root, accepted):
    """Yields what is wrong with the raises behind the commit `accepted`, or with all raises of the
    history without one. Raises `Unreadable` if git fails."""
    span = "HEAD"
    if accepted:
        if run(root, "merge-base", "--is-ancestor", accepted, "HEAD").returncode:
            raise Unreadable(f"{FILE} accepts {accepted}, which is no commit of this history")
        span = f"{accepted}..HEAD"
    # The last figure of each crate, also of one whose line is gone.
    last = table_at(root, accepted)["lines"] if accepted else {}
    for commit in git(root, "rev-list", "--reverse", "--topo-order", span, "--", FILE).split():
        after = table_at(root, commit)
        parents = git(root, "rev-list", "--parents", "-1", commit).split()[1:]
        tables = [table_at(root, parent) for parent in parents]
        raised = [name for name in after["lines"] if is_raised(name, after, tables, last)]
        what = [f"raises the budget of {', '.join(raised)}"] if raised else []
        if tables and all(table["accepted"] != after["accepted"] for table in tables):
            what.append("accepts older raises")
        if what:
            yield from faults_of(root, commit, " and ".join(what))
        last |= after["lines"]


def is_raised(name, after, tables, last):
    """Returns whether a commit raises the figure of a crate. A figure that no parent has is
    compared with the last one in the history, so that a line cannot grow by being removed."""
    old = [table["lines"][name] for table in tables if name in table["lines"]]
    figure = after["lines"][name]
    return figure > (max(old) if old else last.get(name, figure))


def faults_of(root, commit, what):
    """Yields what is wrong with a commit that raises budgets or accepts raises."""
    what = f"commit {commit[:8]} {what}"
    changed = git(root, "diff-tree", "--no-commit-id", "--name-only", "-r", "-m", commit)
    others = sorted(set(changed.splitlines()) - OF_ITS_OWN)
    if others:
        yield f"{what} and changes {others[0]}, too: make the raise a commit of its own"
    lines = git(root, "log", "-1", "--format=%b", commit).splitlines()
    if all(NO_REASON.match(line) for line in lines):
        yield f"{what}, and its message has no text that says why"


def table_at(root, commit):
    """Returns the budgets and the accepted commit of this commit's file, which it may lack."""
    has_file = git(root, "ls-tree", commit, "--", FILE)
    text = git(root, "show", f"{commit}:{FILE}") if has_file else ""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Unreadable(f"{FILE} of commit {commit[:8]} is no TOML: {error}") from error
    return {"lines": table.get("lines", {}), "accepted": table.get("accepted")}


def git(root, *words):
    """Returns what git prints."""
    done = run(root, *words)
    if done.returncode:
        raise Unreadable(f"`git {' '.join(words)}` fails: {done.stderr.strip()}")
    return done.stdout


def run(root, *words):
    command = ["git", "-C", root, *words]
    return subprocess.run(command, check=False, capture_output=True, text=True)
