#!/usr/bin/env python3
"""Whether what the code cites is there: documents, rows of docs/faults.md, and the tests that its rows name.

    scripts/check_docs.py [ROOT]

Prints every citation without its target; exit status 1 if there is one.
"""

import os
import pathlib
import re
import sys

DOCUMENT = re.compile(r"(?<![\w/.-])((?:[\w.-]+/)*[\w-]+\.md)\b")
ROWS = re.compile(r"(?:fault rows?|docs/faults\.md[:,]?) ((?:[A-Z]\d+(?:, | and | to )?)+)|\b[Rr]ow ([A-Z]\d+)\b")
TABLE_ROW = re.compile(r"^\| ([A-Z]\d+) \|.*\| ([^|]+) \|$", re.M)
TEST_NAME = re.compile(r"(?:_test\(|add_test\(NAME )(\w+)")
# Recorded elsewhere, or about reports that programs write.
EXEMPT = ("tests/fixtures/", "tests/oracles/", "bench/published/", "bench/gpu/", "tests/e2e/bench_gpu_tiny_test.py")


def sources(root):
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "build", "__pycache__")))
        for path in (pathlib.Path(folder, name) for name in sorted(names)):
            name = path.relative_to(root).as_posix()
            if not name.startswith(EXEMPT):
                yield name, path.read_text(encoding="utf-8", errors="ignore")


def missing(root):
    rows = dict(TABLE_ROW.findall((root / "docs/faults.md").read_text(encoding="utf-8")))
    tests = set()
    for name, text in sources(root):
        if name.endswith("CMakeLists.txt"):
            tests.update(TEST_NAME.findall(text))
        for number, line in enumerate(text.splitlines(), 1):
            for path in DOCUMENT.findall(line):
                near = (root / path, (root / name).parent / path)
                if "http" not in line and not any(place.exists() for place in near):
                    yield f"{name}:{number}: there is no {path}"
            for several, one in ROWS.findall(line):
                for row in re.findall(r"[A-Z]\d+", several + one):
                    if row not in rows:
                        yield f"{name}:{number}: docs/faults.md has no row {row}"
    for row, names in rows.items():
        if not re.search(r"\w", names):
            yield f"docs/faults.md: row {row} names no test"
        for test in re.findall(r"\w+", names):
            if test not in tests:
                yield f"docs/faults.md: row {row} names {test}, which is no test"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
    root = root if root.is_dir() else root.parents[1]
    found = list(missing(root))
    print("\n".join(found) or "every cited document, row and test is there")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
