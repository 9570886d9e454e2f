#!/usr/bin/env python3
"""Whether every C++ and CUDA file is as clang-format lays it out by .clang-format.

    scripts/check_format.py [ROOT]          # names what is not; exit status 1 then, 77 without clang-format 14
    scripts/check_format.py --fix [ROOT]    # lays it out

Another version of clang-format lays some lines out otherwise, so the version is fixed to Debian 12's.
"""

import argparse
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
from clang_tools import VERSION, find_tool  # noqa: E402

SUFFIXES = {".cpp", ".h", ".cu", ".cuh"}
FOLDERS = ["apps", "bench", "checkpoint", "data", "kernels", "models", "runtime", "tests"]


def sources(root):
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES and not path.is_relative_to(root / "tests" / "fixtures"):
                yield path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--fix", action="store_true", help="change the files")
    args = parser.parse_args()
    program = find_tool("clang-format")
    if program is None:
        print(f"check_format: skipped: no clang-format {VERSION} (Debian: clang-format)")
        return 77
    command = [program, "-i"] if args.fix else [program, "--dry-run", "-Werror"]
    done = subprocess.run([*command, *sources(args.root)], capture_output=True, text=True)
    wrong = sorted({line.split(":")[0] for line in done.stderr.splitlines() if "[-Wclang-format-violations]" in line})
    if done.returncode != 0:
        print("\n".join(wrong) or done.stderr)
        print(f"{len(wrong)} files are not laid out by .clang-format: scripts/check_format.py --fix")
        return 1
    print("format: every file is as .clang-format says")
    return 0


if __name__ == "__main__":
    sys.exit(main())
