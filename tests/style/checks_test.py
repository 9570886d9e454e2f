"""scripts/check_includes.py, line_count.py, check_functions.py, check_parameters.py and check_sleeps.py: trees of a few files that break one
rule each, and one that breaks none."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def run(check, files):
    """Exit code and output of a check on a tree of these files, path -> text."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            file = Path(root, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        done = subprocess.run([sys.executable, SCRIPTS / f"{check}.py", root], capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout + done.stderr


def including(*names):
    return "".join(f'#include "{name}"\n' for name in names)


class Check(unittest.TestCase):
    def expect(self, files, *parts):
        """The script finds what has these parts in a tree of these files; without parts, nothing."""
        code, said = run(self.script, files)
        self.assertEqual(code, 1 if parts else 0, said)
        for part in parts:
            self.assertIn(part, said)


class Includes(Check):
    script = "check_includes"

    def test_a_tree_that_breaks_no_rule(self):
        self.expect({"apps/serve/http/a.h": "", "apps/serve/b.cpp": including("apps/serve/http/a.h"),
                     "apps/cli/c.cpp": including("apps/serve/http/a.h", "data/d.h"), "data/d.h": ""})

    def test_a_layer_above(self):
        self.expect({"data/a.cpp": including("models/b.h"), "models/b.h": ""}, "data/a.cpp:1: data must not include models")

    def test_two_folders_that_include_each_other(self):
        self.expect({"apps/a/a.h": including("apps/b/b.h"), "apps/b/b.h": "", "apps/b/b.cpp": including("apps/a/a.h")},
                    "apps/a/a.h:1: apps/a includes apps/b", "apps/b/b.cpp:1: apps/b includes apps/a")

    def test_a_folder_and_its_sub_folder(self):
        self.expect({"data/a.cpp": including("data/sub/b.h"), "data/sub/b.h": including("data/c.h"), "data/c.h": ""},
                    "data/sub/b.h:1: data/sub includes data", "a cycle of folders")

    def test_a_cycle_of_three(self):
        self.expect({"kernels/a/a.h": including("kernels/b/b.h"), "kernels/b/b.h": including("kernels/c/c.h"),
                     "kernels/c/c.h": "", "kernels/c/d.cu": including("kernels/a/a.h")}, "kernels/c includes kernels/a")

    def test_a_file_that_is_not_there(self):
        self.expect({"apps/a/a.cpp": including("apps/a/old.h")}, "apps/a/a.cpp:1: no such file below the root")
        self.expect({"apps/a/a.cpp": including("apps/a/b.pb.h"), "apps/a/b.proto": ""})

    def test_a_library_behind_its_wrapper(self):
        self.expect({"apps/a/a.cpp": "#include <mpi.h>\n"}, "<mpi.h> stays behind")


class Sizes(Check):
    script = "line_count"

    def test_a_tree_that_breaks_no_rule(self):
        self.expect({**{f"data/a/{i}.h": "\n" * 800 for i in range(25)}, **{f"tests/a/{i}.py": "" for i in range(30)},
                     "apps/cli/program.cpp": "\n" * 81, "apps/cli/verb.cpp": "\n" * 80})

    def test_a_folder_of_many_files(self):
        self.expect({f"data/a/{i}.h": "" for i in range(26)}, "data/a: 26 files; at most 25")

    def test_a_long_file(self):
        self.expect({"tests/a.py": "\n" * 801}, "tests/a.py: 801 lines; at most 800")

    def test_a_long_verb(self):
        self.expect({"apps/cli/verb.cpp": "\n" * 81}, "apps/cli/verb.cpp: 81 lines; at most 80")


class Functions(Check):
    script = "check_functions"

    @staticmethod
    def function(lines):
        return "namespace quintet {\nint f(int x) {\n" + "  // { \n" * (lines - 3) + "  return x;\n}\n}  // namespace quintet\n"

    def test_a_function_of_sixty_lines(self):
        self.expect({"data/a.cpp": self.function(60), "kernels/a.cu": self.function(61), "tests/a.cpp": self.function(61)})

    def test_a_longer_function(self):
        self.expect({"data/a.cpp": self.function(61)}, "data/a.cpp:2: 61 lines, at most 60: int f(int x)")

    def test_a_longer_member(self):
        self.expect({"data/a.h": "struct A {\n  void g() const {\n" + "    h();\n" * 60 + "  }\n};\n"}, "data/a.h:2: 62 lines")


class Parameters(Check):
    script = "check_parameters"
    REGISTERED = 'registry.add_struct<Set>("Set").arg("size", &Set::size);\n'

    def test_a_field_that_is_read(self):
        for reads in "int f(const Set& set) { return set.size; }\n", "int Set::rows() const {\n  return size;\n}\n":
            self.expect({"data/a.h": "struct Set {\n  int size = 0;\n};\n", "data/a.cpp": self.REGISTERED, "apps/b.cpp": reads})

    def test_a_field_that_is_only_filled(self):
        self.expect({"data/a.h": "struct Set {\n  int size = 0;  // size\n};\n", "data/a.cpp": self.REGISTERED}, "Set::size: bound by gin files")


class Sleeps(Check):
    script = "check_sleeps"
    CALL = "sle" + "ep(1)"  # in parts: the check reads this file, too

    def test_sleeps_that_say_why(self):
        self.expect({"tests/a.py": f"time.{self.CALL}  # delay: a slow disk\n", "tests/b.cpp": f"// delay: late\nu{self.CALL};\n",
                     "tests/harness/wait_for.h": f"{self.CALL};\n", "apps/a.cpp": f"{self.CALL};\n"})

    def test_a_sleep_that_hopes(self):
        self.expect({"tests/a.py": f"\ntime.{self.CALL}\n"}, "tests/a.py:2: wait for a condition")
        self.expect({"tests/b.cpp": f"u{self.CALL};  // delay:\n"}, "tests/b.cpp:1: wait for a condition")


if __name__ == "__main__":
    unittest.main()
