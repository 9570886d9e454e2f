#!/usr/bin/env python3
"""No source file is longer than 800 lines, no verb longer than 80, and no folder of product code has more than 25 files.

    scripts/line_count.py [ROOT]        with --table: lines by folder, median and longest file
"""

import collections
import pathlib
import statistics
import sys

FOLDERS = ("apps", "bench", "checkpoint", "data", "kernels", "models", "runtime", "scripts", "tests")
SUFFIXES = (".h", ".cpp", ".cu", ".cuh", ".def", ".py", ".sh", ".gin")
LIMIT = 800
ALLOWED_LONGER = {"kernels/simt/ptx.h"}  # one instruction after the other
VERB_LIMIT = 80  # apps/cli/<verb>.cpp reads flags and calls the folder that does the work
NOT_VERBS = {"apps/cli/program.cpp"}
NOT_OURS = ("tests/fixtures/",)  # recorded data

PRODUCT = ("apps", "checkpoint", "data", "kernels", "models", "runtime")
FOLDER_LIMIT = 25


def source_files(root):
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            path = file.relative_to(root).as_posix()
            if file.is_file() and file.suffix in SUFFIXES and not path.startswith(NOT_OURS):
                yield path, file.read_text(encoding="utf-8", errors="replace").splitlines()


def line_limit(path):
    if path.startswith("apps/cli/") and path.endswith(".cpp") and path not in NOT_VERBS:
        return VERB_LIMIT
    return None if path in ALLOWED_LONGER else LIMIT


def folder_problems(root):
    """Folders of product code with too many files."""
    counts = collections.Counter()
    for folder in PRODUCT:
        for file in (root / folder).rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                counts[file.parent.relative_to(root).as_posix()] += 1
    for folder, count in sorted(counts.items()):
        if count > FOLDER_LIMIT:
            yield f"{folder}: {count} files; at most {FOLDER_LIMIT}: make folders of it"


def main():
    arguments = [a for a in sys.argv[1:] if not a.startswith("--")]
    root = pathlib.Path(arguments[0]).resolve() if arguments else pathlib.Path(__file__).resolve().parent.parent
    problems, counts = list(folder_problems(root)), {}
    for path, lines in source_files(root):
        counts.setdefault(path.split("/")[0], []).append((len(lines), path))
        most = line_limit(path)
        if most is not None and len(lines) > most:
            problems.append(f"{path}: {len(lines)} lines; at most {most}: split it")
    if "--table" in sys.argv:
        for folder, files in counts.items():
            sizes = [n for n, _ in files]
            print(f"{folder:<12} {len(files):>4} files {sum(sizes):>7} lines  median {statistics.median(sizes):>5.0f}"
                  f"  longest {max(files)[1]} ({max(sizes)})")
    print("\n".join(problems) if problems else f"line counts: {sum(map(len, counts.values()))} files are short enough")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
