"""Every device source compiles for sm_100a (B200), whose code takes the paths of sm_80: about ten minutes.

    python3 tests/static/sm100_test.py [PART OF A PATH]...
"""

import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77


def compiled(source, nvcc, folder):
    """None, or what the compiler says."""
    done = subprocess.run([nvcc, "-cubin", "-arch=sm_100a", "-std=c++20", "-O3", "--expt-relaxed-constexpr", "-diag-suppress=20012",
                           "-DFMT_CONSTEVAL=", "-DFMT_USE_CONSTEXPR=1", "-DFMT_SHARED", "-DHWY_SHARED_DEFINE", f"-I{ROOT}", source,
                           "-o", f"{folder}/{source.stem}.cubin"], capture_output=True, text=True)
    return None if done.returncode == 0 else f"{source.relative_to(ROOT)}: {done.stdout}{done.stderr}"


def main():
    nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    if nvcc is None:
        print("skipped: no nvcc")
        return SKIPPED
    sources = set()
    for part in sys.argv[1:] or [""]:
        found = {path for folder in ("kernels", "runtime") for path in (ROOT / folder).rglob("*.cu") if part in str(path)}
        assert found, f"no source has {part} in its path"
        sources |= found
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        failed = [said for said in pool.map(lambda source: compiled(source, nvcc, folder), sorted(sources)) if said]
    print("\n".join(failed) or f"{len(sources)} sources compile for sm_100a")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
