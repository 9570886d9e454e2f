"""scripts/check_docs.py finds each kind of citation whose target is missing, and none in a tree where all are there."""

import pathlib
import subprocess
import sys
import tempfile

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/check_docs.py"
TREE = {
    "README.md": "# Title\n\n[faults](docs/reference/faults.md#rows-of-faults), `data/a.h`, `a.h`, `good_test`, `test_fact`\n",
    "docs/reference/faults.md": "# Rows of faults\n\n| C1 | a kill | nothing | good_test |\n",
    "docs/reference/environment.md": "| `QUINTET_PLACE` | where |\n",
    "data/a.h": '// Fault row C1.\nconst char* place = getenv("QUINTET_PLACE");\n',
    "tests/CMakeLists.txt": "quintet_test(good_test\n",
    "tests/a.py": "def test_fact():\n",
}
# A file, what is replaced in it, and what is reported then.
BREAKS = [
    ("README.md", "#rows-of-faults", "#rows", "has no section #rows"),
    ("README.md", "(docs/reference/faults.md", "(docs/reference/fault.md", "links to docs/reference/fault.md"),
    ("README.md", "`data/a.h`", "`data/b.h`", "there is no data/b.h"),
    ("README.md", "`a.h`", "`b.h`", "there is no file b.h"),
    ("README.md", "`good_test`", "`bad_test`", "there is no test bad_test"),
    ("README.md", "`test_fact`", "`test_lie`", "there is no test test_lie"),
    ("data/a.h", "row C1", "row C9", "has no row C9"),
    ("data/a.h", "// Fault", "// docs/none.md. Fault", "there is no docs/none.md"),
    ("data/a.h", "QUINTET_PLACE", "QUINTET_ROOM", "does not have QUINTET_ROOM"),
    ("docs/reference/environment.md", "QUINTET_PLACE", "QUINTET_PLACE`, `QUINTET_NEVER", "QUINTET_NEVER, which nothing reads"),
    ("docs/reference/faults.md", "| good_test", "| worse_test", "names worse_test"),
]


def reported(broken_file="", old="", new=""):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in TREE.items():
            file = pathlib.Path(folder, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            assert name != broken_file or old in text, (name, old)
            file.write_text(text.replace(old, new) if name == broken_file else text)
        done = subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True)
        return done.returncode, done.stdout


code, out = reported()
assert code == 0, out
for file, old, new, expected in BREAKS:
    code, out = reported(file, old, new)
    assert code == 1 and expected in out, f"{old} -> {new}: expected '{expected}', exit {code}: {out}"
print(f"{len(BREAKS)} broken citations, all found")
