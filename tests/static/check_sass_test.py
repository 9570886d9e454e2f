"""scripts/check_sass sees spills, missing tensor-core instructions, too low an occupancy and missing kernels."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
CHECK = HERE.parents[1] / "scripts" / "check_sass"
NVCC = os.environ.get("CUDACXX") or shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"


def check(folder, text):
    """(exit status, what it prints) for a list of this text."""
    (folder / "list.txt").write_text(text)
    done = subprocess.run([sys.executable, CHECK, folder / "list.txt", folder / "kernels.o"], capture_output=True,
                          text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def expect(folder, line, said):
    """The one fault of this line is said; with said None there is none."""
    status, output = check(folder, line)
    if said is None:
        assert status == 0 and "1 kernels checked, 0 faults" in output, (line, output)
    else:
        assert status == 1 and said in output and " 1 faults" in output, (line, said, output)


def main():
    if not os.path.exists(NVCC):
        print("skipped: no nvcc")
        return 77
    for compression in [], ["--compress-mode=size"]:
        with tempfile.TemporaryDirectory(prefix="quintet-check-sass-") as name:
            folder = pathlib.Path(name)
            made = subprocess.run([NVCC, "-std=c++20", "-c", HERE / "kernels_to_check.cu", "-o", folder / "kernels.o",
                                   "-gencode", "arch=compute_80,code=sm_80", "-gencode", "arch=compute_90a,code=sm_90a",
                                   *compression], capture_output=True, text=True)
            if made.returncode != 0 and compression:
                continue  # nvcc before 12.8 does not compress so
            if made.returncode != 0:
                print(f"skipped: nvcc fails: {(made.stdout + made.stderr)[-300:]}")
                return 77
            check_all(folder)
    print("ok")
    return 0


def check_all(folder):
    file = "kernels_to_check:"
    for sm in (80, 90):
        expect(folder, f"{file}products<3> {sm} HMMA 128 0 8", None)
        expect(folder, f"{file}products<3> {sm} HGMMA 128 0 8", "has no HGMMA")
        expect(folder, f"{file}spills {sm} - 1024 0 1", "uses local memory")
        expect(folder, f"{file}reverses {sm} - 1024 0 2", None)
        # 16 KiB of its own and 98,000 bytes of the launch.
        expect(folder, f"{file}reverses {sm} - 256 98000 1", None)
        expect(folder, f"{file}reverses {sm} - 256 98000 2", None if sm == 90 else "shared memory run out")
        expect(folder, f"{file}reverses {sm} - 256 0 9", "8 blocks fit")
        expect(folder, f"{file}absent<3> {sm} - 128 0 1", "not in the files")
    expect(folder, f"{file}warpgroup_products 90 HGMMA 128 0 1", None)
    expect(folder, f"{file}warpgroup_products 80 HGMMA 128 0 1", "has no HGMMA")
    status, output = check(folder, "*:products<*> 75 - 128 0 1")
    assert status == 1 and "list.txt:1: unknown sm 75" in output, output
    disassembled = shutil.which("cuobjdump")
    if disassembled:
        agree_with_disassembler(folder, disassembled)


def agree_with_disassembler(folder, program):
    """Where NVIDIA's own tool is at hand, registers and stack are the ones that it reads."""
    theirs = subprocess.run([program, "--dump-resource-usage", folder / "kernels.o"], capture_output=True, text=True)
    ours = subprocess.run([sys.executable, CHECK, "--all", folder / "kernels.o"], capture_output=True, text=True)
    usage = [line.split() for line in theirs.stdout.splitlines() if line.strip().startswith("REG:")]
    expected = sorted((int(words[0][4:]), int(words[1][6:])) for words in usage)
    rows = [line.split() for line in ours.stdout.splitlines()[1:]]
    assert sorted((int(row[1]), int(row[2])) for row in rows) == expected, (theirs.stdout, ours.stdout)


sys.exit(main())
