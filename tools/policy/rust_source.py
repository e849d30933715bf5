"""Reads Rust source text: code without comments and strings, functions, and imports between files.

This is no parser. It understands as much of Rust as the rules of `check.py` need.
"""

import re
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from pathlib import PurePath

TOKEN = re.compile(
    r"""
    (?P<line>//[^\n]*)
  | (?P<block>/\*)
  | (?P<raw>\b(?:b|c)?r(?P<hashes>\#*)".*?"(?P=hashes))
  | (?P<text>"(?:\\.|[^"\\])*")
  | (?P<char>'(?:\\(?:u\{[^}]*\}|x..|.)|[^'\\\n])')
    """,
    re.VERBOSE | re.DOTALL,
)
# The kinds of tokens that are comments.
COMMENTS = {"line", "block", "comment"}


def blank(text):
    """Returns `text` with all comments and literals replaced by blanks. Line breaks stay."""
    return blanked(text)[0]


def without_comments(text):
    """Returns `text` with all comments replaced by blanks. Line breaks stay."""
    return blanked(text)[1]


@cache
def blanked(text, token=TOKEN):
    """Returns `text` without comments and literals, and without comments only. What is left out is
    replaced by blanks. Line breaks stay."""
    code, shown, at = [], [], 0
    while match := token.search(text, at):
        start, end, kind = match.start(), match.end(), match.lastgroup
        if kind == "block":
            end = end_of_block_comment(text, start)
        piece, rest = text[at:end], text[at:start] + blanks(text[start:end])
        code.append(piece if kind == "number" else rest)
        shown.append(rest if kind in COMMENTS else piece)
        at = end
    return "".join([*code, text[at:]]), "".join([*shown, text[at:]])


def blanks(text):
    return "\n".join(" " * len(line) for line in text.split("\n"))


def end_of_block_comment(text, at):
    """Returns the end of the block comment that begins at `at`. Such comments nest."""
    depth, at = 1, at + 2
    while depth and at < len(text):
        if text.startswith("/*", at):
            depth, at = depth + 1, at + 2
        elif text.startswith("*/", at):
            depth, at = depth - 1, at + 2
        else:
            at += 1
    return at


def closing(code, opening, braces="{}"):
    """Returns the index of the brace that closes the one at `opening`."""
    depth = 0
    for match in re.compile(f"[{re.escape(braces)}]").finditer(code, opening):
        depth += 1 if match[0] == braces[0] else -1
        if depth == 0:
            return match.start()
    return len(code) - 1


# An attribute that leaves what follows to tests, and any attributes after it.
ONLY_TESTS = re.compile(r"#\[cfg\((?:all\()?test\b[^\]]*\](?:\s*#\[[^\]]*\])*")
# A declaration of a module in a file of its own, or of one with its code.
MODULE = re.compile(r"\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*([{;])")


@cache
def without_tests(text, code=None):
    """Returns `text` with all items behind `#[cfg(test)]` blanked.

    `code` is `text` without comments and literals, if `text` still has some.
    """
    return with_blanks(text, test_items(text if code is None else code))


def only_tests(code):
    """Returns `code` with everything blanked that is not behind `#[cfg(test)]`."""
    edges = [0, *chain(*test_items(code)), len(code)]
    return with_blanks(code, zip(edges[::2], edges[1::2]))


def test_items(code):
    """Yields where each item behind `#[cfg(test)]` begins, with this attribute, and ends."""
    end = 0
    for match in ONLY_TESTS.finditer(code):
        if match.start() >= end:
            end = end_of_item(code, match.end())
            yield match.start(), end


def with_blanks(text, spans):
    """Returns `text` with blanks in the place of these parts of it. Line breaks stay."""
    pieces, at = [], 0
    for start, end in spans:
        pieces += [text[at:start], blanks(text[start:end])]
        at = end
    return "".join([*pieces, text[at:]])


def end_of_item(code, at):
    """Returns the end of the item that begins at `at`: behind its `;` or its closing brace."""
    end = end_of_signature(code, at)
    return closing(code, end) + 1 if code[end : end + 1] == "{" else min(end + 1, len(code))


