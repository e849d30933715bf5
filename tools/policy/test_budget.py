"""A crate that is larger than its budget is found, and so is a raise that hides among changes."""

import subprocess

import pytest
from test_check import BUDGET, check, tree, write

__all__ = ["tree"]  # The fixture of a small working tree.

RAISED = BUDGET.replace("18", "19")


WHO = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")


def commit(tree, message):
    for words in (["add", "-A"], [*WHO, "commit", "-q", "--allow-empty", "-m", message]):
        subprocess.run(["git", "-C", tree, *words], check=True)


def git(tree, *words):
    command = ["git", "-C", tree, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def raise_badly(tree):
    """Makes a commit that raises a budget among other changes."""
    commit(tree, "First")
    write(tree, "tools/policy/budget.toml", RAISED)
    write(tree, "other.py", "")
    commit(tree, "More\n\nA reason.")


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


@pytest.mark.parametrize("body", ["", "\n\nSigned-off-by: a <a@b>\nFixes: 3,\n 4"])
def test_a_raise_without_a_reason_is_found(tree, body):
    commit(tree, "First")
    write(tree, "tools/policy/budget.toml", RAISED)
    commit(tree, f"More{body}")
    assert "has no text that says why" in problems(tree)


def test_a_later_raise_does_not_hide_one_with_other_changes(tree):
    raise_badly(tree)
    write(tree, "tools/policy/budget.toml", RAISED.replace("19", "20"))
    commit(tree, "Even more\n\nA reason.")
    assert "raises the budget of low and changes other.py, too" in problems(tree)


@pytest.mark.parametrize(("figure", "is_raise"), [(18, False), (99, True)])
def test_a_line_that_is_removed_and_added_again_is_compared(tree, figure, is_raise):
    commit(tree, "First")
    write(tree, "tools/policy/budget.toml", BUDGET.replace("low = 18\n", ""))
    commit(tree, "Less")
    write(tree, "tools/policy/budget.toml", BUDGET.replace("18", str(figure)))
    write(tree, "other.py", "")
    commit(tree, "More\n\nA reason.")
    assert ("raises the budget of low and changes other.py" in problems(tree)) == is_raise


def test_a_raise_in_a_merge_is_found(tree):
    commit(tree, "First")
    git(tree, "checkout", "-q", "-b", "side")
    write(tree, "CHANGELOG.md", "More.\n")
    commit(tree, "Side")
    git(tree, "checkout", "-q", "-")
    write(tree, "other.py", "")
    commit(tree, "Main")
    git(tree, *WHO, "merge", "-q", "--no-commit", "side")
    assert problems(tree) == ""
    write(tree, "tools/policy/budget.toml", RAISED)
    commit(tree, "Merge\n\nA reason.")
    assert "raises the budget of low and changes other.py, too" in problems(tree)


def test_a_branch_that_does_not_know_a_lower_budget_raises_nothing(tree):
    commit(tree, "First")
    git(tree, "checkout", "-q", "-b", "side")
    write(tree, "tools/policy/budget.toml", BUDGET.replace("high = 3", "high = 2"))
    write(tree, "other.py", "")
    commit(tree, "Side")
    git(tree, "checkout", "-q", "-")
    write(tree, "tools/policy/budget.toml", BUDGET.replace("18", "17"))
    write(tree, "another.py", "")
    commit(tree, "Main")
    # Git cannot merge lines beside each other.
    write(tree, "tools/policy/budget.toml", BUDGET.replace("18", "17").replace("= 3", "= 2"))
    git(tree, *WHO, "merge", "-q", "--no-commit", "-s", "ours", "side")
    commit(tree, "Merge")
    assert problems(tree) == ""


@pytest.mark.parametrize(("other", "is_found"), [(None, False), ("more.py", True)])
def test_a_commit_of_its_own_accepts_a_raise(tree, other, is_found):
    raise_badly(tree)
    accepted = git(tree, "rev-parse", "HEAD").strip()
    write(tree, "tools/policy/budget.toml", f'accepted = "{accepted}"\n{RAISED}')
    if other:
        write(tree, other, "")
    commit(tree, "Accept it\n\nA reason.")
    assert ("accepts older raises and changes more.py" in problems(tree)) == is_found
    assert "raises the budget" not in problems(tree)
    more = RAISED.replace("19", "20")
    write(tree, "tools/policy/budget.toml", f'accepted = "{accepted}"\n{more}')
    commit(tree, "More")
    assert "raises the budget of low, and its message has no text" in problems(tree)


def test_a_history_that_cannot_be_read_is_told(tree):
    raise_badly(tree)
    write(tree, "tools/policy/budget.toml", f'accepted = "0123456"\n{RAISED}')
    assert "accepts 0123456, which is no commit of this history" in problems(tree)
    write(tree, "tools/policy/budget.toml", RAISED)
    lost = git(tree, "rev-parse", "HEAD~:tools/policy/budget.toml").strip()
    (tree / ".git/objects" / lost[:2] / lost[2:]).unlink()
    assert "the raises cannot be judged: `git show" in problems(tree)


def test_a_shallow_clone_says_that_it_judges_no_raises(tree, tmp_path_factory):
    raise_badly(tree)
    clone = tmp_path_factory.mktemp("clone")
    git(tree, "clone", "-q", "--depth", "1", f"file://{tree}", clone)
    result = check(clone, "--rule", "budgets")
    assert result.returncode == 0, result.stdout
    assert "the raises are not judged, because this clone is shallow" in result.stderr


def test_a_lower_budget_and_that_of_a_new_crate_come_with_other_changes(tree):
    commit(tree, "First")
    write(tree, "tools/policy/budget.toml", BUDGET.replace("18", "17") + "new = 5\n")
    write(tree, "crates/room/new/src/lib.rs", "")
    commit(tree, "A crate")
    assert problems(tree) == ""
