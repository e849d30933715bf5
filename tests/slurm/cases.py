"""The cases. All of them use one cluster, and leave it as it was."""

import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

from cluster import BIN, HERE, ROOT, CORES, DEVICES, NODE_LOST_S, WITH_DEVICES, Fault, seconds_since
from node import LOAD
from patience import PATIENCE_S, wait_for
from processes import parent_of
from tally import Skipped

TWO = ("--nodes=2", "--ntasks=2")
RUN = "penstock slurm --"
# A program that computes on all devices until it is ended.
LONG = f"{LOAD} both 600"
# What that program says at its first error. It may end before its library names the lost node.
LOST = "error -"


def devices_of(text):
    return json.loads(text[text.index("{") : text.rindex("}") + 1])["devices"]


def units_of(devices):
    return [device["compute_units"] for device in devices]


def start_long(cluster, script=f"{RUN} {LONG}", *options):
    """Submits a job on two nodes, and waits until its program computes on both."""
    job = cluster.submit(script, *(options or TWO))
    job.wait_said("busy")
    cluster.daemons(2)
    return job


def two_nodes_compute(cluster):
    job = cluster.submit(f"{RUN} clinfo -l && {RUN} {LOAD} check && {RUN} {LOAD} both 1", *TWO)
    job.must_end().must_say("Platform #0: Penstock", "Device #0: ", "Device #1: ", "done")


def links_are_the_best_ones(cluster):
    """The program shares memory with the daemon of its node. The other link is encrypted."""
    script = f"{RUN} bash -c '{LOAD} both 600 >log & until grep -qs busy log; do sleep 0.05; done;"
    script += " penstock status --json; kill $!; wait; rm log'"
    job = cluster.submit(script, *TWO).must_end()
    ways = {
        node["status"]["host"]: session["transport"]
        for node in json.loads(job.said()[job.said().index("{") :])["nodes"]
        for session in node["status"]["sessions"]
    }
    if not ways["n1"]["shares_memory"] or not ways["n2"]["encryption"]:
        raise Fault(f"the links are {ways}")
    known = list((cluster.folder / "home").rglob("known_nodes"))
    if known:
        raise Fault(f"a job writes into {known}")


def the_exit_status_is_the_programs(cluster):
    said = {
        f"{RUN} sh -c 'exit 7'": "7",
        f"{RUN} sh -c 'kill -9 $$'": "137",
        f"{RUN} no-such-program": "127",
        "penstock slurm --het-group 1 -- true": "125",
        f"env -u SLURM_JOB_NODELIST {RUN} true": "125",
        f"srun -n2 --overlap {RUN} true": "125",
        f"echo in | {RUN} cat": "0",
    }
    job = cluster.submit("; ".join(f"{script}; echo status $?" for script in said), *TWO)
    job.must_end()
    found = re.findall(r"^status (\d+)$", job.said(), re.MULTILINE)
    if found != list(said.values()):
        raise Fault(f"the exit statuses are {found}: {job.said()}")
    job.must_say("the job has no component 1", "is no job of Slurm", "once for the job", "\nin\n")


def a_failing_job_fails(cluster):
    job = cluster.submit(f"exec {RUN} sh -c 'exit 3'", *TWO).must_end("FAILED")
    if job.state()[1] != "3:0":
        raise Fault(f"the job is {job.state()}")


def a_signal_is_passed_on(cluster):
    script = 'trap "echo got it; exit 9" TERM; echo busy; while :; do sleep 0.05; done'
    job = cluster.submit(f"{RUN} bash -c '{script}'; echo status $?", *TWO)
    job.wait_said("busy")
    for pid in cluster.of_penstock(" slurm -- "):
        os.kill(pid, signal.SIGTERM)
    job.must_end().must_say("got it", "status 9")


def a_job_is_cancelled(cluster):
    job = start_long(cluster)
    began = time.monotonic()
    job.cancel()
    job.must_end("CANCELLED")
    cluster.must_be_left_alone()
    return seconds_since(began)


def a_job_is_cancelled_whose_program_ignores_that(cluster):
    job = start_long(cluster, f"trap '' TERM; {RUN} bash -c \"trap '' TERM; {LONG}\"")
    job.cancel()
    job.must_end("CANCELLED")


def only_the_script_of_a_job_is_killed(cluster):
    """Slurm kills what the script has left behind, and then the other steps."""
    job = start_long(cluster)
    job.cancel("--batch", "--signal=KILL")
    job.must_end("FAILED")