def test_modules(name, code):
    """Yields the files of the modules that the file `name` declares behind `#[cfg(test)]`."""
    path = PurePath(name)
    home = path.parent if path.stem in ("lib", "main", "mod") else path.with_suffix("")
    for match in ONLY_TESTS.finditer(code):
        module = MODULE.match(code, match.end())
        if module and module[2] == ";":
            yield str(home / f"{module[1]}.rs")
            yield str(home / module[1] / "mod.rs")


@dataclass
class Function:
    name: str
    line: int
    lines: int


def functions(code):
    """Yields each function that has a body, with its number of lines from `fn` to the closing brace."""
    for match in re.finditer(r"\bfn\s+(\w+)", code):
        opening = body_of(code, match.end())
        if opening is None:
            continue
        end = closing(code, opening)
        line = code.count("\n", 0, match.start()) + 1
        yield Function(match[1], line, code.count("\n", match.start(), end) + 1)


def body_of(code, at):
    """Returns the index of the brace that opens the body of the function whose name ends at `at`."""
    end = end_of_signature(code, at)
    return end if code[end : end + 1] == "{" else None


def end_of_signature(code, at):
    """Returns where what begins at `at` has its brace or semicolon, such as a signature."""
    depth = 0
    for match in re.compile(r"[(\[{;)\]]").finditer(code, at):
        if match[0] in "([":
            depth += 1
        elif match[0] in ")]":
            depth -= 1
        elif depth == 0:
            return match.start()
    return len(code)


@dataclass
class Tuple:
    """An anonymous tuple type in the declaration of the item `item`."""

    item: str
    line: int
    elements: int


# The beginning of a declaration that contains types. In a macro of ours, other text may follow the
# name of a function.
DECLARATION = re.compile(r"\b(?:(fn)\s+(\w+)(?=\s*[(<])|(?:struct|enum|union|type)\s+(\w+))")
# What stands before the parenthesis of a tuple type, but not before that of a list of parameters.
BEFORE_TUPLE = re.compile(r"(?:->|[^\s\w>$]|'\w+|\b(?:mut|const|dyn|impl|as))\s*$")


def tuples(code):
    """Yields the anonymous tuple types in the signatures of functions, the fields of types, and the
    type aliases of `code`."""
    for match in DECLARATION.finditer(code):
        find_end = end_of_signature if match[1] else end_of_item
        end = find_end(code, match.end())
        for opening in re.compile(r"\(").finditer(code, match.end(), end):
            at = opening.start()
            if not BEFORE_TUPLE.search(code, match.start(), at):
                continue
            inside = code[at + 1 : closing(code, at, "()")]
            # A colon follows the pattern of a parameter. The tuple type comes after the colon.
            if re.match(r"\s*:(?!:)", code[at + len(inside) + 2 :]):
                continue
            line = code.count("\n", 0, at) + 1
            yield Tuple(match[2] or match[3], line, elements(inside))


def elements(text):
    """Returns the number of types in `text`, which are separated by commas."""
    depth, last, count = 0, "", 0
    for char in text.replace("->", "  "):
        if char in "([{<":
            depth += 1
        elif char in ")]}>":
            depth -= 1
        if char == "," and depth == 0:
            count, last = count + 1, ""
        else:
            last += char
    return count + bool(last.strip())


