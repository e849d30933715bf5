"""The cases of direct connections beside SSH. Each gets a folder of its own."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import time

from cases import must_lose_its_node, must_say, own_daemon
from patience import lane, runs, wait_for
from server import LOAD, Fault
from wire import VERSION

DIRECT = "TCP beside SSH"
# A firewall that drops packets costs at most 1 s, and twice the time of an answer through SSH. The
# lane `perf` judges it.
DROPPED_WITHIN_S = 3


def must_be_direct(place, count=1):
    ways = place.ways()
    if len(ways) != count:
        raise Fault(f"{len(ways)} sessions instead of {count}: {ways}")
    for way in ways:
        if way["name"] != DIRECT or not way["encryption"]:
            raise Fault(f"not direct and encrypted: {way}")


def must_go_through_ssh(place, why, **variables):
    """Runs a program, and checks that its session goes through SSH for this reason. Returns the
    seconds until its session was there."""
    began = time.monotonic()
    client = place.client("kernels", 600, **variables)
    client.wait_busy()
    took = time.monotonic() - began
    [way] = place.ways()
    if way["name"] != "SSH":
        raise Fault(f"not through SSH: {way}")
    must_say(way["why_not_better"], "all data goes through the SSH connection", why)
    must_say(place.penstock("status").stdout, "SSH (all data goes through", why)
    client.signal("TERM")
    client.must_be_right()
    place.must_be_left_alone()
    return took


def ports(place):
    """Returns the TCP ports at which the processes of the daemons listen."""
    pids = {
        pid for pid, words in place.processes().items() if "serve" in words or " worker" in words
    }
    said = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout
    found = []
    for line in said.splitlines():
        if any(f"pid={pid}," in line for pid in pids):
            found.append(int(line.split()[3].rsplit(":", 1)[1]))
    return found


def offered(path):
    """Returns the words of the last greeting that was copied."""
    line = path.read_bytes().split(b"penstock-bridge\x1e ")[-1].decode()
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


def sessions_are_direct_and_encrypted(place):
    place.client("check").must_be_right()
    busy = place.client("transfers", 600)
    busy.wait_busy()
    must_be_direct(place)
    must_say(place.penstock("status").stdout, f"{DIRECT}, encrypted (")
    # The tools and `penstock run` need no such connection, and the program of `penstock run` gets
    # one.
    found = place.penstock("run", "--no-local", "--", LOAD, "check")
    if found.returncode != 0:
        raise Fault(f"the program ended with {found.returncode}: {found.stderr}")
    # Nobody listens any more.
    wait_for(lambda: not ports(place), lambda: f"ports: {ports(place)}")
    # The login lasts as long as the session, and carries nothing.
    if not any("bridge" in words for words in place.others().values()):
        raise Fault(f"no bridge: {place.others()}")
    busy.kill()
    place.must_be_left_alone()


def connections(place):
    """Returns the number of TCP connections that the workers of all sessions have."""
    workers = [session["worker"] for status in place.status() for session in status["sessions"]]
    said = subprocess.run(["ss", "-Htnp"], capture_output=True, text=True, check=True).stdout
    lines = [line for line in said.splitlines() if line.startswith("ESTAB")]
    return sum(any(f"pid={pid}," in line for pid in workers) for line in lines)


def two_nodes_are_direct_at_once(place):
    """Each worker has a connection to the program, and one to the other worker. The daemons listen
    for that as long as the sessions go on."""
    for peers, expected in (("off", 2), ("on", 4)):
        client = place.client("both", 600, PENSTOCK_PEERS=peers)
        client.wait_busy()
        must_be_direct(place, 2)
        if place.servers[0].is_apart and connections(place) != expected:
            raise Fault(f"{connections(place)} connections with PENSTOCK_PEERS={peers}")
        client.signal("TERM")
        client.must_be_right()
        place.must_be_left_alone()
        wait_for(lambda: not ports(place), lambda: f"ports: {ports(place)}")


def a_daemon_with_two_names_has_one_direct_session(place):
    """The daemon proves its instance on the direct connections, too."""
    place.configure(common=place.servers[0].entry().replace("node0", "alias"))
    client = place.client("kernels", 600, PENSTOCK_NODES="ssh:node0,ssh:alias")
    client.wait_busy()
    must_be_direct(place)
    client.signal("TERM")
    client.must_be_right()
    place.must_be_left_alone()


def either_side_may_forbid_it(place):
    must_go_through_ssh(
        place, "because PENSTOCK_SSH_DIRECT=never on the client's host", PENSTOCK_SSH_DIRECT="never"
    )
    if ports(place):
        raise Fault(f"it listens: {ports(place)}")
    # A client that forbids it does not even ask.
    must_go_through_ssh(
        place,
        "because PENSTOCK_SSH_DIRECT=never on this host",
        PENSTOCK_SSH_BRIDGE="env PENSTOCK_SSH_DIRECT=never penstock bridge",
    )
    if ports(place):
        raise Fault(f"it listens: {ports(place)}")
    program = place.client("check", PENSTOCK_SSH_DIRECT="no")
    program.must_end("the program hangs")
    must_say("\n".join(program.lines), "PENSTOCK_SSH_DIRECT: `no` is not auto or never")


def a_port_that_refuses_leads_through_ssh(place):
    with socket.socket() as it:
        # Bound, so that nobody else listens there.
        it.bind(("127.0.0.1", 0))
        port = it.getsockname()[1]
        must_go_through_ssh(
            place,
            "the client was refused at this daemon's port",
            **place.meddling("direct=[0-9]+", f"direct={port}"),
        )


def a_port_that_drops_packets_leads_through_ssh_soon(place):
    """A listener whose queue is full: the system drops further packets, as a firewall does."""
    with contextlib.ExitStack() as held:
        full = held.enter_context(socket.socket())
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):
            waiting = held.enter_context(socket.socket())
            waiting.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                waiting.connect(full.getsockname())
        with contextlib.suppress(TimeoutError):
            socket.create_connection(full.getsockname(), timeout=1.5).close()
            raise Fault("the queue of the listener is not full")
        usual = must_go_through_ssh(
            place,
            "the direct one has failed",
            **place.meddling("once=[0-9a-f]+", "once=" + "0" * 64),
        )
        port = full.getsockname()[1]
        took = must_go_through_ssh(
            place,
            "the client got no answer at this daemon's port",
            **place.meddling("direct=[0-9]+", f"direct={port}"),
        )
    if runs("perf") and took > usual + DROPPED_WITHIN_S:
        raise Fault(f"{took:.1f} s instead of {usual:.1f} s")
    return f"{took:.2f} s until the session, instead of {usual:.2f} s"


def another_listener_is_not_believed(place):
    """Another key than the listener's, and a listener that speaks something else."""
    other = "ed25519:" + "A" * 43
    must_go_through_ssh(
        place,
        "the client has found another listener",
        **place.meddling("key=[^ ]+", f"key={other}"),
    )
    server = place.servers[0].port
    must_go_through_ssh(
        place,
        "the client has found another listener",
        **place.meddling("direct=[0-9]+", f"direct={server}"),
    )