def a_job_reaches_its_time_limit(cluster):
    job = start_long(cluster)
    cluster.do("scontrol", "update", f"JobId={job.number}", "TimeLimit=1")
    # Slurm looks twice a minute.
    job.must_end("TIMEOUT", 3 * PATIENCE_S)


def the_command_is_killed(cluster):
    """The program and the daemons end while the job goes on."""
    wait = "until [ -e over ]; do sleep 0.05; done"
    job = start_long(cluster, f"{RUN} {LONG}; echo status $?; {wait}")
    for pid in cluster.of_penstock(" slurm -- "):
        os.kill(pid, signal.SIGKILL)
    job.wait_said("status 137")
    wait_for(
        lambda: not cluster.of_penstock() and not cluster.files(),
        lambda: f"left: {cluster.of_penstock()} {cluster.files()}",
    )
    if [words for words in cluster.processes().values() if words.startswith(str(LOAD))]:
        raise Fault("the program outlives the command")
    (cluster.folder / "over").touch()
    job.must_end()
    (cluster.folder / "over").unlink()


def srun_is_killed(cluster):
    """Slurm ends the step, and the program learns that its nodes are lost."""
    job = start_long(cluster)
    all_words = cluster.processes()
    [srun] = [pid for pid, words in all_words.items() if is_first_srun(all_words, pid, words)]
    os.kill(srun, signal.SIGKILL)
    job.must_end("FAILED").must_say(LOST)


def is_first_srun(all_words, pid, words):
    """Whether a process is an srun, and not the process that watches an srun."""
    return words.startswith("srun ") and not all_words[parent_of(pid)].startswith("srun ")


def a_daemon_is_killed(cluster):
    job = start_long(cluster)
    for pid in cluster.of_penstock(" serve "):
        if cluster.on("n2", pid):
            os.kill(pid, signal.SIGKILL)
    job.must_end("FAILED").must_say(LOST)


def a_node_dies(cluster):
    job = start_long(cluster)
    dead = [pid for pid in cluster.processes() if cluster.on("n2", pid)]
    for pid in dead:
        os.kill(pid, signal.SIGKILL)
    cluster.slurmd.pop("n2")
    # The program has lost its node at once, and its script ends, or Slurm ends the job later.
    wait_for(job.has_ended, lambda: f"{job.state()} {job.said()}", PATIENCE_S + NODE_LOST_S)
    job.must_say(LOST)
    wait_for(
        lambda: not cluster.of_penstock() and not cluster.files(),
        lambda: f"left: {cluster.of_penstock()} {cluster.files()}",
    )
    cluster.start_node("n2")


def a_heterogeneous_job(cluster):
    """One node for the program, two nodes with one core of each for the devices."""
    lines = "#SBATCH --nodes=1 --ntasks=1 --cpus-per-task=2\n#SBATCH hetjob\n"
    lines += "#SBATCH --nodes=2 --ntasks=2\n"
    ask = "penstock devices --json"
    job = cluster.submit(f"{lines}{RUN} {ask}\necho next\npenstock slurm --het-group 1 -- {ask}")
    job.must_end()
    whole, of_one = map(devices_of, job.said().split("next"))
    if units_of(whole) != [2, 1, 1] or units_of(of_one) != [1, 1]:
        raise Fault(f"the devices have {units_of(whole)} and {units_of(of_one)} units")
    program = cluster.submit(f"{lines}penstock slurm --het-group=1 -- {LOAD} both 1")
    program.must_end().must_say("done")


def cores_of_the_job_bound_the_device(cluster):
    ask = f"{RUN} penstock devices --json"
    for cores in range(1, CORES + 1):
        # Tasks of one core do not confine the daemon to one core.
        for options in ((f"--cpus-per-task={cores}",), (f"--ntasks={cores}",)):
            job = cluster.submit(ask, "--nodes=1", *options).must_end()
            if units_of(devices_of(job.said())) != [cores]:
                raise Fault(f"{options}: {units_of(devices_of(job.said()))} units")


def devices_of_the_job_reach_its_daemon(cluster):
    all_of_them = ",".join(map(str, range(DEVICES)))
    for options, expected in {
        ("--gres=gpu:1",): "0",
        ("--gpus-per-task=1", f"--ntasks={DEVICES}"): all_of_them,
    }.items():
        words = (f"--nodelist={WITH_DEVICES}", "--nodes=1", *options)
        the_daemons_see(cluster, "", {WITH_DEVICES: expected}, *words)


