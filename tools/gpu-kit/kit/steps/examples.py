"""Times of the examples through the pool beside those on the driver, one after the other."""

from kit.pool import Pool, direct

ROUNDS = 2


def work(session):
    penstock = session.root / "bin/penstock"
    folder = session.root / "tests/examples"
    names = [path for path in sorted(folder.iterdir()) if not path.name.endswith("-static")]
    with Pool(session, confine=session.confine) as pool:
        for path in names:
            times = {"driver": [], "unix": []}
            for _ in range(ROUNDS):
                for way, taken in times.items():
                    if session.left() < 2:
                        return
                    command = (
                        [path] if way == "driver" else [penstock, "run", "--no-local", "--", path]
                    )
                    env = direct(session) if way == "driver" else pool.client()
                    result = session.command(f"{path.name}, {way}", command, env, 20)
                    if result.is_good:
                        taken.append(result.seconds)
            if all(times.values()):
                own, ours = min(times["driver"]), min(times["unix"])
                session.item(
                    path.name,
                    "ok",
                    "",
                    figures={
                        "driver s": round(own, 2),
                        "pool s": round(ours, 2),
                        "driver / pool": round(own / ours, 2),
                    },
                )
            else:
                session.item(path.name, "FAIL", f"{times}")