def a_wrong_secret_leads_through_ssh(place):
    must_go_through_ssh(
        place, "the direct one has failed", **place.meddling("once=[0-9a-f]+", "once=" + "0" * 64)
    )


def a_key_that_was_used_is_refused(place):
    """A second client gets the greeting of the first one again."""
    copied = place.folder / "copied"
    first = place.client("kernels", 600, **place.meddling("--copy", copied))
    first.wait_busy()
    must_be_direct(place)
    used = offered(copied)
    for word in ("once", "key", "direct"):
        if word not in used:
            raise Fault(f"no {word} in {list(used)}")
    # The key of this client is good, and it gets the secret of the first one instead.
    second = place.client(
        "kernels", 600, **place.meddling("once=[0-9a-f]+", f"once={used['once']}")
    )
    second.wait_busy()
    names = sorted(way["name"] for way in place.ways())
    if names != ["SSH", DIRECT]:
        raise Fault(f"sessions over {names}")
    first.kill()
    second.kill()
    place.must_be_left_alone()


@lane("all")
def a_key_that_comes_too_late_has_expired(place):
    """The client gets the greeting after the life of its key, when nobody listens any more."""
    program = place.client("kernels", 600, **place.meddling("--wait", "33"))
    wait_for(lambda: ports(place), lambda: "nobody listens")
    wait_for(lambda: not ports(place), lambda: f"still open: {ports(place)}")
    program.wait_busy()
    [way] = place.ways()
    must_say(way["why_not_better"], "the client was refused at this daemon's port")
    program.kill()
    place.must_be_left_alone()


