"""The map of the crates in ARCHITECTURE.md, made from the manifests and from policy.toml.

The manifest of the workspace says what each room is for, in the comment above the crates of the
room. The manifest of a crate says what the crate is, and which crates it uses. policy.toml has the
floors, and the places where unsafe code may stand.
"""

import re
import tomllib

DOCUMENT = "ARCHITECTURE.md"
BEGIN = "<!-- tools/policy/check.py --map writes this map. -->\n"
END = "<!-- The map ends here. -->\n"


def expected(tree):
    """Returns the text of the document with the map as it should be. Raises ValueError if the
    document has no place for the map, or a crate or a room has no description."""
    text = tree.text(DOCUMENT)
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"{DOCUMENT} lacks the two comments around the map")
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{made(tree)}\n{END}{rest.split(END)[1]}"


def made(tree):
    """Returns the map: the floors, and a table for each room."""
    crates = tree.crates()
    manifests = {
        name: tomllib.loads(tree.text(f"{folder}/Cargo.toml")) for name, folder in crates.items()
    }
    parts = ["```text\n" + "".join(floor_lines(tree.policy["floors"])) + "```\n"]
    for room, what in rooms(tree.text("Cargo.toml")).items():
        rows = [
            row(name, manifests[name], tree.policy)
            for name in sorted(crates)
            if crates[name] == f"{room}/{name}"
        ]
        head = "| crate | is | uses | unsafe code may be in |\n|---|---|---|---|\n"
        parts.append(f"**`{room}/`**: {what}\n\n{head}{''.join(rows)}")
    return "\n".join(parts)


def floor_lines(floors):
    for floor in sorted(set(floors.values()), reverse=True):
        names = "  ".join(sorted(name for name, at in floors.items() if at == floor))
        yield f"{floor}  {names}\n"


def rooms(manifest):
    """Returns what each room is for, by the folder of the room, such as `crates/pool`."""
    found, comment = {}, ""
    for line in manifest.split("members = [")[1].split("\n]")[0].splitlines():
        member = re.match(r'\s*"(crates/[^/"]+)/', line)
        if member and member[1] not in found:
            if not comment:
                raise ValueError(f"Cargo.toml does not say what {member[1]} is for")
            found[member[1]] = comment
        comment = line.strip().removeprefix("#").strip() if line.strip().startswith("#") else ""
    return found


def row(name, manifest, policy):
    what = manifest.get("package", {}).get("description")
    if not what:
        raise ValueError(f"the manifest of {name} has no description")
    others = (other.removeprefix("penstock-") for other in manifest.get("dependencies", {}))
    uses = sorted(other for other in others if other in policy["floors"])
    places = policy["unsafe"]["places"].get(name, [])
    where = "everywhere" if "" in places else ", ".join(f"`{place}`" for place in sorted(places))
    return f"| `{name}` | {what} | {', '.join(uses) or '–'} | {where or '–'} |\n"