def devices_of_a_component_reach_its_daemon(cluster):
    """A node without devices offers none, also if the command's node has some."""
    with_devices = f"--nodes=1 --nodelist={WITH_DEVICES}"
    by_task = f"{with_devices} --ntasks={DEVICES} --gpus-per-task=1"
    all_of_them = ",".join(map(str, range(DEVICES)))
    for first, second, expected in (
        ("--nodes=1 --nodelist=n1", by_task, {"n1": None, WITH_DEVICES: all_of_them}),
        (by_task, "--nodes=1 --nodelist=n1", {"n1": "", WITH_DEVICES: all_of_them}),
        (f"{with_devices} --gres=gpu:1", "--nodes=1 --nodelist=n1", {"n1": "", WITH_DEVICES: "0"}),
    ):
        lines = f"#SBATCH {first}\n#SBATCH hetjob\n#SBATCH {second}\n"
        the_daemons_see(cluster, lines, expected)


def the_daemons_see(cluster, lines, expected, *options):
    """Checks CUDA_VISIBLE_DEVICES of the daemons and workers on these nodes. None: it is unset. It
    does not hide devices of the pool from the program."""
    script = "echo sees ${CUDA_VISIBLE_DEVICES-all}; until [ -e over ]; do sleep 0.05; done"
    job = cluster.submit(f"{lines}{RUN} bash -c '{script}'", *options)
    job.wait_said("sees all")
    pids = [*cluster.daemons(len(expected)), *cluster.of_penstock("worker")]
    for name, value in expected.items():
        looked_at = 0
        for pid in filter(lambda pid, name=name: cluster.on(name, pid), pids):
            try:
                around = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except OSError:  # A worker without a client may end at any time.
                continue
            looked_at += 1
            found = [it.decode() for it in around if it.startswith(b"CUDA_VISIBLE_DEVICES=")]
            if found != ([] if value is None else [f"CUDA_VISIBLE_DEVICES={value}"]):
                raise Fault(f"{lines}{options}: process {pid} on {name} has {found}")
        if looked_at < 2:
            raise Fault(
                f"{lines}{options}: {looked_at} processes on {name}, not a daemon and a worker"
            )
    (cluster.folder / "over").touch()
    job.must_end()
    (cluster.folder / "over").unlink()


def nobody_else_sees_the_key(cluster):
    """It is in no command line, in no environment, and in nothing that Slurm shows."""
    job = start_long(cluster)
    keys = [
        path
        for pid in cluster.slurmd.values()
        for path in (cluster.folder / f"/proc/{pid}/root/dev/shm").rglob("key")
    ]
    texts = {path.read_text().strip() for path in keys}
    modes = {path.stat().st_mode & 0o777 for path in keys}
    folders = {path.parent.stat().st_mode & 0o777 for path in keys}
    if (len(keys), len(texts), modes, folders) != (2, 1, {0o600}, {0o700}):
        raise Fault(f"keys {keys}, {len(texts)} texts, modes {modes} in {folders}")
    [key] = texts
    shown = cluster.say("scontrol", "show", "job", "-dd", job.number)
    shown += cluster.say("scontrol", "show", "step") + job.said()
    for pid in cluster.processes():
        for name in ("cmdline", "environ"):
            try:
                with open(f"/proc/{pid}/{name}", errors="replace") as file:
                    shown += file.read()
            except OSError:
                continue
    if key in shown:
        raise Fault("the key is shown")
    job.cancel()
    job.must_end("CANCELLED")


def salloc_starts_the_program_on_the_first_node(cluster):
    words = ["salloc", "--quiet", *TWO, "penstock", "slurm", "--", "sh", "-c"]
    done = cluster.inside(*words, "hostname; cat; exit 5", stdin=None, input="hello\n")
    if (done.returncode, done.stdout) != (5, "n1\nhello\n"):
        raise Fault(f"{done}")


def ranks_on_all_nodes_see_the_same_pool(cluster):
    """Each task that the program starts finds the daemons, its own one by its Unix socket."""
    script = f"{RUN} srun --overlap --label penstock devices --json"
    job = cluster.submit(script, *TWO).must_end()
    for rank in range(2):
        lines = [line[3:] for line in job.said().splitlines() if line.startswith(f"{rank}: ")]
        devices = devices_of("\n".join(lines))
        nodes = {device["node"] for device in devices}
        if len(devices) != 2 or nodes != {"n1", "n2"}:
            raise Fault(f"rank {rank} sees {devices}")


def a_daemon_that_cannot_start_is_told(cluster):
    job = cluster.submit(f"PENSTOCK_REQUIRE_CONFINEMENT=nonsense {RUN} true; echo status $?", *TWO)
    job.must_end().must_say("the daemon of node ", "did not start", "status 125")


