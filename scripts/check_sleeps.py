#!/usr/bin/env python3
"""Tests wait for conditions: a sleep stands in a waiting loop of the harness, or says which delay the test is about.

    scripts/check_sleeps.py [ROOT]

A delay that is the test (a slow disk, a rank that comes late, a moment drawn by chance) has `delay: what for` in a comment
on its line or the line before.
"""

import pathlib
import re
import sys

SLEEP = re.compile(r"\b(sleep_for|sleep_until|usleep|nanosleep|sleep)\s*\(")
WAITING_LOOPS = {"tests/harness/wait_for.h", "tests/e2e/e2e.py"}
REASON = re.compile(r"(//|#) delay: \w+")


def sleeps_without_reason(root):
    for file in sorted((root / "tests").rglob("*")):
        path = file.relative_to(root).as_posix()
        if file.suffix not in (".py", ".h", ".cpp", ".cu") or path in WAITING_LOOPS or "tests/fixtures/" in path:
            continue
        lines = file.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, 1):
            before = lines[number - 2] if number > 1 else ""
            if SLEEP.search(line) and not REASON.search(line) and not REASON.search(before):
                yield f"{path}:{number}: wait for a condition (wait_for), or say `delay: what for`: {line.strip()}"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
    root = root if root.is_dir() else root.parent.parent
    problems = list(sleeps_without_reason(root))
    print("\n".join(problems) if problems else "sleeps: tests wait for conditions")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
