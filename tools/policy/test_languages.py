"""The readers of C and Python understand what their languages permit, and the rules use them."""

import c_source
import pytest
import python_source
from rust_source import Function
from test_check import check, tree, write

__all__ = ["tree"]  # The fixture of a small working tree.

STEPS = "    step();\n" * 5


def found(text):
    return [(it.name, it.line, it.lines) for it in c_source.functions(c_source.blank(text))]


@pytest.mark.parametrize(
    ("text", "functions"),
    [
        ("int f(void) {\n    return 1;\n}\n", [("f", 1, 3)]),
        ("static int\nf(void)\n{\n}\n\nvoid g() {}\n", [("f", 2, 3), ("g", 6, 1)]),
        ("const char *s = \"} {\";\nint f(void) {\n    return '{' + '\"';\n}\n", [("f", 2, 3)]),
        ("// void f() {\n/* } { */ void g(void) {\n}\n", [("g", 2, 2)]),
        ("// a comment that goes on \\\n{ here\nvoid f(void) {}\n", [("f", 3, 1)]),
        ('auto s = R"x({ )" })x";\nvoid f() {}\n', [("f", 2, 1)]),
        ("long n = 1'000'000;\nvoid f() {}\n", [("f", 2, 1)]),
        ("int a[] = {1, 2}, b;\nstruct s {\n    int x;\n};\nenum e { A, B };\n", []),
        ("struct s x = {.f = g(1)};\nint (*p)(int) = h;\nint f(int);\n", []),
        (
            "void f(struct s *x) {\n    for (;;) {\n        if (x) {\n        }\n    }\n}\n",
            [("f", 1, 6)],
        ),
        ("TEST(a_name) {\n}\n", [("a_name", 1, 2)]),
        ("DECLARE(x)\nDECLARE(y)\nint f(void) {\n}\n", [("f", 3, 2)]),
        ("__attribute__((reqd_work_group_size(1, 1, 1))) kernel void k(int a) {}\n", [("k", 1, 1)]),
        ("template <typename T, int N = 4> __global__ void k(T *x) {}\n", [("k", 1, 1)]),
        (
            "struct s {\n    s(int a) : x(a) {\n    }\n    int g() const { return 1; }\n};\n",
            [("s", 2, 2), ("g", 4, 1)],
        ),
        ("bool operator==(const T &a) {\n}\n", [("operator", 1, 2)]),
        ("template <> void f<A<B>>(int a) {\n}\nvoid g() {}\n", [("f", 1, 2), ("g", 3, 1)]),
        ("struct alignas(16) s {\n    void f() {}\n};\n", [("f", 2, 1)]),
        ("struct __attribute__((a, b(4))) s {\n    void f() {}\n};\n", [("f", 2, 1)]),
        ("kernel void k() __attribute__((reqd_work_group_size(1, 1, 1))) {}\n", [("k", 1, 1)]),
        ("[[nodiscard]] auto f() const noexcept(true) -> a::b<c> {\n}\n", [("f", 1, 2)]),
        ("template <class T, class = e<(sizeof(T) > 4)>> void f(x<T> a) {}\n", [("f", 1, 1)]),
        ("void f(s a = {}, s b = {1, {2}}) {\n}\nvoid g() {}\n", [("f", 1, 2), ("g", 3, 1)]),
        ("struct s {\n    s() : x{1}, y(2) {\n    }\n};\n", [("s", 2, 2)]),
        (
            "int f() {\n    switch (c) {\n    case'{': g();\n    }\n}\nvoid h() {}\n",
            [("f", 1, 5), ("h", 6, 1)],
        ),
        ('auto s = LR"({)" u8R"({)", c = L\'{\';\nint n = 0xA\'B;\nvoid f() {}\n', [("f", 3, 1)]),
        (
            'extern "C" {\nvoid f() {\n}\n}\nnamespace a::b {\nvoid g() {}\n}\n',
            [("f", 2, 2), ("g", 6, 1)],
        ),
        ("auto less = [](int a, int b) { return a < b; };\nvoid f() {}\n", [("f", 2, 1)]),
        ("int (*f(int a))(int) {\n}\n", []),
        # Both branches open the block that one brace closes.
        (
            "#if A\nint f(int a) {\n#else\nint f(long a) {\n#endif\n    g();\n}\nvoid h() {}\n",
            [("f", 4, 4), ("h", 8, 1)],
        ),
        (
            "void f() {\n#ifdef A\n    if (a) {\n#elif B\n    if (b) {\n"
            "#else\n    {\n#endif\n    }\n}\n",
            [("f", 1, 10)],
        ),
        # Both branches close the same function.
        (
            "void f() {\n#if A\n}\n#else\n    g();\n}\n#endif\nvoid h() {}\n",
            [("f", 1, 6), ("h", 8, 1)],
        ),
        ("#define F(x) void x(void) {\nF(a) }\nvoid g() {}\n", [("g", 3, 1)]),
        (
            "#define LOOP(x) \\\n    for (;;) { \\\n        x; \\\n    }\nvoid g() {}\n",
            [("LOOP", 1, 4), ("g", 5, 1)],
        ),
        (
            "#include <x.h>\n#  if defined(A) && \\\n    defined(B)\nvoid f() {}\n#  endif\n",
            [("f", 4, 1)],
        ),
    ],
)
def test_functions_of_c_are_found(text, functions):
    assert found(text) == functions


@pytest.mark.parametrize("text", ["void g() {\n", "}\n", 'extern "C" {\n', "int x = g({1}\n"])
def test_a_brace_that_hides_functions_is_found(tree, text):
    write(tree, "a.c", f"void f() {{}}\n{text}void h() {{}}\n")
    result = check(tree, "--rule", "function-lines")
    assert result.returncode == 1 and "a.c has a brace without" in result.stdout, result.stdout


