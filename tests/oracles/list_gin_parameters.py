#!/usr/bin/env python3
"""Lists every parameter that gin files may bind of T5X, flaxformer, seqio and t5.

    list_gin_parameters.py T5X FLAXFORMER SEQIO T5 > tests/gin/t5x_parameters.txt

Each argument is the folder that holds the package: a checkout, or site-packages.

Under dynamic registration that is every parameter of every public function, class and method of a module. Only
names are read, from the syntax tree; nothing is run. A line: full name, a colon, the parameters.
"""

import ast
import os
import sys

SKIPPED = {"setup.py", "conf.py", "conf_sphinx_patch.py", "version.py"}
SKIPPED_FOLDERS = {"testing", "testdata", "scripts", "fiddle_configs", "docs", "notebooks"}


def modules(checkout, package):
    """Yields (dotted name, syntax tree) of each module of a package that is no test."""
    for folder, below, files in os.walk(os.path.join(checkout, package)):
        below[:] = sorted(name for name in below if name not in SKIPPED_FOLDERS)
        for file in sorted(files):
            if not file.endswith(".py") or file in SKIPPED or "test" in file:
                continue
            path = os.path.join(folder, file)
            name = os.path.relpath(path, checkout)[: -len(".py")].replace(os.sep, ".")
            with open(path, encoding="utf-8") as text:
                yield name.removesuffix(".__init__"), ast.parse(text.read())


def parameters(function):
    """Names of a function's parameters, without self and cls."""
    arguments = function.args
    names = [a.arg for a in arguments.posonlyargs + arguments.args + arguments.kwonlyargs]
    return [name for name in names if name not in ("self", "cls")]


def functions(body):
    return [node for node in body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def class_variable(annotation):
    return "ClassVar" in ast.dump(annotation) or "InitVar" in ast.dump(annotation)


def own_fields(node):
    """Annotated fields of a class: the parameters of a dataclass and of a linen module."""
    return [s.target.id for s in node.body
            if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)
            and not s.target.id.startswith("_") and not class_variable(s.annotation)]


def last_name(node):
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def constructor(node, classes, seen=()):
    """Parameters of making an object of a class: of its __init__, or the fields of it and its bases."""
    for function in functions(node.body):
        if function.name == "__init__":
            return parameters(function)
    names = []
    for base in map(last_name, node.bases):
        if base in classes and base not in seen:
            names += constructor(classes[base], classes, (*seen, base))
    return list(dict.fromkeys(names + own_fields(node)))


def public(name):
    return not name.startswith("_")


def main():
    packages = zip(sys.argv[1:], ("t5x", "flaxformer", "seqio", "t5"), strict=True)
    trees = [found for checkout, package in packages for found in modules(checkout, package)]
    classes = {}  # by their last name: a base is rarely of another module's namesake
    for _, tree in trees:
        classes.update((n.name, n) for n in tree.body if isinstance(n, ast.ClassDef))
    for module, tree in trees:
        listed = {f.name: parameters(f) for f in functions(tree.body)}
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                own = {**classes, **{n.name: n for n in tree.body if isinstance(n, ast.ClassDef)}}
                listed[node.name] = constructor(node, own)
                listed.update((f"{node.name}.{f.name}", parameters(f)) for f in functions(node.body)
                              if public(f.name))
        for name, names in listed.items():
            if names and all(map(public, name.split("."))):
                print(f"{module}.{name}: {' '.join(filter(public, names))}")


if __name__ == "__main__":
    main()
