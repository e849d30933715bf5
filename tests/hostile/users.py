"""Workers with users of their own: what Linux keeps kernels from at the levels that stop little.

Only a daemon of root can have such workers. Each attack must work where workers have the daemon's
user and the level is `off`, so that no test passes because the attack is broken.
"""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

import confinement
import escapes
from confinement import At, Kernel, own_folder
from node import Node
from patience import lane, wait_for
from processes import is_alive, tree
from wire import Client

# Another part of the attacks may run at the same time, and each daemon needs a range of its own.
FIRST = 3_100_000_000 + os.getpid() % 65536 * 512
LAST = FIRST + 511
RANGE = f"{FIRST}-{LAST}"

# Numbers of system calls on x86-64.
KILL, LINK, SYMLINK, PTRACE, SETSID, GETUID = 62, 86, 88, 101, 112, 102
SETUID, PTRACE_SEIZE = 105, 0x4206


@contextlib.contextmanager
def node_with_users(level, *options):
    """Starts a daemon whose workers have users of their own, at a place that they can reach."""
    cache = Path(tempfile.mkdtemp(prefix="penstock-users."))
    cache.chmod(0o711)
    environment = {"PENSTOCK_CONFINE": level}
    try:
        with Node(("--worker-users", RANGE, *options), environment, cache=cache / "cache") as node:
            # Only the rights of each file protect it from now on.
            node.folder.chmod(0o711)
            yield node
    finally:
        shutil.rmtree(cache, ignore_errors=True)


def users_of(process):
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("Uid:"):
            return {int(number) for number in line.split()[1:]}
    raise AssertionError(f"the process {process} has no user")


# Each attack returns whether it worked.


def signals_a_session(node, kernel):
    victim = Client(node).setup()
    try:
        return kernel.call(KILL, victim.worker, 0) == 0
    finally:
        victim.close()


def traces_a_session(node, kernel):
    victim = Client(node).setup()
    try:
        return kernel.call(PTRACE, PTRACE_SEIZE, victim.worker, 0, 0) == 0
    finally:
        victim.close()


def traces_the_daemon(node, kernel):
    return kernel.call(PTRACE, PTRACE_SEIZE, node.daemon.pid, 0, 0) == 0


def lists_folders_of_others(node, kernel):
    """The folder in which the caches of all users lie."""
    return kernel.open(Path(node.env["PENSTOCK_CACHE"]) / "users", os.O_DIRECTORY) >= 0


def becomes_root(node, kernel):
    """A thread of the worker asks to be root."""
    return kernel.call(SETUID, 0) == 0


STOPPED = [
    confinement.reads_memory_of_a_session_by_file,
    confinement.reads_memory_of_a_session_by_call,
    confinement.opens_memory_of_the_daemon,
    confinement.signals_the_daemon,
    confinement.reads_the_key,
    confinement.includes_a_key,
    confinement.reads_a_file_of_the_user,
    confinement.writes_a_file_of_the_user,
    escapes.opens_a_key_to_others,
    escapes.changes_the_priority_of_the_daemon,
    signals_a_session,
    lists_folders_of_others,
    becomes_root,
    traces_a_session,
    traces_the_daemon,
]


def make_private(node):
    """The files that the attacks want belong to root alone."""
    for name in ("key", "daemon.log"):
        (node.folder / name).chmod(0o600)


def tells_a_private_key(node, kernel):
    """As `includes_a_key`, whose file all users may read."""
    old = os.umask(0o077)
    try:
        return confinement.includes_a_key(node, kernel)
    finally:
        os.umask(old)


STOPPED[STOPPED.index(confinement.includes_a_key)] = tells_a_private_key


def attacks_work_without_users(_):
    with confinement.node_at("off", "pocl") as node:
        node.settle()
        kernel = Kernel(node)
        failed = [attack.__name__ for attack in STOPPED if not attack(node, kernel)]
        assert not failed, f"these attacks are broken: {failed}"
        kernel.client.close()
        node.must_live()
        return f"{len(STOPPED)} attacks work"


