"""Reads source text of C, CUDA and OpenCL C: functions, and what files use of each other.

This is no parser. It understands as much of C as the rules of `check.py` need: the body of a
function is a block behind a closing parenthesis, outside of all other blocks except for `extern`,
`namespace`, and the definitions of structures. So a macro that stands for the head of a function
counts as one, and so does a macro of several lines. Decision 76 lists what is not seen.
"""

import posixpath
import re
from dataclasses import dataclass, replace
from functools import cache

from rust_source import Function, blanked

SUFFIXES = (".c", ".h", ".cu", ".cuh", ".cl", ".cpp", ".hpp")
TOKEN = re.compile(
    r"""
    (?P<comment>//(?:\\\n|[^\n])*|/\*.*?(?:\*/|\Z))
  | (?P<raw>\b(?:u8|[uUL])?R"(?P<hashes>[^()\\\s]*)\(.*?\)(?P=hashes)")
  | (?P<text>"(?:\\.|[^"\\\n])*")
  | (?P<char>'(?:\\.|[^'\\\n])+')
  # A number may have quotes among its digits.
  | (?P<number>\b\d(?:'?[\w.])*)
    """,
    re.VERBOSE | re.DOTALL,
)
# What changes where the scanner is: directives with their continued lines, braces, semicolons.
MARK = re.compile(r"^[ \t]*\#[ \t]*(\w*)((?:\\\n|[^\n])*)|[{};]", re.MULTILINE)
# A function that is called, passed, chosen or declared, and not a field.
WORD = re.compile(r"(?<![.>\w])\w+(?=\s*(?:[(,;)}]|:(?!:)))")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
# Heads of blocks in which functions may be defined.
OUTER = re.compile(r"\b(?:extern|namespace|struct|class|union)\b[^()=]*$")
# What is in parentheses or angle brackets, with up to three such pairs in each other.
PARENTHESES = ANGLES = "(?!)"
for _ in range(3):
    PARENTHESES = rf"\((?:[^()]|{PARENTHESES})*\)"
for _ in range(3):
    ANGLES = rf"<(?:[^()<>{{}}]|{PARENTHESES}|{ANGLES})*>"
ATTRIBUTE = re.compile(
    r"\b(?:__attribute__|__declspec|__align__|__launch_bounds__|alignas|_Alignas|noexcept)\s*"
    rf"{PARENTHESES}|\[\[.*?\]\]",
    re.DOTALL,
)
QUALIFIER = r"(?:[\s&]|\b(?:const|noexcept|override|final|volatile|try)\b)*"
# The templates, operators, initialisers and types around the name and the parameters of a function.
AROUND = re.compile(
    rf"\btemplate\s*{ANGLES}|(?<=\boperator)\s*(?:\(\)|[^\w\s(]+)"
    rf"|(?<=\)){QUALIFIER}(?::(?!:)|->).*",
    re.DOTALL,
)
QUALIFIERS = re.compile(rf"{QUALIFIER}$")
# The values of members behind the parameters of a function, up to one in braces.
MEMBER = re.compile(rf"\){QUALIFIER}:(?!:).*[\w>]\s*$", re.DOTALL)
# The name of a function, which may be that of a specialisation, such as `denoise<Shared>`.
NAME = re.compile(rf"(\w+)\s*(?:{ANGLES}\s*)?$")


def blank(text):
    """Like the function of this name in `rust_source.py`."""
    return blanked(text, TOKEN)[0]


def without_comments(text):
    """Like the function of this name in `rust_source.py`."""
    return blanked(text, TOKEN)[1]


def functions(code):
    """Returns the functions and macros of `code`, each with its number of lines from its name to
    the end of its body. `code` is text without comments and literals."""
    found = {}
    for body in bodies(code):
        line, last = (code.count("\n", 0, at) + 1 for at in (body.at, body.end))
        # Alternative branches may close the same function. The longest one counts.
        lines = max(last - line + 1, found[body.at].lines if body.at in found else 0)
        found[body.at] = Function(body.name, line, lines)
    return list(found.values())


def is_whole(code):
    """Returns whether each block of `code` has its beginning and its end. If a block has none, the
    functions behind its other brace are not seen."""
    return scan(code)[1]


