"""Finds clang's tools in the version of Debian 12: other versions lay out and find other things."""

import shutil
import subprocess

VERSION = 14


def find_tool(name):
    """The path of `name` (clang-format, clang-tidy) in this version; None: it is not there."""
    for program in (f"{name}-{VERSION}", name):
        path = shutil.which(program)
        if path and f"version {VERSION}." in subprocess.run([path, "--version"], capture_output=True, text=True).stdout:
            return path
    return None
