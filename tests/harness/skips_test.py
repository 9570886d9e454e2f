"""A test that checked nothing is counted as skipped, never as passed: how GoogleTest programs and end-to-end tests say
so, that ctest hears it of every test, and that the tests which need more than the build have it or say so."""

import ast
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
E2E = TESTS / "e2e"
SKIPPED = 77
# They end with what another program ends with.
ALWAYS_CHECK = {"check_docs", "check_includes", "line_count", "protobuf_is_hidden", "hot_kernels_test", "loaded_libraries_test", "skips_test"}


def ended(*command, **environment):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env={**os.environ, **environment})
    return done.returncode, done.stdout + done.stderr


class Skips(unittest.TestCase):
    def test_a_program_of_skipped_cases_is_skipped(self):
        for cases, code in (("Skip.*", SKIPPED), ("Skip.*:Pass.*", 0), ("Skip.*:Fail.*", 1), ("Nothing.*", 1), ("*", 1)):
            self.assertEqual(ended(os.environ["SKIP_CASES"], f"--gtest_filter={cases}")[0], code, cases)

    def test_a_file_of_skipped_functions_is_skipped(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "some_test.py"
            file.write_text(f"import sys\nsys.path.insert(0, {str(E2E)!r})\nimport e2e\n"
                            "def test_skip(folder): e2e.skip('what it needs')\ndef test_pass(folder): pass\n"
                            "def test_fail(folder): assert False\ne2e.run(globals())\n")
            for names, code in ((["test_skip"], SKIPPED), (["test_skip", "test_pass"], 0), (["test_skip", "test_fail"], 1)):
                self.assertEqual(ended(sys.executable, file, *names)[0], code, names)
            self.assertIn("skipped test_skip: what it needs", ended(sys.executable, file)[1])

    def test_tests_without_their_tools_are_skipped(self):
        """As on a machine that has none of them: PATH names an empty folder."""
        with tempfile.TemporaryDirectory() as empty:
            for name, tool in (("two_hosts_test", "iproute2"), ("gpu_bundle_test", "xz-utils")):
                code, said = ended(sys.executable, E2E / f"{name}.py", PATH=empty)
                self.assertEqual(code, SKIPPED, said)
                self.assertIn(tool, said)

    def test_no_function_passes_by_returning_early(self):
        for file in sorted(E2E.glob("*_test.py")):
            for function in ast.parse(file.read_text(encoding="utf-8")).body:
                if isinstance(function, ast.FunctionDef) and function.name.startswith("test_"):
                    inner = [node for node in ast.walk(function) if isinstance(node, ast.FunctionDef) and node != function]
                    own = set(ast.walk(function)) - {node for other in inner for node in ast.walk(other)}
                    early = [node.lineno for node in own if isinstance(node, ast.Return)]
                    self.assertEqual(early, [], f"{file.name}: {function.name}: e2e.skip(reason) says what is missing")

    def test_ctest_hears_it_of_every_test(self):
        shown = subprocess.run(["ctest", "--test-dir", os.environ["QUINTET_BUILD"], "--show-only=json-v1"], check=True,
                               capture_output=True, text=True).stdout
        deaf = [test["name"] for test in json.loads(shown)["tests"] if not test["name"].endswith("_libfuzzer")
                and {"name": "SKIP_RETURN_CODE", "value": SKIPPED} not in test["properties"]]
        self.assertEqual(sorted(set(deaf) - ALWAYS_CHECK), [])


if __name__ == "__main__":
    sys.exit(unittest.main())
