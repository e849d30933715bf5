"""The cases. Each gets a folder of its own."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import time

from patience import PATIENCE_S, lane, wait_for
from server import BIN, LOAD, Fault, keygen


def must_say(said, *parts):
    for part in parts:
        if part not in said:
            raise Fault(f"`{part}` is missing in: {said[-700:]}")


def must_lose_its_node(client, since, *parts):
    """Checks that a program that goes on after errors gets one, and a line with the reason.
    A program that ends at its first error could end before another thread has printed that line.
    Returns the seconds until the error."""
    wait_for(
        lambda: (
            any(line.startswith("failed ") for line in client.lines)
            and any(" is lost: " in line for line in client.lines)
        ),
        lambda: f"no error and no reason: {client.lines[-3:]}",
    )
    stamps = [
        stamp for line, stamp in zip(client.lines, client.stamps) if line.startswith("failed ")
    ]
    must_say("\n".join(line for line in client.lines if " is lost: " in line), *parts)
    client.signal("TERM")
    client.must_be_right()
    return stamps[0] - since


def refused(place, *parts, **variables):
    """Checks that a node is left out with this reason, by the command and by a program."""
    run = place.penstock("run", "--no-local", "--", "true", **variables)
    must_say(run.stderr, "node ssh:node0 is missing: cannot reach ssh:node0: ", *parts)
    must_say(run.stderr, "no node of the pool answers")
    if run.returncode != 125:
        raise Fault(f"penstock run ended with {run.returncode}")
    program = place.client("check", **variables)
    program.must_end("the program hangs")
    must_say("\n".join(program.lines), "node ssh:node0 is left out: ", *parts)
    place.must_be_left_alone()


def programs_get_right_results(place):
    place.client("check").must_be_right()
    found = place.penstock("run", "--no-local", "--", "clinfo", "-l")
    must_say(found.stdout, "Platform #0: Penstock", "Device #0: ")
    busy = place.client("transfers", 600)
    busy.wait_busy()
    table = place.penstock("status").stdout
    must_say(
        table, "SSH (all data goes through the SSH connection, because PENSTOCK_SSH_DIRECT=never"
    )
    busy.kill()
    place.must_be_left_alone()


def two_nodes_are_used_at_once(place):
    found = json.loads(place.penstock("devices", "--json", "--no-local").stdout)
    if len(found["devices"]) != 2:
        raise Fault(f"there are not two devices: {found}")
    client = place.client("both", 600)
    client.wait_busy()
    served = [len(status["sessions"]) for status in place.status()]
    if served != [1, 1]:
        raise Fault(f"the nodes serve {served} sessions")
    client.signal("TERM")
    client.must_be_right()
    place.must_be_left_alone()


def a_daemon_with_two_names_is_one_node(place):
    place.configure(common=place.servers[0].entry().replace("node0", "alias"))
    found = place.penstock("devices", "--json", "--no-local", PENSTOCK_NODES="ssh:node0,ssh:alias")
    if len(json.loads(found.stdout)["devices"]) != 1:
        raise Fault(f"one daemon counts twice: {found.stdout}")


def a_node_without_penstock(place):
    refused(
        place,
        "it has no `penstock` in the PATH",
        "install Penstock there",
        PENSTOCK_SSH_BRIDGE="no-such-penstock bridge",
    )


def a_host_without_ssh(place):
    refused(place, "this host has no program `/no/ssh`", PENSTOCK_SSH="/no/ssh -F x")


def a_host_key_that_has_changed(place):
    keygen(place.folder / "other")
    other = " ".join((place.folder / "other.pub").read_text().split()[:2])
    place.configure(keys=[other])
    refused(place, "its host key is not the one that SSH knows", "administrator")


def a_host_key_that_is_not_known(place):
    (place.folder / "known").write_text("")
    refused(place, "SSH does not know its host key yet", "once in a terminal")


def a_password_that_nobody_can_type(place):
    (place.servers[0].folder / "authorized").write_text("")
    refused(place, "SSH was not let in without a question (", "ssh-add")


def a_server_that_is_not_there(place):
    place.servers[0].close()
    refused(place, "no SSH server answers at its port")


def a_daemon_that_cannot_start(place):
    refused(
        place,
        "ended with status 1 before it was a bridge (penstock: ",
        PENSTOCK_SSH_BRIDGE="XDG_RUNTIME_DIR=/proc penstock bridge",
    )


def logins_may_write_before_the_bridge(place):
    for noise in ("echo Welcome", "printf 'no line feed'", "head -c 60000 /dev/zero", "seq 9000"):
        program = place.client("check", PENSTOCK_SSH_BRIDGE=f"{noise}; exec penstock bridge")
        program.must_be_right()
    refused(
        place,
        "its login scripts write more than 64 KiB to standard output (it wrote: y)",
        PENSTOCK_SSH_BRIDGE="yes | head -c 99999; exec penstock bridge",
    )


def a_connection_that_breaks(place):
    """Kills the server's process of a busy session, and then `ssh` itself."""
    worst = 0
    for who in ("server", "ssh"):
        client = place.client("again", 600)
        client.wait_busy()
        victims = (
            place.sessions()
            if who == "server"
            else [pid for pid, words in place.others().items() if words.startswith("ssh ")]
        )
        if not victims:
            raise Fault(f"nothing of {who} to kill in {place.others()}")
        since = time.monotonic()
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        reason = "(ssh:node0) is lost: the connection through SSH has ended: "
        worst = max(worst, must_lose_its_node(client, since, reason))
        place.must_be_left_alone()
    place.client("check").must_be_right()
    return f"error after {worst:.2f} s at most"


