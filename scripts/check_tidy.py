#!/usr/bin/env python3
"""Runs clang-tidy by .clang-tidy: names, and a few checks whose findings are faults.

    scripts/check_tidy.py                  # files that the last commit changed, at most twelve, as CI does
    scripts/check_tidy.py --all            # every source file of the build: an hour of two cores
    scripts/check_tidy.py models/*.cpp     # these

Takes compile_commands.json of --build. Exit status 1 if it finds something, 77 without clang-tidy 14 or a build.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from clang_tools import VERSION, find_tool  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Errors of its own compiler do not count: clang 14 lacks parts of C++20, and g++ has compiled the file.
FINDING = re.compile(r"^\S+:\d+:\d+: (?:error|warning): .*\[(?!clang-diagnostic-error)[\w.,-]+\]$", re.M)


def commands_by_file(build):
    """Commands for the files of ours that the compiler for the host is given; nvcc's flags mean nothing to clang-tidy.
    What a unity file includes is compiled as that is."""
    found = {}
    for command in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(command["directory"], command["file"]).resolve()
        if path.parent.name == "Unity" and path.is_relative_to(build.resolve()):
            sources = [pathlib.Path(name) for name in re.findall(r'#include "(.*)"', path.read_text())]
        else:
            sources = [path]
        for source in sources:
            if source.suffix == ".cpp" and source.is_relative_to(ROOT) and not source.is_relative_to(build.resolve()):
                found.setdefault(source, {**command, "file": str(source),
                                          "command": command["command"].replace(str(path), str(source))})
    return found


def changed_files():
    changed = subprocess.run(["git", "-C", ROOT, "diff", "--name-only", "--diff-filter=d", "HEAD~1", "HEAD"],
                             capture_output=True, text=True)
    return [ROOT / name for name in changed.stdout.splitlines()]


def findings(program, commands, file):
    done = subprocess.run([program, "-p", commands, "--quiet", file], capture_output=True, text=True)
    found = {match.group() for match in FINDING.finditer(done.stdout)}
    return found | ({f"{file}: clang-tidy ended by signal {-done.returncode}"} if done.returncode < 0 else set())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--all", action="store_true", help="every file")
    parser.add_argument("--most", type=int, default=12, help="of the changed files")
    args = parser.parse_args()
    program = find_tool("clang-tidy")
    if program is None or not (args.build / "compile_commands.json").exists():
        print(f"check_tidy: skipped: no clang-tidy {VERSION} (Debian: clang-tidy), or nothing is configured in {args.build}")
        return 77
    built = commands_by_file(args.build)
    asked = args.files or (sorted(built) if args.all else changed_files())
    files = [path for path in (pathlib.Path(path).resolve() for path in asked) if path in built]
    if not args.all and not args.files:
        files = files[:args.most]
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        (pathlib.Path(folder) / "compile_commands.json").write_text(json.dumps([built[file] for file in files]))
        found = sorted({line for lines in pool.map(lambda file: findings(program, folder, file), files) for line in lines})
    print("\n".join(found) if found else f"tidy: {len(files)} files")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