def attacks_at(level):
    def run(_):
        with node_with_users(level) as node:
            node.settle()
            make_private(node)
            told = node.control()
            assert told["worker_users"] == RANGE, told
            assert told["confinement"]["level"] == level, told["confinement"]
            kernel, other = Kernel(node), Kernel(node)
            found = [users_of(it.client.worker) for it in (kernel, other)]
            assert all(len(users) == 1 for users in found) and found[0] != found[1], found
            assert all(FIRST <= min(users) <= LAST for users in found), found
            assert kernel.call(GETUID) == min(found[0])
            sessions = {it["worker"]: it["worker_user"] for it in node.control()["sessions"]}
            assert sessions[kernel.client.worker] == min(found[0]), sessions
            for line in Path(f"/proc/{kernel.client.worker}/status").read_text().splitlines():
                if line.startswith(("CapPrm:", "CapEff:", "CapAmb:")):
                    assert int(line.split()[1], 16) == 0, line
                if line.startswith("Groups:"):
                    assert "0" not in line.split()[1:], line
                if line.startswith("NoNewPrivs:"):
                    assert line.split()[1] == "1", line
            worked = [attack.__name__ for attack in STOPPED if attack(node, kernel)]
            assert not worked, f"at the level {level}: {worked} worked"
            for it in (kernel, other):
                it.client.close()
            Client(node).works().close()
            node.must_live()
            return f"{len(STOPPED)} attacks stopped"

    run.__name__ = f"kernels_with_own_users_at_level_{level}"
    return lane("test" if level == "off" else "all")(run)


def leaves_its_group(kernel):
    """Has the kernel start a process that leaves the group that the daemon ends. Returns it."""
    worker = kernel.client.worker
    program = os.readlink(f"/proc/{worker}/exe")
    words = escapes.words_of((0, [escapes.CLONE, escapes.SPAWN]), (48, [SETSID]))
    escapes.launch(kernel, "leave_a_child", words)
    found = []

    def has_left():
        children = (it for it in tree(worker) if escapes.program_of(it) == program)
        found[:] = [it for it in children if os.getsid(it) == it]
        return found

    wait_for(has_left, "no process has left the group")
    return found[0]


def a_process_that_leaves_its_group(_):
    """It lives on where workers have the daemon's user, and ends with its session otherwise."""
    with confinement.node_at("off", "pocl") as node:
        kernel = Kernel(node)
        child, worker = leaves_its_group(kernel), kernel.client.worker
        kernel.client.close()
        wait_for(lambda: not is_alive(worker), "the worker lives on")
        node.settle()
        lives_on = is_alive(child)
        if lives_on:
            os.kill(child, 9)
        assert lives_on or node.control()["control_groups"]["limits"], "the attack is broken"
    with node_with_users("off") as node:
        kernel = Kernel(node)
        child = leaves_its_group(kernel)
        kernel.client.close()
        wait_for(lambda: not is_alive(child), "the process lives on")
        node.settle()


def a_cache_that_changes_its_owner(_):
    """A user's cache comes to a worker with another user. What a kernel has left in it changes
    nothing outside."""
    with node_with_users("off") as node:
        make_private(node)
        kernel = Kernel(node)
        folder, first = own_folder(node, kernel.client.worker), users_of(kernel.client.worker)
        assert (folder / "cache").stat().st_uid == min(first)
        link = target(kernel, folder, "a")
        assert kernel.call(SYMLINK, kernel.path(node.folder / "key"), link) == 0
        # Linux may refuse this by itself.
        kernel.call(LINK, kernel.path(node.folder / "key"), target(kernel, folder, "b"))
        kernel.client.close()
        kept = Path(node.env["PENSTOCK_CACHE"]) / "users" / "0" / "0"
        wait_for(kept.exists, "the cache is not kept")
        files = [path for path in kept.rglob("*")]
        assert any(path.is_file() for path in files), files
        owners = {path.lstat().st_uid for path in files}
        assert owners == {0} and not (kept / "a").is_symlink() and not (kept / "b").exists()
        # The workers that wait have users already, and one of them gets the cache.
        again = Kernel(node)
        folder, second = own_folder(node, again.client.worker), users_of(again.client.worker)
        assert first != second
        wait_for(lambda: not kept.exists(), "nobody got the cache")
        owners = {path.lstat().st_uid for path in (folder / "cache").rglob("*")}
        assert owners == second, (owners, second)
        again.client.close()
        about = (node.folder / "key").stat()
        assert (about.st_uid, about.st_mode & 0o777) == (0, 0o600), about


def target(kernel, folder, name):
    kernel.put(2048, os.fsencode(folder / "cache" / name) + b"\0")
    return At(2048)


def a_range_that_cannot_be_used(_):
    """A daemon that cannot give its workers users does not start."""
    for users, words in (
        ("0-1000", "root"),
        ("600000-600010", "512"),
        ("1-600", "has the number"),
    ):
        try:
            Node(("--worker-users", users)).stop()
        except AssertionError as refused:
            assert "did not start" in str(refused) and words in str(refused), refused
        else:
            raise AssertionError(f"a daemon started with {users}")


ATTACKS = (
    [attacks_work_without_users]
    + [attacks_at(level) for level in ("off", "basic", "full")]
    + [
        a_process_that_leaves_its_group,
        a_cache_that_changes_its_owner,
        a_range_that_cannot_be_used,
    ]
    if os.getuid() == 0
    else []
)
