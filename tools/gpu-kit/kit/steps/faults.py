"""Kills clients and workers in the middle of a kernel, and looks whether the GPU is free again."""

import os
import signal
import sys
import time

from kit.pool import Pool, direct

# The longest time until the GPU must have its memory back.
FREE_S = 10
# Memory that a worker in reserve may take meanwhile.
SLACK_MIB = 16
# The kernel runs this long if nobody ends it.
KERNEL_S = 30
# The time in which a client must hear of its worker's end.
HEARD_S = 4


def memory_used(session):
    """Returns the megabytes in use on the GPU, or None."""
    smi = session.driver.smi
    if not smi:
        return None
    query = [smi, "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    result = session.command("memory used", query, direct(session), 10)
    word = result.text.split()[:1]
    return int(word[0]) if result.is_good and word and word[0].isdigit() else None


def await_memory(session, before):
    """Waits until the GPU has no more memory in use than before. Returns the last reading."""
    end, used = time.monotonic() + FREE_S, None
    while time.monotonic() < end:
        used = memory_used(session)
        if used is None or before is None or used <= before + SLACK_MIB:
            break
        time.sleep(0.2)
    return used


def work(session):
    case(session, "kill -9 of the client", lambda client, pool: [client.process.pid])
    case(session, "kill -9 of the worker", lambda client, pool: busiest(pool))
    case(session, "kill -9 of the daemon", lambda client, pool: [pool.process.pid])


def busiest(pool):
    """Returns the worker of the client: the descendant with the most memory mapped."""

    def mapped(pid):
        try:
            with open(f"/proc/{pid}/statm", encoding="ascii") as file:
                return int(file.read().split()[1])
        except OSError:
            return 0

    return sorted(pool.workers(), key=mapped)[-1:]


def case(session, name, victims):
    with Pool(session, confine=session.confine) as pool:
        before = memory_used(session)
        spin = [sys.executable, session.root / "programs/spin.py", str(KERNEL_S)]
        client = session.program(name, spin, pool.client())
        if not client.has_said("running", 20):
            session.judged(name, client.wait(1), "the kernel did not start")
            return
        during = memory_used(session)
        killed = victims(client, pool)
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        began = time.monotonic()
        result = client.wait(HEARD_S)
        heard = time.monotonic() - began
        session.keep_log(f"{session.step}: {name}: client", result.text)
        after = await_memory(session, before)
        took = time.monotonic() - began
        is_free = after is None or before is None or after <= before + SLACK_MIB
        problems = [] if killed else ["no process to kill was found"]
        if result.code is None:
            problems.append(f"the client still ran after {HEARD_S} s")
        if not is_free:
            problems.append(f"{after} MiB in use, {before} before")
        again = again_works(session, pool) if pool.process.poll() is None else None
        if again is False:
            problems.append("the next client failed")
        session.item(
            name,
            "FAIL" if problems else "ok",
            "; ".join(problems) or result.last(),
            tail=f"{result.tail(4)}\n-- daemon\n{pool.said(6)}",
            figures={
                "MiB before": before,
                "during": during,
                "after": after,
                "client ended after s": round(heard, 2),
                "free after s": round(took, 2),
            },
        )


def again_works(session, pool):
    native = session.root / "tests/cuda/native"
    result = session.command("next client", [native], pool.client(), 15)
    return result.is_good or "a broken module:" in result.text
