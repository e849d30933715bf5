"""clinfo's answers about NVIDIA's OpenCL on the driver and on a pool."""

import sys

from kit.pool import Pool, direct


def work(session):
    if not session.driver.opencl:
        session.item("clinfo", "lacks", "no libnvidia-opencl.so.1 was found")
        return
    clinfo = session.root / "bin/clinfo"
    answers = {}
    with Pool(session, "unix", ("nvidia",), session.confine) as pool:
        for way, env in (("driver", direct(session)), ("unix", pool.client())):
            result = session.command(f"clinfo, {way}", [clinfo, "--raw"], env, 15)
            answers[way] = session.work / f"clinfo-{way}.txt"
            answers[way].write_text(result.text)
            session.judged(f"clinfo, {way}", result, f"{len(result.text.splitlines())} answers")
    compare = [sys.executable, session.root / "tests/compare_clinfo.py"]
    result = session.command("comparison", [*compare, *answers.values()], direct(session), 10)
    session.judged("clinfo, comparison", result)