@dataclass
class Crate:
    """The code of one crate's source files by their module path, such as `("core", "queue")`."""

    files: dict = field(default_factory=dict)

    @classmethod
    def of(cls, tree, folder):
        """Returns the crate in this folder of a working tree."""
        crate, source = cls(), f"{folder}/src/"
        for file in tree.rust():
            parts = PurePath(file.removeprefix(source)).with_suffix("").parts
            if not file.startswith(source) or "bin" in parts or "tests" in parts:
                continue
            if parts[-1] in ("mod", "lib", "main"):
                parts = parts[:-1]
            crate.files[parts] = tree.code(file)
        return crate

    def imports(self):
        """Returns for each file the set of files of the same crate whose items it names."""
        found = {}
        for module, code in self.files.items():
            code = without_tests(code)
            found[module] = {
                owner
                for name in (*paths_in(code, module), *self.paths_to_children(code, module))
                if (owner := self.owner(name)) is not None and owner != module
            }
        return found

    def paths_to_children(self, code, module):
        """Yields the paths in the code of `module` that begin with one of its child modules."""
        children = {path[-1] for path in self.files if path and path[:-1] == module}
        for child in sorted(children):
            uses = re.compile(rf"(?<![\w:])(?<!::\s){child}\s*::\s*(\w+|\{{)")
            for match in uses.finditer(code):
                if match[1] != "{":
                    yield (*module, child, match[1])
                    continue
                opening = match.end() - 1
                for rest in tree(code[opening + 1 : closing(code, opening)]):
                    yield (*module, child, *rest)

    def owner(self, name):
        """Returns the module of the file that the longest prefix of the path `name` leads to."""
        for length in range(len(name), -1, -1):
            if name[:length] in self.files:
                return name[:length]
        return None


def paths_in(code, module):
    """Yields the absolute path of each name of this crate that the code of `module` uses."""
    for match in re.finditer(
        r"\b(crate|super|self)((?:\s*::\s*(?:super|\w+))*)\s*(::\s*\{)?", code
    ):
        before = code[max(0, match.start() - 1) : match.start()]
        if (
            before == "$"
            or not (match[2] or match[3])
            or not inline_depth_is_zero(code, match.start())
        ):
            continue
        steps = [match[1], *re.findall(r"\w+", match[2])]
        base = resolve(steps, module)
        if base is None:
            continue
        if match[3]:
            opening = match.end() - 1
            for rest in tree(code[opening + 1 : closing(code, opening)]):
                yield base + rest
        else:
            yield base


def inline_depth_is_zero(code, at):
    """Returns False inside `mod name { ... }`, where `super` means another module."""
    for match in re.finditer(r"\bmod\s+\w+\s*\{", code):
        if match.start() < at <= closing(code, match.end() - 1):
            return False
    return True


def resolve(steps, module):
    """Returns the absolute path that `steps`, such as `super::queue`, mean in `module`."""
    base = () if steps[0] == "crate" else module
    if steps[0] == "super":
        base = module[:-1]
    for step in steps[1:]:
        if step == "super":
            base = base[:-1]
        else:
            base = (*base, step)
    return base


def tree(text):
    """Yields the paths of a list of imports, such as `a::B, c::{D, E}`."""
    at = 0
    while at < len(text):
        match = re.compile(r"\s*,?\s*((?:\w+\s*::\s*)*)(\{|\*|\w+)?(?:\s+as\s+\w+)?").match(
            text, at
        )
        steps = tuple(re.findall(r"\w+", match[1]))
        if match[2] == "{":
            end = closing(text, match.end() - 1)
            for rest in tree(text[match.end() : end]):
                yield steps + rest
            at = end + 1
        elif match[2]:
            yield steps if match[2] in ("*", "self") else (*steps, match[2])
            at = match.end()
        else:
            at = max(match.end(), at + 1)


def circles(imports):
    """Yields the sets of two or more modules that import each other (strongly connected components)."""
    index, low, stack, on_stack = {}, {}, [], set()
    found = []

    def visit(start):
        work = [(start, iter(sorted(imports.get(start, ()))))]
        index[start] = low[start] = len(index)
        stack.append(start)
        on_stack.add(start)
        while work:
            node, following = work[-1]
            for other in following:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(sorted(imports.get(other, ())))))
                    break
                if other in on_stack:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    group = set()
                    while True:
                        last = stack.pop()
                        on_stack.discard(last)
                        group.add(last)
                        if last == node:
                            break
                    if len(group) > 1:
                        found.append(group)

    for node in sorted(imports):
        if node not in index:
            visit(node)
    return found
