#!/usr/bin/env python3
"""Which folder may include which: the directions of the house, checked.

    scripts/check_includes.py [ROOT]

base <- everything; base/gin and mpi <- all but kernels; kernels <- runtime <- {models, checkpoint} <- apps;
base, gin, mpi <- data <- apps. Below these, folders may include each other in one direction only: a cycle of folders
is an error, however deep they lie. Prints every include that goes the wrong way; exit status 1 if there is one.
"""

import collections
import pathlib
import re
import sys

# Folder -> folders whose headers its files may include (its own always).
ALLOWED = {
    "runtime/base": set(),
    "runtime/gin": {"runtime/base"},
    "runtime/mpi": {"runtime/base"},
    "kernels": {"runtime/base"},
    "runtime": {"runtime/base", "runtime/gin", "runtime/mpi", "kernels"},
    "models": {"runtime/base", "runtime/gin", "runtime/mpi", "kernels", "runtime"},
    "checkpoint": {"runtime/base", "runtime/gin", "runtime/mpi", "runtime"},
    "data": {"runtime/base", "runtime/gin", "runtime/mpi"},
    "apps": {"runtime/base", "runtime/gin", "runtime/mpi", "kernels", "runtime", "models", "checkpoint", "data"},
}
# Only these may see a library that is meant to stay behind a wrapper.
BEHIND = {
    "hdf5.h": ("checkpoint/",),
    "mpi.h": ("runtime/mpi/", "runtime/mesh/collectives/", "data/service/"),
    "nccl.h": ("runtime/mesh/collectives/",),
    "sentencepiece_processor.h": ("data/",),
    "sentencepiece_trainer.h": ("data/",),
    "dnnl.h": ("kernels/", "bench/"),
    "dnnl.hpp": ("kernels/", "bench/"),
}
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def layer_of(path):
    """The longest folder of ALLOWED that the path lies in; None outside of all."""
    return max((layer for layer in ALLOWED if path.startswith(layer + "/")), key=len, default=None)


def includes(root):
    """Of every product file: path, line number, the quote and the name."""
    for folder in sorted({layer.split("/")[0] for layer in ALLOWED}):
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in (".h", ".cpp", ".cu", ".cuh", ".def"):
                continue
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                match = INCLUDE.match(line)
                if match:
                    yield file.relative_to(root).as_posix(), number, *match.groups()


def wrong_includes(root):
    for path, number, quote, name in includes(root):
        layer = layer_of(path)
        target = layer_of(name) if quote == '"' else None
        if target and target != layer and target not in ALLOWED[layer]:
            yield f"{path}:{number}: {layer} must not include {target}: {name}"
        homes = BEHIND.get(name.split("/")[-1])
        if homes and quote == "<" and not path.startswith(homes):
            yield f"{path}:{number}: <{name}> stays behind {' and '.join(homes)}"
        source = name.replace(".pb.h", ".proto")  # from which the build makes it
        there = any((folder / source).exists() for folder in (root, (root / path).parent))
        if quote == '"' and not there and not name.startswith("hwy/"):
            yield f"{path}:{number}: no such file below the root: {name}"


def reached_from(start, edges):
    seen, todo = set(), [start]
    while todo:
        new = set(edges.get(todo.pop(), ())) - seen
        seen |= new
        todo += new
    return seen


def cyclic_includes(root):
    """Folders that include each other, directly or not."""
    edges = collections.defaultdict(lambda: collections.defaultdict(list))
    for path, number, quote, name in includes(root):
        folder, other = path.rsplit("/", 1)[0], name.rsplit("/", 1)[0]
        if quote == '"' and folder != other and (root / name).exists():
            edges[folder][other].append(f"{path}:{number}")
    for folder, others in sorted(edges.items()):
        for other, places in sorted(others.items()):
            if folder in reached_from(other, edges):
                yield f"{places[0]}: {folder} includes {other}, which includes {folder}, directly or not: a cycle of folders"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
    root = root if root.is_dir() else root.parent.parent
    problems = list(wrong_includes(root)) + list(cyclic_includes(root))
    print("\n".join(problems) if problems else "includes: every one points down, and no folders include each other")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
