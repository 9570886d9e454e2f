#!/usr/bin/env python3
"""What gin files may bind is read: a field that a configurable only fills is accepted and ignored.

    scripts/check_parameters.py [ROOT]

Looks at the last words of names: a field is read where its name stands outside of its declaration and of the registration
(`.arg("name", &Struct::field)`). What has no effect on purpose is `.accepted("name")`, with a row in apps/config/ineffective.cpp.
"""

import pathlib
import re
import sys

from check_functions import FOLDERS, SUFFIXES, blanked

REGISTERED = re.compile(r"&\s*((?:\w+::)+)(\w+)")
DECLARATION = r"[\w>\]&*](?<!return)\s+{}\s*(=[^=]|;|{{)"


def fields_only_filled(root):
    lines = [line for folder in FOLDERS for file in sorted((root / folder).rglob("*")) if file.suffix in SUFFIXES
             for line in blanked(file.read_text(encoding="utf-8")).splitlines()]
    words = {}
    for line in lines:
        for word in set(re.findall(r"\w+", line)):
            words.setdefault(word, []).append(line)
    registered = {(owner, field) for line in lines if ".arg(" in line or ".required(" in line
                  for owner, field in REGISTERED.findall(line)}
    for owner, field in sorted(registered):
        is_declaration = re.compile(DECLARATION.format(field))
        if all(is_declaration.search(line) or re.search(rf"::{field}\b", line) for line in words[field]):
            yield f"{owner}{field}: bound by gin files and read by nothing: let it act, or accept it with a row in apps/config/ineffective.cpp"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    found = list(fields_only_filled(root))
    print("\n".join(found) or "every field that gin files bind is read")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
