"""A crate that is larger than its budget is found, and so is a raise that hides among changes."""

import subprocess

import pytest
from test_check import BUDGET, check, tree, write

__all__ = ["tree"]  # The fixture of a small working tree.

RAISED = BUDGET.replace("18", "19")


def commit(tree, message):
    names = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    for words in (["add", "-A"], [*names, "commit", "-q", "--allow-empty", "-m", message]):
        subprocess.run(["git", "-C", tree, *words], check=True)


def problems(tree):
    """Returns what the rule finds in the tree."""
    result = check(tree, "--rule", "budgets")
    return result.stdout if result.returncode else ""


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        (BUDGET.replace("18", "10"), "low has 11 lines of Rust, its budget is 10"),
        (BUDGET.replace("low = 18\n", ""), "low has 11 lines of Rust and no budget"),
        (BUDGET + "other = 1\n", "a budget for other, which is no crate"),
    ],
)
def test_a_crate_keeps_its_budget(tree, budget, message):
    write(tree, "tools/policy/budget.toml", budget)
    assert message in problems(tree)


def test_a_raise_of_its_own_passes(tree):
    commit(tree, "First")
    write(tree, "tools/policy/budget.toml", RAISED)
    write(tree, "CHANGELOG.md", "More.\n")
    commit(tree, "Room for c\n\nA reason.")
    assert problems(tree) == ""


@pytest.mark.parametrize("later", [False, True])
def test_a_raise_with_other_changes_is_found(tree, later):
    commit(tree, "First")
    write(tree, "tools/policy/budget.toml", RAISED)
    write(tree, "other.py", "")
    commit(tree, "More\n\nA reason.")
    if later:
        # A budget that shrinks later does not hide the raise.
        write(tree, "tools/policy/budget.toml", RAISED.replace("high = 3", "high = 2"))
        commit(tree, "Less")
    assert "raises the budget of low and changes other.py, too" in problems(tree)


def test_a_raise_without_a_reason_is_found(tree):
    commit(tree, "First")
    write(tree, "tools/policy/budget.toml", RAISED)
    commit(tree, "More")
    assert "has no text that says why" in problems(tree)


def test_a_lower_budget_and_that_of_a_new_crate_come_with_other_changes(tree):
    commit(tree, "First")
    write(tree, "tools/policy/budget.toml", BUDGET.replace("18", "17") + "new = 5\n")
    write(tree, "crates/room/new/src/lib.rs", "")
    commit(tree, "A crate")
    assert problems(tree) == ""
