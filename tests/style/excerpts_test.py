"""Excerpts of documents (a block whose first line names a file) are what the files say; an op takes six files of the product."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXCERPT = re.compile(r"^```\w+ (\S+)\n(.*?)^```$", re.M | re.S)


def excerpts(document):
    return EXCERPT.findall(document.read_text(encoding="utf-8"))


class Excerpts(unittest.TestCase):
    def test_stand_in_their_files(self):
        for document in (ROOT / "docs").rglob("*.md"):
            for path, text in excerpts(document):
                with self.subTest(document=document.name, path=path):
                    self.assertIn(text, (ROOT / path).read_text(encoding="utf-8"))

    def test_an_op_takes_six_files(self):
        found = {path for path, _ in excerpts(ROOT / "docs/add-an-op.md") if not path.startswith("tests/")}
        self.assertEqual(len(found - {"runtime/ops/matmul.cpp"}), 6)  # another op's cost


if __name__ == "__main__":
    unittest.main()
