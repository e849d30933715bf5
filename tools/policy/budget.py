"""Makes the growth of crates visible: budget.toml has the number of lines of Rust that each crate
may have, as count.py counts them.

A budget is raised in a commit of its own, whose message says why. So a reader of the history sees
each raise, and who adds code notices when it needs one. The raise comes before the code, because
then both commits keep the rules. A budget of a new crate comes with the crate, and a budget may be
lowered with any change.
"""

import subprocess
import tomllib

FILE = "tools/policy/budget.toml"
# What a commit that raises a budget may change.
OF_ITS_OWN = {FILE, "CHANGELOG.md"}


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


def newest_raise(root):
    """Returns the newest commit of the history that raises a budget, with the crates that it
    raises, or `None`. Older raises were judged when they were the newest one."""
    for commit in git(root, "log", "--no-merges", "--format=%h", "--", FILE).split():
        before, after = budgets_at(root, f"{commit}^"), budgets_at(root, commit)
        crates = [name for name in after if after[name] > before.get(name, after[name])]
        if crates:
            return commit, crates
    return None


def faults_of_raise(root, commit, crates):
    """Yields what is wrong with a commit that raises the budgets of `crates`."""
    changed = git(root, "diff-tree", "--no-commit-id", "--name-only", "-r", commit).splitlines()
    others = sorted(set(changed) - OF_ITS_OWN)
    raises = f"commit {commit} raises the budget of {', '.join(crates)}"
    if others:
        yield f"{raises} and changes {others[0]}, too: make the raise a commit of its own"
    if not git(root, "log", "-1", "--format=%b", commit).strip():
        yield f"{raises}, and its message has no text that says why"


def budgets_at(root, commit):
    return tomllib.loads(git(root, "show", f"{commit}:{FILE}")).get("lines", {})


def git(root, *words):
    """Returns what git prints, or nothing if git fails: in a tree without commits, for a commit
    without a parent, and for a file that a commit lacks."""
    return subprocess.run(
        ["git", "-C", root, *words], check=False, capture_output=True, text=True
    ).stdout
