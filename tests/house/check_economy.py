#!/usr/bin/env python3
"""The product grows only on purpose: its measures beside those of economy.txt. Exits 1 if one rose, or fell by more than 1 %.

A commit that raises a measure raises its number in that file and says why. A commit that lowers one by more than 1 % lowers
the number, so that it holds. A class above its bounds stands in large_classes.txt, below the reason why it is one. Sources
are read by their braces, not compiled: a class or function is counted the same way each time.

usage: check_economy.py [ROOT] [--write]     --write puts the present numbers into the file
"""
import pathlib
import re
import sys

import check_documents
import check_house

FOLDERS = ("api", "cache", "runner", "scheduler", "server")
SUFFIXES = (".cc", ".h", ".mjs", ".css", ".html")
NUMBERS = "tests/house/economy.txt"
LARGE = "tests/house/large_classes.txt"
METHODS_MAX, MEMBERS_MAX, LINES_MAX = 25, 15, 70
FALL = 0.01  # of a number, which need not be lowered for less

HEADER = """# What the product has, by tests/house/check_economy.py --write. A number rises only in a commit that says why.
"""
# Comments and literals, in which a brace is none; what else they hold decides nothing.
NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![\w])\'(?:\\.|[^\'\\\n])+\'|^[ \t]*#(?:\\\n|[^\n])*',
                      re.DOTALL | re.MULTILINE)
ATTRIBUTE = re.compile(r"\b[A-Z][A-Z_]{4,}\([^()]*\)|\[\[[^\]]*\]\]|\balignas\([^()]*\)")
TYPE = re.compile(r"^(?:template\s*<.*>\s*)?(?:class|struct|union)\b", re.DOTALL)
CONSTANT = re.compile(r"\b(?:constexpr|const)\b[^;=(){}]*?\bk[A-Z]\w*\s*(?:\[[^\]]*\]\s*)*[={(]")
ACCESS = re.compile(r"\b(?:public|private|protected)\s*:(?!:)")
NO_MEMBER = re.compile(r"^(?:using|friend|typedef|static_assert|enum|static|template\s*<[^;]*>\s*(?:friend|using)|"
                       r"(?:class|struct|union)\s+[\w:]+$)\b", re.DOTALL)
INITIALIZED = re.compile(r"\s*(?:,[^;{}]*)?\{")
OPTIONS = {"server/options.cc": re.compile(r'\bOptionSpec\{\s*[\w"]'), "api/base/options.h": re.compile(r"\bvisit\(Row\{")}


def code_of(text):
    """The text with comments, literals and preprocessor lines blank; as many lines."""
    return NOT_CODE.sub(lambda match: " " + "\n" * match.group().count("\n"), text)


def end_of_block(code, opened):
    """Behind the brace that closes the one at `opened`."""
    depth = 0
    for brace in re.compile(r"[{}]").finditer(code, opened):
        depth += 1 if brace.group() == "{" else -1
        if depth == 0:
            return brace.end()
    return len(code)


def without_nested(text, opened, closed):
    """The text without what stands between these brackets, nor the brackets."""
    depth, kept = 0, []
    for character in text:
        depth += character == opened
        if depth == 0:
            kept.append(character)
        depth -= character == closed and depth > 0
    return "".join(kept)


class Class:
    def __init__(self, name):
        self.name, self.methods, self.members = name, 0, 0

    def add(self, statement):
        statement = ACCESS.sub("", ATTRIBUTE.sub("", statement)).strip()
        if not statement or NO_MEMBER.match(statement) and "(" not in statement:
            return
        if re.match(r"(?:using|friend|typedef|static_assert)\b", statement) or re.search(r"=\s*(?:default|delete)$", statement):
            return
        declared = re.sub(r"operator\s*[^\s\w(]+", "operator", statement)
        declared = without_nested(re.sub(r"^template\s*", "", declared).replace("->", ""), "<", ">")
        declared = re.split(r"(?<![=!<>])=(?!=)", declared)[0]
        if "(" in declared:
            self.methods += 1
        else:
            self.members += 1 + len(re.findall(r",", without_nested(without_nested(
                re.sub(r"<[^<>]*>", "", statement), "{", "}"), "(", ")")))


def is_function(head):
    """Whether a brace behind this text opens a function's body: not a value, nor an argument."""
    plain = without_nested(re.sub(r"operator\s*[^\s\w(]+", "operator", head), "<", ">")
    return "(" in plain and plain.count("(") == plain.count(")") and "=" not in without_nested(plain, "(", ")")


