"""Reads the runnable blocks of a document, and compares what their commands print.

A block is a fence that is marked as `console`. A line that begins with `$ ` is a command, lines
that begin with `> ` continue it, and the lines below are what the command prints. A line `...`
stands for any lines, and `...` within a line for any text. Runs of blanks count as one blank.

HTML comments above a block, which a reader does not see, say more:

    <!-- not run: REASON -->    the block is not run, and counts as skipped
    <!-- before: COMMAND -->    a command that runs before the block, and must succeed
    <!-- run as: COMMAND -->    what is run in place of the block's only command
    <!-- status: NUMBER -->     the exit status of the block's last command, instead of 0
    <!-- varies: PATTERN -->    text that may be different here, in this block and all later ones: a
                                number stands for any number, other text for any text
    <!-- file: NAME -->         above a fence with code: the file that the next block finds it in
"""

import difflib
import re
from dataclasses import dataclass, field

DIRECTIVE = re.compile(r"(not run|before|run as|status|varies|file):\s*(.*)", re.DOTALL)
PARTS = re.compile(
    r"^<!--(?P<comment>.*?)-->|^```(?P<mark>[^\n]*)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE
)
NUMBER = re.compile(r"[\d.,]+")


@dataclass
class Command:
    """One command and the lines that the document shows below it."""

    text: str
    printed: list = field(default_factory=list)
    is_in_background: bool = False


@dataclass
class Block:
    """One fence of a document."""

    line: int
    commands: list
    before: list
    varies: list
    status: int = 0
    not_run: str = ""
    # Names and contents of the files that the document shows above the block.
    files: dict = field(default_factory=dict)


class WrongDocument(Exception):
    """A document that cannot be read as its writer meant it."""


def blocks_of(text):
    """Returns all blocks of a document."""
    blocks, varies, directives, files, comment_end = [], [], {}, {}, 0
    for part in PARTS.finditer(text):
        line = text.count("\n", 0, part.start()) + 1
        if directives and text[comment_end : part.start()].strip():
            raise WrongDocument(f"line {line}: there is text between a comment and its block")
        if part["comment"] is not None:
            found = DIRECTIVE.fullmatch(part["comment"].strip())
            if found and found[1] == "varies":
                varies = [*varies, re.compile(found[2])]
            elif found:
                directives.setdefault(found[1], []).append(" ".join(found[2].split()))
            comment_end = part.end()
        elif part["mark"] == "console":
            blocks.append(block(line, part["body"].splitlines(), directives, varies))
            blocks[-1].files, files, directives = files, {}, {}
        elif "file" in directives:
            files[directives.pop("file")[0]] = part["body"]
        elif re.search(r"^\$ ", part["body"], re.MULTILINE):
            raise WrongDocument(f"line {line}: a fence with commands is not marked as console")
    if directives:
        raise WrongDocument("the last comment for a block has no block below it")
    return blocks


def block(line, body, directives, varies):
    commands = []
    for text in body:
        if text.startswith("$ "):
            commands.append(Command(text[2:]))
        elif not commands:
            raise WrongDocument(f"line {line}: the block does not begin with a command")
        elif text.startswith("> ") and not commands[-1].printed:
            commands[-1].text += "\n" + text[2:]
        else:
            commands[-1].printed.append(text)
    if not commands:
        raise WrongDocument(f"line {line}: the block has no command")
    if "run as" in directives:
        if len(commands) > 1:
            raise WrongDocument(f"line {line}: the block has several commands to replace")
        commands[0].text = directives["run as"][0]
    for command in commands:
        code = command.text.split(" #")[0].rstrip()
        command.is_in_background = code.endswith("&") and not code.endswith("&&")
    return Block(
        line,
        commands,
        directives.get("before", []),
        varies,
        int(directives.get("status", ["0"])[-1]),
        directives.get("not run", [""])[-1],
    )


def pattern_of(printed, varies):
    """Returns the regular expression for what a command prints."""
    pattern = ""
    for line in printed:
        if line.strip() == "...":
            pattern += r"(?:[^\n]*\n)*?"
        elif line.strip():
            pattern += line_pattern(" ".join(line.split()), varies) + r"\n"
    return pattern


def line_pattern(line, varies):
    parts, at = [], 0
    marks = [(found.span(), found[0]) for found in re.finditer(r"\.\.\.", line)]
    marks += [(found.span(), found[0]) for vary in varies for found in vary.finditer(line)]
    for (start, end), text in sorted(marks):
        if start < at or start == end:
            continue
        parts.append(re.escape(line[at:start]))
        parts.append(r"[\d.,]+" if NUMBER.fullmatch(text) and text != "..." else r"[^\n]*?")
        at = end
    return "".join(parts) + re.escape(line[at:])


def normal(text):
    """Returns a text without blank lines and with single blanks."""
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return "".join(f"{line}\n" for line in lines if line)


def fits(command, found, varies):
    """Tells whether a command printed what the document shows."""
    return re.fullmatch(pattern_of(command.printed, varies), normal(found)) is not None


def differences(command, found, varies):
    """Returns the difference between what the document shows and what the command printed, line by
    line. A line that may vary counts as equal."""
    shown = normal("\n".join(command.printed)).splitlines()
    patterns = {line: line_pattern(line, varies) for line in shown if line != "..."}
    printed = [
        next((line for line, pattern in patterns.items() if re.fullmatch(pattern, there)), there)
        for there in normal(found).splitlines()
    ]
    return difflib.unified_diff(shown, printed, "document", "command", lineterm="", n=1)