def uses(texts):
    """Returns for each file of `texts` the files that it includes, and the files with functions
    that it uses. A function of another file is known by a header that both files include."""
    codes = {name: blank(text) for name, text in texts.items()}
    included = {name: included_by(name, text, texts) for name, text in texts.items()}
    headers = {name: reached(name, included) for name in texts}
    words = {name: set(WORD.findall(code)) for name, code in codes.items()}
    homes, own = {}, {}
    for name, code in codes.items():
        for it in bodies(code):
            own.setdefault(name, set()).add(it.name)
            for header in headers[name] if it.is_public else ():
                if it.name in words[header] and not name.endswith(".h"):
                    homes.setdefault((header, it.name), set()).add(name)
    found = {name: set(included[name]) for name in texts}
    for (header, function), files in homes.items():
        # Files of different programs may have a function of the same name.
        users = (name for name in texts if header in headers[name] and function in words[name])
        for name in users if len(files) == 1 else ():
            if function not in own.get(name, ()):
                found[name] |= files
    return found


def included_by(name, text, texts):
    """Returns the files of `texts` that the file `name` includes by a path from its own folder."""
    folder = posixpath.dirname(name)
    paths = INCLUDE.findall(without_comments(text))
    return {posixpath.normpath(posixpath.join(folder, path)) for path in paths} & texts.keys()


def reached(name, included):
    """Returns the files that `name` includes, and the files that those include."""
    found, left = set(), [name]
    while left:
        new = included[left.pop()] - found
        found |= new
        left += new
    return found


@dataclass
class Body:
    """A function or a macro: where its name and its body end, and whether other files see it. It
    has no name if the block is something else, such as a list of values."""

    at: int
    end: int
    name: str
    is_public: bool
    is_in_head: bool = False


def bodies(code):
    """Returns the functions and the macros of several lines."""
    return scan(code)[0]


@cache
def scan(code):
    """Returns the bodies of `code`, and whether all its braces have counterparts.

    `blocks` has an entry for each open block: `None` for one in which functions may be defined,
    and otherwise a `Body`, without a name if the block belongs to no function. Behind `#else`, the
    open blocks are those that were open at the `#if`.
    """
    found, blocks, start, branches, strays = [], [], 0, [], 0
    for mark in MARK.finditer(code):
        if mark[1] is not None:
            if mark[1] in ("if", "ifdef", "ifndef"):
                branches.append((list(blocks), start))
            elif mark[1] in ("else", "elif") and branches:
                blocks, start = list(branches[-1][0]), mark.end()
            elif mark[1] == "endif" and branches:
                branches.pop()
            elif mark[1] == "define" and "\n" in mark[2]:
                name = re.match(r"\s*(\w*)", mark[2])[1]
                found.append(Body(mark.start(), mark.end(), name, False))
            continue
        is_outer = not any(blocks)
        if mark[0] == "{":
            blocks.append(block(code, start, mark.start(), is_outer))
        elif mark[0] == "}" and blocks:
            body = blocks.pop()
            if body and body.name:
                found.append(replace(body, end=mark.start()))
            if body and body.is_in_head:
                continue
        elif mark[0] == "}":
            strays += 1
        if not any(blocks):
            start = mark.end()
    return found, not blocks and not strays and not is_in_parentheses(code[start:])


def block(code, start, at, is_outer):
    """Returns the entry for the block that begins at `at` behind the head `code[start:at]`."""
    if is_outer and OUTER.search(ATTRIBUTE.sub("", MARK.sub(" ", code[start:at]))):
        return None
    # The value of a parameter or of a member belongs to the head of a function.
    if is_outer and (is_in_parentheses(code[start:at]) or MEMBER.search(code, start, at)):
        return Body(start, at, "", False, is_in_head=True)
    return definition(code, start, at, is_outer)


def is_in_parentheses(head):
    head = MARK.sub(" ", head)
    return head.count("(") > head.count(")")


def definition(code, start, end, is_outer):
    """Returns the body behind the head `code[start:end]`. It has no name if the head is that of
    something else, such as a list of values."""
    if not is_outer:
        return Body(start, end, "", False)
    head = code[start:end]
    for around in (MARK, ATTRIBUTE, AROUND):
        head = around.sub(lambda it: " " * len(it[0]), head)
    head = QUALIFIERS.sub("", head)
    opening = opening_of(head)
    name = NAME.search(head[: max(opening, 0)])
    if name is None or "=" in head[:opening]:
        return Body(start, end, "", False)
    # A macro without a type before it has the name of the function as its argument.
    argument = re.match(r"\s*(\w+)\s*[,)]", head[opening + 1 :])
    is_macro = argument and not head[: name.start()].strip()
    is_public = not is_macro and not re.search(r"\bstatic\b", head)
    return Body(start + name.start(), end, (argument if is_macro else name)[1], is_public)


def opening_of(head):
    """Returns the index of the parenthesis that the last character of `head` closes, or -1."""
    depth = 0
    for at in range(len(head) - 1, -1, -1):
        depth += (head[at] == ")") - (head[at] == "(")
        if depth == 0:
            return at if head[at] == "(" else -1
    return -1
