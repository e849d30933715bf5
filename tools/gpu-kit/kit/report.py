"""What a run leaves: report.json, report.md and a summary."""

import json
import time

SUMMARY_CHARACTERS_MAX = 10_000
TAIL_LINES = 3


def content(session):
    return {
        "format": 1,
        "minutes": session.arguments.minutes,
        "seconds": round(time.monotonic() - session.began, 1),
        "facts": session.facts,
        "steps": session.steps,
        "items": session.items,
    }


def write(session):
    with session.lock:
        found = content(session)
        (session.output / "report.json").write_text(json.dumps(found, indent=1) + "\n")
    (session.output / "report.md").write_text(markdown(found))


def cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")


def markdown(found):
    """Returns the whole report as a page."""
    lines = ["# Report of the GPU kit", ""]
    for name, fact in found["facts"].items():
        lines.append(f"* {name}: {cell(fact)}")
    lines += ["", "| step | verdict | seconds | findings |", "|---|---|---|---|"]
    for row in found["steps"]:
        counts = ", ".join(f"{n} {v}" for v, n in sorted(row.get("counts", {}).items()))
        note = cell(row.get("note", ""))
        lines.append(
            f"| {row['name']} | {row.get('verdict', '')} | {row.get('seconds', '')} | "
            f"{counts} {note} |"
        )
    for row in found["steps"]:
        items = [item for item in found["items"] if item["step"] == row["name"]]
        if not items:
            continue
        lines += [
            "",
            f"## {row['name']}: {row['what']}",
            "",
            "| finding | verdict | note |",
            "|---|---|---|",
        ]
        for item in items:
            figures = ", ".join(f"{k}: {v}" for k, v in item.get("figures", {}).items())
            lines.append(
                f"| {cell(item['name'])} | {item['verdict']} | {cell(item['note'])}"
                f"{' ' + cell(figures) if figures else ''} |"
            )
        for item in items:
            if item.get("tail"):
                lines += ["", f"`{item['name']}`:", "", "```", item["tail"], "```"]
    return "\n".join(lines) + "\n"


def summary(session):
    """Returns what matters most, in few characters: failures first, with the ends of their logs."""
    lines = [f"== summary after {time.monotonic() - session.began:.0f} s"]
    lines += [f"{name}: {str(fact)[:160]}" for name, fact in session.facts.items()]
    lines += [
        f"{row.get('verdict', '?'):<4} {row['name']}: {row.get('counts', {})} {row.get('note', '')}"
        for row in session.steps
    ]
    figures = [item for item in session.items if item.get("figures")]
    for item in figures:
        text = ", ".join(f"{k} {v}" for k, v in item["figures"].items())
        lines.append(f"     {item['step']}/{item['name']}: {text}"[:220])
    for item in session.items:
        if item["verdict"] in ("FAIL", "lacks"):
            lines.append(f"{item['verdict']} {item['step']}/{item['name']}: {item['note']}"[:220])
            tail = item.get("tail", "").splitlines()[-TAIL_LINES:]
            lines += [f"      | {line[:160]}" for line in tail]
    text = "\n".join(lines)
    if len(text) > SUMMARY_CHARACTERS_MAX:
        text = text[: SUMMARY_CHARACTERS_MAX - 40] + "\n[the rest is in report.md]"
    return text