def libwater_runs_under_srun(cluster):
    """Each rank is a task, and drives the devices of its node."""
    ran = []
    program = cluster.folder / "listing1"
    source = HERE.parent / "water/listing1.c"
    include = ROOT / "crates/faces/water/include"
    for mpi, how in {"openmpi": "pmix", "mpich": "pmi2"}.items():
        if not (shutil.which(f"mpicc.{mpi}") and (BIN / f"libwtr_mpi_{mpi}.so").exists()):
            continue
        options = ["-std=c11", "-D_GNU_SOURCE", f"-I{include}", f"-L{BIN}"]
        subprocess.run(["cc", *options, "-o", program, source, "-lwater"], check=True)
        shutil.copy(source.with_name("kernel.cl"), cluster.folder)
        (cluster.folder / "ranks.conf").write_text(f"0 {program} 2\n1 {BIN}/wtrd\n")
        for ranks in (f"{program} 2", "--multi-prog ranks.conf"):
            script = f"LD_LIBRARY_PATH={BIN} srun --mpi={how} --cpu-bind=none {ranks}"
            cluster.submit(script, *TWO).must_end().must_say(" 0 of 1048576 bytes wrong")
        ran.append(mpi)
    if not ran:
        raise Skipped("no library of libWater for an MPI: make build")
    return ", ".join(ran)


def another_user_than_root_has_a_pool(cluster):
    user = pwd.getpwnam("nobody")
    can = ["setpriv", f"--reuid={user.pw_uid}", "--clear-groups", "test", "-x", BIN / "penstock"]
    if subprocess.run(can, check=False).returncode:
        raise Skipped(f"{user.pw_name} cannot read {BIN}")
    home = cluster.folder / "nobody"
    home.mkdir()
    os.chown(home, user.pw_uid, user.pw_gid)
    places = f"HOME={home},XDG_RUNTIME_DIR=,XDG_CACHE_HOME="
    who = [f"--uid={user.pw_uid}", f"--gid={user.pw_gid}", f"--export=ALL,{places}"]
    words = [*TWO, *who, f"--chdir={home}", f"--output={home}/out", "--wait"]
    script = f"penstock slurm -- {LOAD} both 1 && penstock slurm -- ls -ln /dev/shm"
    done = cluster.inside("sbatch", *words, "--wrap", script)
    said = (home / "out").read_text()
    if done.returncode or "done" not in said or f" penstock-{user.pw_uid}" not in said:
        raise Fault(f"{done.stderr} {said}")
    shutil.rmtree(home)


def fifty_jobs_leave_nothing(cluster):
    het = "#SBATCH --nodes=1\n#SBATCH hetjob\n#SBATCH --nodes=1\n"
    kinds = [
        (f"{RUN} {LOAD} check", TWO, "COMPLETED"),
        (f"exec {RUN} sh -c 'exit 4'", TWO, "FAILED"),
        (f"{RUN} {LONG}", TWO, "CANCELLED"),
        (f"{het}penstock slurm --het-group=1 -- {LOAD} check", (), "COMPLETED"),
        (f"exec {RUN} sh -c 'kill -9 $PPID'", ("--nodes=1",), "FAILED"),
    ]
    jobs = [(cluster.submit(script, *options), state) for script, options, state in kinds * 10]
    for job, state in jobs:
        if state == "CANCELLED":
            job.wait_said("busy")
            job.cancel()
        job.must_end(state, 3 * PATIENCE_S)
    return f"{len(jobs)} jobs"


CASES = [
    two_nodes_compute,
    links_are_the_best_ones,
    the_exit_status_is_the_programs,
    a_failing_job_fails,
    a_signal_is_passed_on,
    a_job_is_cancelled,
    a_job_is_cancelled_whose_program_ignores_that,
    only_the_script_of_a_job_is_killed,
    a_job_reaches_its_time_limit,
    the_command_is_killed,
    srun_is_killed,
    a_daemon_is_killed,
    a_node_dies,
    a_heterogeneous_job,
    cores_of_the_job_bound_the_device,
    devices_of_the_job_reach_its_daemon,
    devices_of_a_component_reach_its_daemon,
    nobody_else_sees_the_key,
    salloc_starts_the_program_on_the_first_node,
    ranks_on_all_nodes_see_the_same_pool,
    a_daemon_that_cannot_start_is_told,
    libwater_runs_under_srun,
    another_user_than_root_has_a_pool,
    fifty_jobs_leave_nothing,
]
