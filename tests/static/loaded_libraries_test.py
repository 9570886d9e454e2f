"""Programs start on machines without NCCL and the CUDA toolkit: neither is linked, in the program that was built nor,
where it was built without CUDA, in the sources."""

import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MACHINES = re.compile(r"lib(cuda|cudart|cublas\w*|nccl|nvidia-\w+)\.so")
# A call by name; QT_LOADED (runtime/base/shared_library.h) makes pointers instead.
CALL = re.compile(r"(?<![\w\"])(?:nccl|cublasLt)[A-Z]\w*\(")
LINKED = re.compile(r"find_library\([^)]*\b(?:nccl|cuda|cudart|cublas\w*)\b|-l(?:nccl|cuda|cudart|cublas\w*)\b|CUDA::|"
                    r"CUDA_RUNTIME_LIBRARY\s+Shared")


def found(pattern, paths):
    return [f"{path.relative_to(ROOT)}: {match}" for path in paths
            for match in pattern.findall(path.read_text(encoding="utf-8"))]


class LoadedLibraries(unittest.TestCase):
    def test_the_program_needs_none(self):
        said = subprocess.run(["readelf", "--dynamic", os.environ["QUINTET"]], check=True, capture_output=True, text=True)
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", said.stdout)
        self.assertIn("libc.so.6", needed)
        self.assertEqual([name for name in needed if MACHINES.match(name)], [])

    def test_sources_call_none_by_name(self):
        paths = [path for folder in ("runtime", "kernels", "apps", "models", "bench")
                 for path in (ROOT / folder).rglob("*") if path.suffix in (".h", ".cpp", ".cu", ".cuh")]
        self.assertGreater(len(paths), 100)
        self.assertEqual(found(CALL, paths), [])

    def test_the_build_looks_for_none(self):
        paths = [ROOT / "CMakeLists.txt", *(ROOT / "cmake").glob("*.cmake"), *(ROOT / "bench").rglob("CMakeLists.txt")]
        self.assertEqual(found(LINKED, paths), [])


if __name__ == "__main__":
    sys.exit(unittest.main())