def shapes(text):
    """The classes of a source, and its functions as (name, lines)."""
    code = code_of(text)
    classes, functions = [], []

    def read(at, end, of):
        """The statements from `at` to `end`, in a namespace (`of`: None) or a class."""
        begin = at
        for_brace = re.compile(r"[;{}]")
        while at < end:
            found = for_brace.search(code, at, end)
            if found is None:
                return
            at = found.end()
            head = code[begin:found.start()]
            if found.group() == ";":
                if of is not None:
                    of.add(head)
                begin = at
                continue
            if found.group() == "}":
                begin = at
                continue
            plain = ACCESS.sub("", ATTRIBUTE.sub("", head)).strip()
            closed = end_of_block(code, found.start())
            if re.search(r"\bnamespace\b|^extern\s*$", plain) and "(" not in plain:
                read(at, closed - 1, None)
                at = begin = closed
            elif TYPE.match(plain) and not re.search(r"[)=]\s*$", plain):
                words = re.findall(r"[\w:]+", re.split(r"\s:\s|\bfinal\b", TYPE.sub("", plain))[0])
                classes.append(Class(words[-1] if words else ""))
                read(at, closed - 1, classes[-1])
                at = closed
                begin = at  # a variable behind the type is rare, and no member more or less
            elif is_function(plain):
                blank = ACCESS.sub(lambda match: " " * len(match.group()), head)
                start = found.start() - len(blank.lstrip())
                while following := INITIALIZED.match(code, closed):  # a member initialized with braces
                    closed = end_of_block(code, following.end() - 1)
                name = re.search(r"([\w:~]+|operator[^(]*)\s*\(", plain)
                functions.append((name.group(1) if name else "", code.count("\n", start, closed) + 1))
                if of is not None:
                    of.methods += 1
                at = begin = closed
            else:
                at = closed  # an initializer or an enumeration: the statement goes on
                if plain.startswith("enum"):
                    begin = code.find(";", at, end) + 1 or end
                    at = begin

    read(0, len(code), None)
    return classes, functions


def product(root):
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.suffix in SUFFIXES and not check_house.is_test_code(name) and not name.startswith(check_house.VENDORED):
                yield name, path.read_text()


def measure(root):
    """The numbers by name, for the functions their names, and the large classes by name with what they have."""
    lines = constants = options = 0
    classes, functions = {}, []
    for name, text in product(root):
        lines += text.count("\n")
        if name in OPTIONS:
            options += len(OPTIONS[name].findall(text))
        if not name.endswith((".cc", ".h")):
            continue
        constants += len(CONSTANT.findall(code_of(text)))
        found, bodies = shapes(text)
        classes |= {f"{name}: {one.name}": f"{one.methods} methods and {one.members} data members" for one in found
                    if one.methods > METHODS_MAX or one.members > MEMBERS_MAX}
        functions += [f"{name}: {one} has {count} lines" for one, count in bodies if count > LINES_MAX]
    numbers = {"product lines": lines, "document words": sum(check_documents.words(root).values()), "options": options,
               "constants": constants, "long functions": len(functions)}
    return numbers, {"long functions": functions}, classes


def compare(numbers, recorded, named):
    """What the numbers break."""
    breaches = []
    for name in sorted(numbers.keys() | recorded.keys()):
        now, before = numbers.get(name), recorded.get(name)
        if now is None or before is None:
            breaches.append(f"{NUMBERS}: {name}: {'not a measure' if now is None else 'missing'}")
        elif now > before:
            breaches.append("\n    ".join([f"{name}: {now}, {now - before} more than {NUMBERS} has. Take as much away, or raise "
                                           "the number and say why in the commit", *named.get(name, [])]))
        elif before - now > before * FALL:
            breaches.append(f"{name}: {now}, {before - now} fewer than {NUMBERS} has. Lower the number (--write)")
    return breaches


def compare_classes(classes, text):
    """What the large classes break; `text` is that of LARGE: reasons, and the classes of each, indented, below it."""
    breaches, reason, allowed = [], None, set()
    for line in text.splitlines():
        if not line.startswith(" "):
            reason = line if line and not line.startswith("#") else None
        elif reason is None:
            breaches.append(f"{LARGE}:{line}: no reason is above it")
        else:
            allowed.add(line.strip())
    breaches += [f"{name} has {classes[name]}, at most {METHODS_MAX} and {MEMBERS_MAX}: split it, or say in {LARGE} why it is one"
                 for name in sorted(classes.keys() - allowed)]
    return breaches + [f"{LARGE}: {name} is no large class: remove its line" for name in sorted(allowed - classes.keys())]


def read_numbers(path):
    rows = (line.rpartition(" ") for line in path.read_text().splitlines() if line and not line.startswith("#"))
    return {name: int(number) for name, _, number in rows}


def main(arguments):
    root = pathlib.Path(next((word for word in arguments if not word.startswith("-")), "."))
    numbers, named, classes = measure(root)
    if "--write" in arguments:
        (root / NUMBERS).write_text(HEADER + "".join(f"{name} {number}\n" for name, number in numbers.items()))
        return 0
    breaches = compare(numbers, read_numbers(root / NUMBERS), named) + compare_classes(classes, (root / LARGE).read_text())
    for breach in breaches:
        print(breach)
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
