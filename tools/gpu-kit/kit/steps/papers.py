"""The experiments of the papers: several clients of one GPU, and communication between devices."""

import json
import subprocess

from kit.pool import Pool, direct

SECONDS = 2
# Duration of one launch of a client.
LAUNCH_MS = 1


def sharing(session):
    """One, two and eight clients that keep the GPU busy: launches of all together, and the
    smallest part of one client."""
    program = session.root / "tests/cuda/sharing"
    rounds = session.command("rounds", [program, "measure", str(LAUNCH_MS)], direct(session), 20)
    if not rounds.is_good:
        session.judged("sharing", rounds)
        return
    words = rounds.text.split()[-1:]
    totals = {}
    with Pool(session, confine=session.confine) as pool:
        for way, env in (("driver", direct(session)), ("unix", pool.client())):
            for count in (1, 2, 8):
                if session.left() < SECONDS + 4:
                    return
                each = together(session, [program, "steady", str(SECONDS), *words], env, count)
                if not each:
                    session.item(f"{count} clients, {way}", "FAIL", "a client failed")
                    continue
                totals[way, count] = sum(each)
                figures = {
                    "launches/s": round(sum(each) / SECONDS),
                    "smallest part": round(min(each) / (sum(each) / count), 3),
                    "beside one client": round(sum(each) / totals.get((way, 1), sum(each)), 3),
                }
                session.item(f"{count} clients, {way}", "info", "", figures=figures)


def together(session, command, env, count):
    """Starts clients at the same moment. Returns their launches, or nothing if one failed."""
    clients = [
        session.program(f"client {number}", command, env, stdin=subprocess.PIPE)
        for number in range(count)
    ]
    for client in clients:
        if not client.has_said("ready", 20):
            break
    for client in clients:
        if client.process:
            try:
                client.process.stdin.write(b"\n")
                client.process.stdin.close()
            except OSError:
                pass
    results = [client.wait(min(SECONDS + 12, session.left())) for client in clients]
    for client, result in zip(clients, results):
        session.keep_log(f"{session.step}: {client.name}: {result.why()}", result.text)
    if not all(result.is_good for result in results):
        return []
    # A client prints "ended NUMBER" for each slice. In the first one, clients start one after
    # another.
    numbers = [[int(word) for word in it.text.split() if word.isdigit()] for it in results]
    return [sum(slices[1:]) for slices in numbers]


# Numbers of GPUs among two devices, devices that the daemon shows for each GPU.
COMM = (("a GPU as two devices", 2, "2"), ("a GPU and a CPU device", 1, "1"))
COMM_SIZES = "8,64,1024,4096,16384,65536,262144,1048576"


def comm(session):
    """`penstock bench comm` without energy: a GPU as two devices, and a GPU with a CPU device."""
    for name, gpus, each in COMM:
        compare_paths(
            session,
            name,
            gpus,
            COMM_SIZES,
            45,
            PENSTOCK_CUDA_EACH=each,
            PENSTOCK_ENERGY_NVML="/nonexistent",
        )


def energy(session):
    """The same with energy. NVML's counter makes each figure take 20 s."""
    name, gpus, each = COMM[0]
    compare_paths(session, name, gpus, "8", session.left(), PENSTOCK_CUDA_EACH=each)


def compare_paths(session, name, gpus, sizes, limit_s, **more):
    env = Pool(session, drivers=("cuda", "pocl")).serve
    env.update(PENSTOCK_NODES="none", PENSTOCK_CONFINE="off", **more)
    command = [session.root / "bin/penstock", "bench", "comm", "--json", "--quick"]
    command += ["--gpus", str(gpus), "--devices", "2", "--seconds", "0.2", "--sizes", sizes]
    command += ["--path", "device", "--path", "host-tcp"]
    result = session.command(name, command, env, limit_s)
    row = session.judged(name, result, result.why())
    try:
        found = json.loads(result.text[result.text.index("{\n") :])
    except ValueError:
        return
    row["points"] = found.get("points", [])
    row["figures"] = ratios(row["points"])
    covered = {name for point in row["points"] for name in point["energy"]["covered"]}
    if covered:
        row["figures"]["energy is that of"] = ", ".join(sorted(covered))


def ratios(points):
    """Returns for each measurement the host path's time over that of the device path, and the part
    of the energy that the device path saves."""
    found, by_key = {}, {}
    for point in points:
        key = (point.get("kind"), point.get("bytes"))
        by_key.setdefault(key, {})[point.get("path")] = point
    for (kind, size), paths in by_key.items():
        device, host = paths.get("device"), paths.get("host-tcp")
        if not device or not host:
            continue
        name = f"{kind} {size} B" if size else str(kind)
        times = [it.get("us") or 0 for it in (host, device)]
        if all(times):
            found[name] = round(times[0] / times[1], 2)
        joules = [(it.get("energy") or {}).get("joules") for it in (host, device)]
        if all(joules):
            found[f"{name}, energy saved"] = round(1 - joules[1] / joules[0], 3)
    return found


def heaps(session):
    """Symmetric heaps on the GPU: native_heaps.c, as in tests/cuda/gpu.sh."""
    program, module = session.root / "tests/cuda/native_heaps", session.root / "tests/heap.ptx"
    part = session.arguments.gpu_name
    if not program.exists():
        session.item("heaps", "lacks", "native_heaps was not built")
        return
    cases = [("one GPU as two devices", {"PENSTOCK_CUDA_EACH": "2"}, ("cuda",))]
    if (session.root / "lib/pocl/libpocl.so.2").exists():
        cases.append(("a GPU and a CPU device", {}, ("cuda", "pocl")))
    for name, more, drivers in cases:
        with Pool(session, "unix", drivers, session.confine, **more) as pool:
            result = session.command(f"heaps, {name}", [program, module, part], pool.client(), 30)
            row = session.judged(f"heaps, {name}", result)
            if row["verdict"] == "FAIL":
                row["tail"] += f"\n-- daemon\n{pool.said(5)}"
