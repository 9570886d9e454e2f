#!/usr/bin/env python3
"""No function of the product is longer than 60 lines. Kernels are exempt: their loops belong together.

    scripts/check_functions.py [ROOT]        with --table: the longest of each folder
"""

import pathlib
import re
import sys

FOLDERS = ("apps", "checkpoint", "data", "models", "runtime")
SUFFIXES = (".h", ".cpp", ".cu", ".cuh")
LIMIT = 60
# What holds no braces and no semicolons of the code's own: comments, raw strings, strings, characters, directives.
NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Fa-f])\'(?:\\.|[^\'\\\n])+\'|'
                      r"^[ \t]*#(?:\\\n|[^\n])*", re.S | re.M)
HOLDS_FUNCTIONS = re.compile(r"\b(namespace|class|struct|union|extern)\b")


def blanked(text):
    """The text with what is not code as blanks, line for line."""
    return NOT_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)


def functions(text):
    """(first line, lines, head) of each function with a body."""
    code = blanked(text)
    open_scopes, head = [], 0  # of each open brace: None, or where its function's head begins
    for at, character in enumerate(code):
        if character == ";":
            head = at + 1
        elif character == "{":
            before = code[head:at]
            inside = any(scope is not None for scope in open_scopes)
            is_function = not inside and "(" in before and not HOLDS_FUNCTIONS.search(before.split("(")[0])
            open_scopes.append(head + len(before) - len(before.lstrip()) if is_function else None)
            if not is_function:
                head = at + 1
        elif character == "}" and open_scopes:
            begin = open_scopes.pop()
            if begin is not None:
                first = code.count("\n", 0, begin) + 1
                yield first, code.count("\n", begin, at) + 1, " ".join(code[begin:at].split("{")[0].split())
            head = at + 1


def main():
    arguments = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    root = pathlib.Path(arguments[0]).resolve() if arguments else pathlib.Path(__file__).resolve().parent.parent
    problems, longest, count = [], {}, 0
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in SUFFIXES:
                continue
            path = file.relative_to(root).as_posix()
            for line, lines, head in functions(file.read_text(encoding="utf-8")):
                count += 1
                longest[folder] = max(longest.get(folder, (0, "")), (lines, f"{path}:{line}"))
                if lines > LIMIT:
                    problems.append(f"{path}:{line}: {lines} lines, at most {LIMIT}: {head[:80]}")
    if "--table" in sys.argv:
        for folder, (lines, place) in longest.items():
            print(f"{folder:<12} {lines:>4}  {place}")
    print("\n".join(problems) if problems else f"functions: {count} are short enough")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
