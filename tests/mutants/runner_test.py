"""scripts/mutants: what it says of a mutant that no test notices, of one that a test does, and of ones that show nothing;
the source tree stays as it is."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CASES = "tests/harness/skip_cases.cpp"
TEST = "skips_test case: Skips.test_a_program_of_skipped_cases_is_skipped"

LINES = (ROOT / CASES).read_text().splitlines()
LINE = next(line for line in LINES if line.startswith("TEST(Fail"))
AT = LINES.index(LINE) + 1


def patch(line, other, test=TEST, targets="skip_cases"):
    return f"Breaks: {other}\nTest: {test}\nTargets: {targets}\n--- a/{CASES}\n+++ b/{CASES}\n@@ -{AT} +{AT} @@\n-{line}\n+{other}\n"


MUTANTS = {
    "noticed": (patch(LINE, "TEST(Fail, One) {}"), "caught"),
    "unnoticed": (patch(LINE, LINE + "  // no change"), "SURVIVED"),
    "not_built": (patch(LINE, "TEST(Fail, One) {"), "broken", "cannot be built"),
    "outdated": (patch("TEST(Old, One) {}", LINE), "broken", "does not apply"),
    "no_such_test": (patch(LINE, LINE, "another_test"), "broken", "another_test"),
    "no_such_case": (patch(LINE, LINE, "skips_test case: test_other"), "broken", "test_other"),
    "no_header": (f"--- a/{CASES}\n", "broken", "Breaks"),
}


class Runner(unittest.TestCase):
    def run_mutants(self, folder, *more):
        return subprocess.run([sys.executable, ROOT / "scripts" / "mutants", f"--folder={folder}",
                               f"--build={os.environ['QUINTET_BUILD']}", *more], capture_output=True, text=True)

    def test_it_says_what_became_of_each(self):
        before = (ROOT / CASES).read_bytes()
        with tempfile.TemporaryDirectory() as folder:
            for name, (text, *_) in MUTANTS.items():
                (Path(folder) / f"{name}.patch").write_text(text)
            done = self.run_mutants(folder)
            if done.returncode == 77:
                self.skipTest(done.stdout)
            for name, (_, outcome, *words) in MUTANTS.items():
                said = [line for line in done.stdout.splitlines() if line.split()[1:2] == [name + ":"]]
                self.assertEqual([line.split()[0] for line in said], [outcome], done.stdout)
                for word in words:
                    self.assertIn(word, said[0])
            self.assertEqual(done.returncode, 1)
            self.assertEqual(self.run_mutants(folder, "noticed").returncode, 0)
        self.assertEqual((ROOT / CASES).read_bytes(), before)

    def test_a_check_finds_what_no_longer_applies(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("noticed", "outdated"):
                (Path(folder) / f"{name}.patch").write_text(MUTANTS[name][0])
            done = self.run_mutants(folder, "--check")
            self.assertIn("does not apply", done.stdout)
            self.assertEqual(done.returncode, 1)
            self.assertEqual(self.run_mutants(folder, "--check", "noticed").returncode, 0)


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    sys.exit(77 if result.skipped and result.wasSuccessful() and len(result.skipped) == result.testsRun
             else not result.wasSuccessful())
