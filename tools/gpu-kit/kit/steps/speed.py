"""What calls and copies cost on pools, beside the driver's own cost."""

from kit.pool import WAYS, Pool, direct

PROGRAM_S = 40
# What the summary shows of the figures, and whether more is better.
SHOWN = (
    "launch and synchronize",
    "launches queued",
    "synchronize",
    "graph of 100 launches",
    "to device 4 B pinned",
    "from device 4 B pinned",
    "to device 1 MiB pageable",
    "to device 1 GiB pageable",
    "from device 1 GiB pageable",
    "to device 1 GiB pinned",
    "from device 1 GiB pinned",
)


def figures_of(result):
    """Returns the lines `name<TAB>unit<TAB>value` of speed.c."""
    found = {}
    for line in result.text.splitlines():
        words = line.split("\t")
        if len(words) == 3:
            found[words[0]] = (words[1], float(words[2]))
    return found


def calls(session):
    program = session.root / "programs/speed"
    figures = {}
    for way in ("driver", *WAYS):
        if session.left() < 3:
            break
        if way == "driver":
            result = session.command(way, [program], direct(session), PROGRAM_S)
        else:
            with Pool(session, way, confine=session.confine) as pool:
                result = session.command(way, [program], pool.client(), PROGRAM_S)
        figures[way] = figures_of(result)
        row = session.judged(
            f"speed, {way}", result, f"{result.why()}, {len(figures[way])} figures"
        )
        row["rows"] = {name: list(value) for name, value in figures[way].items()}
    own = figures.get("driver", {})
    for name, (unit, value) in own.items():
        shown = {f"driver {unit}": round(value, 2)}
        for way in WAYS:
            if name in figures.get(way, {}):
                other = figures[way][name][1]
                # The share of the driver's speed that is left.
                share = other / value if unit.endswith("/s") else value / other if other else 0
                shown[f"{way} {unit}"], shown[f"{way} share"] = round(other, 2), round(share, 3)
        session.item(name, "info", "", **{"figures" if name in SHOWN else "ratios": shown})
