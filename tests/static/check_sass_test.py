"""scripts/check_sass sees spills, missing tensor-core instructions, what grew, too low an occupancy, and kernels that either side lacks."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
CHECK = HERE.parents[1] / "scripts" / "check_sass"
NVCC = os.environ.get("CUDACXX") or shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"


OTHERS = "".join(f"cold kernels_to_check:{name}\n" for name in ("copies<*>", "products<*>", "reverses", "spills", "warpgroup_products"))


def check(folder, text, others=OTHERS, more=()):
    """(exit status, what it prints) for a list of this text and a line for the other kernels."""
    (folder / "list.txt").write_text(f"{text}\n{others}\n")
    done = subprocess.run([sys.executable, CHECK, *more, folder / "list.txt", folder / "kernels.o"], capture_output=True,
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
    most = "255 64"  # registers, KiB of code
    for sm in (80, 90):
        expect(folder, f"{file}products<3> {sm} HMMA 128 0 8 {most}", None)
        expect(folder, f"{file}products<3> {sm} HGMMA 128 0 8 {most}", "has no HGMMA")
        expect(folder, f"{file}products<3> {sm} HMMA 128 0 8 7 64", "registers a thread, the list allows 7")
        expect(folder, f"{file}products<3> {sm} HMMA 128 0 8 255 0", "KiB of code, the list allows 0")
        measured = f"# (nvcc 13.0, rounded up)\n{file}products<3> {sm} HMMA 128 0 8 7 0"
        for version, faults in (("13.0.48", 2), ("12.8.93", 0), ("13.1.2", 0)):
            status, output = check(folder, measured, more=[f"--nvcc={version}"])
            assert f"1 kernels checked, {faults} faults" in output and status == (faults > 0), (version, output)
        expect(folder, f"{file}spills {sm} - 1024 0 1 {most}", "uses local memory")
        expect(folder, f"{file}reverses {sm} - 1024 16384+0 2 {most}", None)
        expect(folder, f"{file}reverses {sm} - 1024 16383+0 2 {most}", "16384 bytes of static shared memory, the list allows 16383")
        # 16 KiB of its own and 98,000 bytes of the launch.
        expect(folder, f"{file}reverses {sm} - 256 16384+98000 1 {most}", None)
        expect(folder, f"{file}reverses {sm} - 256 16384+98000 2 {most}", None if sm == 90 else "shared memory run out")
        expect(folder, f"{file}reverses {sm} - 256 16384+0 9 {most}", "8 blocks fit")
        expect(folder, f"{file}copies<16> {sm} LDGSTS.128 32 512+0 1 {most}", None)
        expect(folder, f"{file}copies<4> {sm} LDGSTS.128 32 512+0 1 {most}", "has no LDGSTS.128")
        expect(folder, f"{file}absent<3> {sm} - 128 0 1 {most}", "not in the files")
    expect(folder, f"{file}warpgroup_products 90 HGMMA 128 0 1 {most}", None)
    expect(folder, f"{file}warpgroup_products 80 HGMMA 128 0 1 {most}", "has no HGMMA")
    status, output = check(folder, f"*:products<*> 75 - 128 0 1 {most}")
    assert status == 1 and "list.txt:1: unknown sm 75" in output, output
    status, output = check(folder, "", f"cold {file}products<*>\ncold {file}reverses\ncold {file}spills\ncold {file}copies<*>")
    assert status == 1 and f"{file}warpgroup_products: in no line" in output and " 1 faults" in output, output
    status, output = check(folder, f"cold {file}absent")
    assert status == 1 and f"cold {file}absent: not in the files" in output, output
    for unnamed in "kernels_to_check:*", "*:*<3>", "*:*,false>", "*:*float*", "kernels_to_check:*_products", "*:m*", "*:re*s":
        status, output = check(folder, "", f"cold {unnamed}")
        assert status == 1 and "list.txt:2: a kernel that is not hot is named" in output, (unnamed, output)
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