def test_functions_of_python_are_found():
    text = "@a\ndef f():\n    def g(): pass\n    return '''\ndef h():\n'''\n"
    text += "class C:\n async def m(self):\n  pass\n"
    functions = python_source.functions(text)
    assert sorted(functions, key=lambda it: it.line) == [
        Function("f", 2, 5),
        Function("g", 3, 1),
        Function("m", 8, 2),
    ]


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("a.c", f"void f(void) {{\n{STEPS}}}\n", "a.c:1: f has 7 lines"),
        ("a.cl", f"kernel void f(int a) {{\n{STEPS}}}\n", "a.cl:1: f has 7 lines"),
        ("a.cu", f"struct s {{\n    void f() {{\n{STEPS}    }}\n}};\n", "a.cu:2: f has 7 lines"),
        ("a.h", "#define F \\\n" + "f(); \\\n" * 5 + "f()\n", "a.h:1: F has 7 lines"),
        ("a.py", f"def f():\n{STEPS.replace(';', '')}", "a.py:1: f has 6 lines"),
    ],
)
def test_a_long_function_is_found_in_each_language(tree, name, text, place):
    write(tree, name, text)
    result = check(tree, "--rule", "function-lines")
    assert result.returncode == 1 and place in result.stdout, result.stdout
    write(
        tree,
        name,
        text.replace("    step();\n", "", 3)
        .replace("f(); \\\n", "", 3)
        .replace("    step()\n", "", 3),
    )
    assert check(tree, "--rule", "function-lines").returncode == 0


# Three files, each of which uses the next one.
CIRCLE_OF_CALLS = {
    "all.h": "void a(void);\nvoid b(void);\nvoid c(void);\n",
    "a.c": '#include "all.h"\nvoid a(void) { b(); }\n',
    "b.c": '#include "all.h"\nvoid b(void) { c(); }\n',
    "c.c": '#include "all.h"\nvoid c(void) { call(a); }\n',
}
CIRCLE_OF_INCLUDES = {
    "a.h": '#include "x/b.h"\n',
    "x/b.h": '#include "../c.h"\n',
    "c.h": '#include "a.h"\n',
}
CIRCLE_OF_IMPORTS = {
    "a.py": "import b\n",
    "b.py": "from x import c\n",
    "x/c.py": "def f():\n    from a import g\n",
    "x/__init__.py": "from . import c\n",
}


CIRCLE_BY_TABLE = CIRCLE_OF_CALLS | {
    "b.c": '#include "all.h"\nstatic const struct s all = {1, c};\nvoid b(void) {}\n',
    "c.c": '#include "all.h"\nvoid c(void) { it = x ? a : 0; }\n',
}


@pytest.mark.parametrize(
    "files", [CIRCLE_OF_CALLS, CIRCLE_BY_TABLE, CIRCLE_OF_INCLUDES, CIRCLE_OF_IMPORTS]
)
def test_circles_are_found(tree, files):
    for name, text in files.items():
        write(tree, f"tool/{name}", text)
    result = check(tree, "--rule", "circles")
    assert result.returncode == 1 and "files use each other: tool/" in result.stdout, result.stdout


@pytest.mark.parametrize(
    "text",
    [
        '#include "all.h"\nvoid c(void) { it->a(b.a); }\n',
        '#include "all.h"\n// a();\nvoid c(void) { say("a()"); }\n',
        '#include "all.h"\nstatic void a(void) {}\nvoid c(void) { other(); }\n',
        "void c(void) { a(); }\n",
    ],
    ids=["field", "comment and text", "static", "without the header"],
)
def test_other_uses_of_a_name_are_no_circle(tree, text):
    for name, other in (CIRCLE_OF_CALLS | {"c.c": text}).items():
        write(tree, name, other)
    result = check(tree, "--rule", "circles")
    assert result.returncode == 0, result.stdout


def test_functions_with_one_name_in_several_programs_are_no_circle(tree):
    for name, text in CIRCLE_OF_CALLS.items():
        write(tree, name, text)
    write(tree, "d.c", '#include "all.h"\nvoid a(void) {}\n')
    assert check(tree, "--rule", "circles").returncode == 0


@pytest.mark.parametrize(
    ("names", "lines", "is_found"),
    [
        (("a/one.c", "b/two.cl"), "    one(&x);\n    two(3); // this\n\n    three.four();\n", True),
        (("one.py", "b/two.py"), "    one(x)\n    two(3)\n\n    # this\n    three = 4\n", True),
        (("a/one.c", "tests/two.c"), "    one(&x);\n    two(3);\n    three.four();\n", False),
        (("a/one.c", "a/examples/two.c"), "    one();\n    two();\n    three();\n", False),
        (("one.py", "b/test_two.py"), "    one()\n    two()\n    three()\n", False),
        (("one.c", "two.c"), "#include <a>\n#include <b>\n#define C\n", False),
        (("one.py", "two.py"), "import a\nfrom b import c\nimport d\n", False),
    ],
)
def test_repeated_lines_are_found_in_each_language(tree, names, lines, is_found):
    for name in names:
        write(tree, name, f"start_of_{name.split('/')[-1].replace('.', '_')}()\n{lines}")
    result = check(tree, "--rule", "repetition")
    assert result.returncode == is_found, result.stdout


def test_the_name_of_a_table_may_be_wide(tree):
    write(tree, "a.toml", f'[part."{"word " * 20}"]\nkey = 1\n')
    assert check(tree, "--rule", "width").returncode == 0
    write(tree, "a.toml", f'[part]\nkey = "{"word " * 20}"\n')
    assert check(tree, "--rule", "width").returncode == 1
