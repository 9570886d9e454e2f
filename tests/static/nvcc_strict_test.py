"""scripts/nvcc_strict fails where ptxas says that it gave up a kernel's speed, and else as the compiler does."""

import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
NVCC = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
# Of two products in flight one's sums are used before both are waited for, which ptxas answers by one product at a time.
SERIALIZED = """
__global__ void kernel(float* out, unsigned long long a, unsigned long long b) {
  float d[4] = {};
  asm volatile("wgmma.fence.sync.aligned;");
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
  d[0] *= 2;
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
  asm volatile("wgmma.commit_group.sync.aligned;");
  asm volatile("wgmma.wait_group.sync.aligned 0;");
  for (int i = 0; i < 4; ++i) out[i] = d[i];
}
"""


def strict(*command):
    done = subprocess.run([ROOT / "scripts" / "nvcc_strict", *command], capture_output=True, text=True)
    return done.returncode, done.stderr


def main():
    assert strict("true") == (0, "")
    assert strict("sh", "-c", "echo 'remark: fine' >&2; exit 3") == (3, "remark: fine\n")
    lost = "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized"
    code, said = strict("sh", "-c", f"echo '{lost}' >&2")
    assert code == 1 and said.startswith(lost) and "error: " in said, said
    if NVCC is None:
        print("skipped: no nvcc; the script alone was tried")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "kernel.cu"
        source.write_text(SERIALIZED)
        code, said = strict(NVCC, "-gencode=arch=compute_90a,code=sm_90a", "-c", source, "-o", pathlib.Path(folder) / "kernel.o")
        assert code == 1 and "serialized" in said, said
    return 0


if __name__ == "__main__":
    sys.exit(main())