def strangers_at_the_port_are_refused(place):
    """Whoever connects to the port without a key gets nothing, and costs no session."""
    copied = place.folder / "copied"
    slow = place.client("check", **place.meddling("--wait", "8", "--copy", copied))
    wait_for(
        lambda: copied.exists() and b"direct=" in copied.read_bytes(),
        lambda: "no greeting",
    )
    port = int(offered(copied)["direct"])
    if port not in ports(place):
        raise Fault(f"{port} is not one of {ports(place)}")
    # The plain hello of a client, from another user of the host where this one may change to it.
    script = (
        f"exec 3<>/dev/tcp/127.0.0.1/{port}; "
        f"{{ printf 'PENSTOCK\\x{VERSION:02x}\\x00\\x01\\x00'; head -c 40 /dev/zero; }} >&3; "
        "timeout 20 head -c 12 <&3 | od -An -tx1"
    )
    other = {"user": 65534, "group": 65534, "extra_groups": []} if os.getuid() == 0 else {}
    command = ["/bin/bash", "-c", script]
    said = subprocess.run(command, cwd="/", capture_output=True, text=True, check=True, **other)
    # A welcome with the verdict 12: only encrypted links.
    must_say(" ".join(said.stdout.split()), f"50 45 4e 53 54 4f 43 4b {VERSION:02x} 00 0c 00")
    openssl = ["openssl", "s_client", "-tls1_3", "-connect", f"127.0.0.1:{port}"]
    tls = subprocess.run(
        openssl, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if tls.returncode == 0:
        raise Fault(f"openssl was let in: {tls.stdout[-300:]}")
    if place.ways():
        raise Fault(f"a stranger has a session: {place.ways()}")
    slow.must_be_right()
    place.must_be_left_alone()


def a_lost_login_does_not_end_a_direct_session(place):
    """Kills each process of the login of a busy session: the session does not need it."""
    for who in ("bridge", "ssh", "server"):
        client = place.client("again", 600)
        client.wait_busy()
        must_be_direct(place)
        chosen = {
            "bridge": [
                p
                for p, words in place.others().items()
                if "penstock bridge" in words and not words.startswith(("ssh ", "sh ", "/bin/sh"))
            ],
            "ssh": [p for p, words in place.others().items() if words.startswith("ssh ")],
            "server": place.sessions(),
        }[who]
        if not chosen:
            raise Fault(f"nothing of {who} to kill in {place.others()}")
        for pid in chosen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not place.sessions(), lambda: f"the login goes on: {place.sessions()}")
        before = len(client.lines)
        client.signal("TERM")
        client.must_be_right()
        lost = [line for line in client.lines[before:] if " is lost: " in line]
        if lost:
            raise Fault(f"{who}: {lost}")
        place.must_be_left_alone()


def a_lost_daemon_ends_a_direct_session(place):
    worst = 0
    for who in ("worker", "daemon"):
        client = place.client("again", 600)
        client.wait_busy()
        must_be_direct(place)
        [status] = place.status()
        pid = status["sessions"][0]["worker"] if who == "worker" else status["pid"]
        since = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        worst = max(worst, must_lose_its_node(client, since))
        place.must_be_left_alone()
    place.client("check").must_be_right()
    return f"error after {worst:.2f} s at most"


def a_killed_client_leaves_nothing_direct(place):
    for mode in ("transfers", "kernels"):
        client = place.client(mode, 600)
        client.wait_busy()
        must_be_direct(place)
        client.kill()
        place.must_be_left_alone()
        wait_for(lambda: not place.ways(), lambda: f"sessions: {place.ways()}")


@lane("all")
def a_direct_session_keeps_its_daemon(place):
    """The daemon does not end by itself while a key is good or a session goes on."""
    client = place.client("kernels", 14, **own_daemon(place, "--direct"))
    client.wait_busy()
    must_be_direct(place)
    client.must_be_right()
    wait_for(lambda: not place.processes(), lambda: f"left: {place.processes()}")


def the_client_writes_no_keys(place):
    place.client("check").must_be_right()
    left = [
        path
        for path in place.folder.rglob("*")
        if re.search("identity|known_nodes|authorized_clients", path.name)
    ]
    if left:
        raise Fault(f"files of keys: {left}")
    found = json.loads(place.penstock("devices", "--json", "--no-local").stdout)
    if len(found["devices"]) != 1:
        raise Fault(f"devices: {found}")


# Each case, and its number of servers. Those that take long come first.
CASES = {
    a_key_that_comes_too_late_has_expired: 1,
    strangers_at_the_port_are_refused: 1,
    a_direct_session_keeps_its_daemon: 1,
    sessions_are_direct_and_encrypted: 1,
    a_lost_login_does_not_end_a_direct_session: 1,
    a_port_that_drops_packets_leads_through_ssh_soon: 1,
    either_side_may_forbid_it: 1,
    another_listener_is_not_believed: 1,
    two_nodes_are_direct_at_once: 2,
    a_daemon_with_two_names_has_one_direct_session: 1,
    a_killed_client_leaves_nothing_direct: 1,
    a_lost_daemon_ends_a_direct_session: 1,
    a_key_that_was_used_is_refused: 1,
    a_wrong_secret_leads_through_ssh: 1,
    a_port_that_refuses_leads_through_ssh: 1,
    the_client_writes_no_keys: 1,
}