@lane("all")
def a_node_that_falls_silent(place):
    """Stops the server's process, as a lost network does for the client."""
    client = place.client("again", 600)
    client.wait_busy()
    stopped = place.sessions()
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    since = time.monotonic()
    try:
        took = must_lose_its_node(client, since, "has not answered for 15 s")
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGKILL)
    place.must_be_left_alone()
    return f"error after {took:.1f} s"


def a_killed_client_leaves_nothing(place):
    for mode in ("transfers", "kernels"):
        client = place.client(mode, 600)
        client.wait_busy()
        if len([words for words in place.others().values() if "bridge" in words]) < 2:
            raise Fault(f"no bridge in {place.others()}")
        client.kill()
        place.must_be_left_alone()
        wait_for(lambda: not place.status()[0]["sessions"], lambda: f"sessions: {place.status()}")
    place.client("check").must_be_right()


def many_bridges_start_one_daemon(place):
    commands = [
        subprocess.Popen(
            ["ssh", "-F", place.folder / "ssh_config", "node0", "penstock bridge --check"],
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        for _ in range(8)
    ]
    said = [command.communicate(timeout=PATIENCE_S)[0] for command in commands]
    started = [line for line in said if "was started and listens on unix:" in line]
    found = [line for line in said if line.startswith("your daemon listens on unix:")]
    if len(started) != 1 or len(found) != 7:
        raise Fault(f"not one daemon: {said}")
    # A login must not wait for the daemon that it started, and the daemon has a session of its own.
    daemons = [pid for pid, words in place.processes().items() if "serve --detached" in words]
    if len(daemons) != 1 or os.getsid(daemons[0]) != daemons[0]:
        raise Fault(f"daemons: {daemons}")
    place.must_be_left_alone()


def own_daemon(place, *more):
    """Returns the setting with which a login starts a daemon that ends by itself, and its bridge
    when the daemon listens. An honest client comes within the daemon's 10 s also on a slow host."""
    told = f"{place.folder}/told"
    serve = f"penstock serve --idle-end 10 >{told} 2>/dev/null"
    ready = f"until grep -qs listening {told}; do sleep 0.1; done"
    bridge = f"sh -c '{serve} & {ready}; exec {' '.join(('penstock bridge', *more))}'"
    return {"PENSTOCK_SSH_BRIDGE": bridge}


@lane("all")
def a_daemon_that_nobody_uses_ends(place):
    """The daemon ends by itself, but not while it has a client."""
    client = place.client("kernels", 14, **own_daemon(place))
    client.must_be_right()
    wait_for(lambda: not place.processes(), lambda: f"left: {place.processes()}")
    left = list((place.servers[0].folder / "run").rglob("*.sock"))
    if left:
        raise Fault(f"sockets left: {left}")
    # The next program starts another daemon.
    place.client("check").must_be_right()


def a_run_logs_in_once(place):
    """`penstock run` and its program share one connection, which ends with the program."""
    before = place.servers[0].logins()
    env = {"PENSTOCK_SSH": place.env["PENSTOCK_SSH"]}
    run = place.penstock("run", "--no-local", "--", LOAD, "check", **env)
    if run.returncode != 0:
        raise Fault(f"the program ended with {run.returncode}: {run.stdout}{run.stderr}")
    logins = place.servers[0].logins() - before
    if logins != 1:
        raise Fault(f"{logins} logins instead of one")
    place.must_be_left_alone()
    left = list((place.folder / "run").rglob("ssh-*"))
    if left:
        raise Fault(f"left: {left}")


def a_person_is_asked_at_a_terminal_only(place):
    """A key with a passphrase: a program says so, and `penstock run` asks once, for its program,
    too."""
    user = place.servers[0].folder / "user"
    subprocess.run(
        ["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", user],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    refused(place, "SSH was not let in without a question (")
    pid, terminal = pty.fork()
    if pid == 0:
        env = place.env | {"PENSTOCK_NODES": place.nodes}
        words = [str(BIN / "penstock"), "run", "--no-local", "--", str(LOAD), "check"]
        os.execve(words[0], words, env)
    said, answers = "", 0
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if not select.select([terminal], [], [], 1)[0]:
            continue
        try:
            said += os.read(terminal, 4096).decode(errors="replace")
        except OSError:
            break
        if len(re.findall("Enter passphrase for key", said)) > answers:
            answers += 1
            os.write(terminal, b"secret\n")
    os.close(terminal)
    os.kill(pid, signal.SIGHUP) if time.monotonic() >= end else None
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code != 0 or answers != 1:
        raise Fault(f"ended with {code} after {answers} questions: {said}")
    place.must_be_left_alone()


# Each case, and its number of servers. Those that take long come first.
CASES = {
    a_node_that_falls_silent: 1,
    programs_get_right_results: 1,
    two_nodes_are_used_at_once: 2,
    a_connection_that_breaks: 1,
    a_killed_client_leaves_nothing: 1,
    a_daemon_that_nobody_uses_ends: 1,
    logins_may_write_before_the_bridge: 1,
    a_person_is_asked_at_a_terminal_only: 1,
    a_run_logs_in_once: 1,
    many_bridges_start_one_daemon: 1,
    a_daemon_with_two_names_is_one_node: 1,
    a_node_without_penstock: 1,
    a_host_without_ssh: 1,
    a_host_key_that_has_changed: 1,
    a_host_key_that_is_not_known: 1,
    a_password_that_nobody_can_type: 1,
    a_server_that_is_not_there: 1,
    a_daemon_that_cannot_start: 1,
}
