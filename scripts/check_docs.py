#!/usr/bin/env python3
"""Whether what documents and code cite is there.

    scripts/check_docs.py [ROOT]

Everywhere: documents, and rows of docs/reference/faults.md with the tests they name. In README, docs and the folders' READMEs also:
links and their sections, paths and file names in backticks, test names, and the environment variables, which are those that the
code reads. Prints every citation without its target; exit status 1 if there is one.
"""

import os
import pathlib
import re
import sys

FAULTS, ENVIRONMENT = "docs/reference/faults.md", "docs/reference/environment.md"
DOCUMENT = re.compile(r"(?<![\w/.-])((?:[\w.-]+/)*[\w-]+\.md)\b")
ROWS = re.compile(r"(?:fault rows?|faults\.md[:,]?) ((?:[A-Z]\d+(?:, | and | to )?)+)|\b[Rr]ow ([A-Z]\d+)\b")
TABLE_ROW = re.compile(r"^\| ([A-Z]\d+) \|.*\| ([^|]+) \|$", re.M)
TEST_NAME = re.compile(r"(?:_test\(|add_test\(NAME )(\w+)")
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
FOLDER = r"(?:apps|kernels|runtime|models|data|checkpoint|tests|bench|scripts|docs|cmake)"
PATH = re.compile(rf"{FOLDER}/[\w./-]*")
FILE_NAME = re.compile(r"[\w-]+\.(?:h|cpp|cu|cuh|def|py)")
VARIABLE = re.compile(r"QUINTET_[A-Z_]+")
READS_VARIABLE = re.compile(r'getenv\("(QUINTET_\w+)"|"(QUINTET_(?:NCCL|CUBLASLT))"')
# Recorded elsewhere, or about reports that programs write.
EXEMPT = ("tests/fixtures/", "tests/oracles/", "bench/published/", "bench/gpu/", "tests/e2e/bench_gpu_tiny_test.py",
          "tests/style/check_docs_test.py")


def sources(root):
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "build", "__pycache__")))
        for path in (pathlib.Path(folder, name) for name in sorted(names)):
            name = path.relative_to(root).as_posix()
            if not name.startswith(EXEMPT):
                yield name, path.read_text(encoding="utf-8", errors="ignore")


def anchors(text):
    """GitHub's names of the sections of a document."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(root, name, text):
    for target in LINK.findall(text):
        path, _, section = target.partition("#")
        file = (root / name).parent / path if path else root / name
        if target.startswith("http"):
            continue
        if not file.exists():
            yield f"{name}: links to {target}, which is not there"
        elif section and section not in anchors(file.read_text(encoding="utf-8")):
            yield f"{name}: {file.relative_to(root) if path else name} has no section #{section}"


def missing_names(root, name, text, files, tests, functions):
    """Paths, file names and tests in the backticks of a document."""
    near = (root, (root / name).parent)
    for code in CODE.findall(re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)):
        for path in PATH.findall(code) if not re.search(r"[<{*~]|^(t5x|flaxformer|quintet)/", code) else ():
            if code.startswith(path) or f" {path}" in code:
                if not any((place / path).exists() for place in near):
                    yield f"{name}: there is no {path}"
        if FILE_NAME.fullmatch(code) and code not in files:
            yield f"{name}: there is no file {code}"
        for test in re.findall(r"\btest_\w+", code) if "(" not in code else ():
            if test not in functions:
                yield f"{name}: there is no test {test}"
        if re.fullmatch(r"(?!(?:gpu_)?ops_)\w+_test", code) and code not in tests:  # CMake makes those in loops
            yield f"{name}: there is no test {code}"


def wrong_variables(described, read, everywhere):
    """The documented environment variables against those that the program reads."""
    for variable in sorted(read - described):
        yield f"{ENVIRONMENT} does not have {variable}, which the program reads"
    for variable in sorted(described - everywhere):
        yield f"{ENVIRONMENT} has {variable}, which nothing reads"


def missing_rows(rows, tests):
    for row, names in rows.items():
        if not re.search(r"\w", names):
            yield f"{FAULTS}: row {row} names no test"
        for test in re.findall(r"\w+", names):
            if test not in tests:
                yield f"{FAULTS}: row {row} names {test}, which is no test"


def is_guide(name):
    return name.startswith("docs/") and name.endswith(".md") or re.fullmatch(r"([\w-]+/)?README\.md|CONTRIBUTING\.md", name)


def missing(root):
    texts = dict(sources(root))
    rows = dict(TABLE_ROW.findall(texts[FAULTS]))
    tests = {test for name, text in texts.items() if name.endswith("CMakeLists.txt") for test in TEST_NAME.findall(text)}
    functions = {test for name, text in texts.items() if name.endswith(".py") for test in re.findall(r"def (test_\w+)", text)}
    files = {name.rsplit("/", 1)[-1] for name in texts}
    read, everywhere = set(), set()
    for name, text in texts.items():
        if name.startswith(("apps/", "data/", "kernels/", "models/", "runtime/", "checkpoint/")):
            read.update(one or other for one, other in READS_VARIABLE.findall(text))
        if not name.endswith(".md"):
            everywhere.update(VARIABLE.findall(text))
        for number, line in enumerate(text.splitlines(), 1):
            for path in DOCUMENT.findall(re.sub(r"\[[^\]]*\]\(", "(", line)):  # of a link not its text
                near = (root / path, (root / name).parent / path)
                if "http" not in line and not any(place.exists() for place in near):
                    yield f"{name}:{number}: there is no {path}"
            for several, one in ROWS.findall(line):
                for row in re.findall(r"[A-Z]\d+", several + one):
                    if row not in rows:
                        yield f"{name}:{number}: {FAULTS} has no row {row}"
        if is_guide(name):
            yield from broken_links(root, name, text)
            yield from missing_names(root, name, text, files, tests, functions)
    yield from missing_rows(rows, tests)
    yield from wrong_variables(set(VARIABLE.findall(texts[ENVIRONMENT])), read, everywhere)


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
    root = root if root.is_dir() else root.parents[1]
    found = list(missing(root))
    print("\n".join(found) or "every cited document, section, path, row, test and variable is there")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
