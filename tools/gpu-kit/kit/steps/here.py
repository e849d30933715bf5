"""What is there: the GPU, the driver, what Penstock sees of them, and how far workers can be
confined."""

import json
import platform
import re
import sys

from kit.pool import Pool, direct
from kit.process import side_by_side

# What is worth a line in the log.
LOOK = """
ls -l /dev/nvidia* /dev/dri /dev/shm
ls -ld /usr/local/nvidia /usr/local/cuda*
ls /usr/local/nvidia/lib* | head -80
id; ulimit -a; df -h /tmp /dev/shm
cat /proc/version /sys/kernel/security/lsm /proc/driver/nvidia/params
env | grep -v -i -E 'key|token|secret|pass' | sort
ls -l /etc/OpenCL/vendors
command -v nvcc gcc ld mpirun mpicc bwrap
nvidia-smi topo -m
"""
LEVELS = ("full", "files", "calls", "basic", "off")


def work(session):
    session.facts["build"] = ", ".join((session.root / "VERSION").read_text().split())
    machine(session)
    driver = session.driver
    session.facts["libcuda"] = str(driver.cuda)
    session.facts["libnvidia-opencl"] = str(driver.opencl)
    session.facts["libnvidia-ml"] = str(driver.nvml)
    session.facts["libcudart of NVIDIA"] = str(driver.runtime)
    tools(session)
    if not driver.cuda:
        session.item("driver", "lacks", "no libcuda.so.1 of a driver was found")
        return
    side_by_side([lambda level=level: confined(session, level) for level in LEVELS], 5)
    works = [level for level in LEVELS if session.facts.get(f"confinement {level}") == "works"]
    session.confine = works[0] if works else "off"
    session.facts["confinement"] = f"{session.confine} is used" if works else "no level works"
    penstock_devices(session)


def machine(session):
    session.facts["system"] = f"{platform.platform()}, {session.cores} cores"
    session.facts["python"] = f"{sys.version.split()[0]} {sys.executable}"
    with open("/proc/meminfo", encoding="ascii") as info:
        session.facts["memory"] = info.readline().split(":")[1].strip()
    smi = session.driver.smi
    if not smi:
        session.item("nvidia-smi", "lacks", "there is no nvidia-smi")
        return
    env = direct(session)
    fields = (
        "name,driver_version,memory.total,memory.used,compute_cap,pcie.link.gen.current,"
        "pcie.link.width.current,compute_mode,mig.mode.current"
    )
    query = [smi, f"--query-gpu={fields}", "--format=csv,noheader"]
    result = session.command("nvidia-smi query", query, env, 20)
    session.judged("nvidia-smi", result)
    session.facts["gpu"] = result.last(200)
    session.command("nvidia-smi", [smi], env, 20)


def tools(session):
    """What else is worth a line in the log."""
    env = direct(session)
    session.command("what is here", ["/bin/sh", "-c", LOOK], env, 20)
    result = session.command(
        "penstock doctor", [session.root / "bin/penstock", "doctor", "--json"], env, 30
    )
    try:
        said = json.loads(result.text[result.text.index("{") :])
        session.facts["doctor"] = json.dumps(said)[:1500]
        session.item("penstock doctor", "info", f"{len(result.text)} bytes of JSON")
    except ValueError:
        session.item("penstock doctor", "FAIL", result.why(), tail=result.tail())


def confined(session, level):
    """Whether workers that are confined to this level can use the GPU: they list it, and run
    native.c."""
    with Pool(session, confine=level, log="info") as pool:
        if not pool.address:
            session.item(
                f"confinement {level}", "FAIL", "the daemon did not start", tail=pool.said(10)
            )
            return
        command = [session.root / "bin/penstock", "devices", "--json"]
        listed = session.command(f"devices, {level}", command, pool.client(), 25)
        ran = session.command(
            f"native, {level}", [session.root / "tests/cuda/native"], pool.client(), 25
        )
        status = session.command(
            f"status, {level}",
            [session.root / "bin/penstock", "status", "--json"],
            pool.client(),
            10,
        )
        reached = re.search(r'"level":\s*"(\w+)"', status.text)
        has_gpu = '"CUDA' in listed.text or "CUDA driver" in listed.text
        works = has_gpu and ran.code == 0
        # native.c also tests what is no matter of confinement. If it gets to its module, the
        # driver works.
        works = works or (has_gpu and "a broken module:" in ran.text)
        session.facts[f"confinement {level}"] = "works" if works else "does not work"
        note = (
            f"devices: {'the GPU' if has_gpu else 'no GPU'}; native: {ran.why()}; level: "
            f"{reached[1] if reached else '-'}"
        )
        verdict = "ok" if works else "FAIL"
        session.item(
            f"confinement {level}",
            verdict,
            note,
            tail="" if works else f"{ran.tail(5)}\n{pool.said(10)}",
        )


def penstock_devices(session):
    with Pool(session, drivers=("cuda", "nvidia", "pocl"), confine=session.confine) as pool:
        command = [session.root / "bin/penstock", "devices"]
        result = session.command("penstock devices", command, pool.client(), 25)
        session.judged("penstock devices", result)
        for line in result.text.splitlines()[1:]:
            session.item("device", "info", " ".join(line.split()))
        command.append("--json")
        result = session.command("penstock devices --json", command, pool.client(), 25)
    with Pool(session, confine=session.confine) as pool:
        tools = [("nvidia-smi through the pool", session.driver.smi)] if session.driver.smi else []
        for name, tool in tools:
            result = session.command(name, [tool, "-L"], pool.client(), 15)
            session.judged(name, result)
