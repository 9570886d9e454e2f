"""norm_slots_test.py [NVCC_VERSION OBJECT...]: scripts/norm_slots on two stored kernels; with objects, on what cuobjdump says of the norms' own."""

import importlib.machinery
import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
SLOTS, CHECK = HERE.parents[1] / "scripts" / "norm_slots", HERE.parents[1] / "scripts" / "check_sass"


def load(path):
    loader = importlib.machinery.SourceFileLoader(path.name, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(path.name, loader))
    loader.exec_module(module)
    return module


def cells(line):
    """(kernel, width), and the numbers behind them."""
    what, width, *rest = re.split(r"\s{2,}", line.strip().replace(" KB", ""))[:1] + line[50:].replace("KB", "").split()
    return (what, int(width)), [float(x) for x in rest]


def check_excerpt():
    slots = load(SLOTS)
    text = (HERE / "norm_slots.sass").read_text()
    rows = [cells(line) for line in slots.table(text, text)]
    # float, integer, memory and all instructions, us of issue and of bytes, blocks, KB under way, 4-byte stores
    assert rows == [(("norm, full", 512), [61, 64, 13, 150, 3.3, 9.9, 6, 48, 0]),
                    (("norm_grad, full", 2048), [94, 90, 22, 220, 38.9, 59.2, 4, 64, 0])], rows
    store = re.search(r"(/\*\w+\*/ STG\.E)\.128( desc.*;\n)", text)
    four_bytes = text.replace(store[0], (store[1] + store[2]) * 4, 1)
    assert [cells(line)[1][-1] for line in slots.table(four_bytes, text)] == [4, 0], "stores that nvcc has broken up are not counted"


def check_objects(objects):
    printed = subprocess.run([str(SLOTS), *objects], capture_output=True, text=True, check=True).stdout
    full = {key: numbers for key, numbers in map(cells, printed.splitlines()[1:]) if key[0].endswith(", full")}
    want = {(f"{kind}{more}, full", width) for kind in ("norm", "norm_grad") for more in ("", ", residual", ", residual, dropout")
            for width in (512, 768, 1024, 2048, 4096)} - {("norm, full", 2048)}
    assert set(full) == want, f"kernels of a constant depth: {sorted(set(full) ^ want)} are only here or only in README.md"
    for key, (*_, issue, moved, _, under_way, stores) in full.items():
        assert issue < moved, f"{key}: {issue} us to issue its instructions, {moved} to move its bytes"
        assert under_way >= 48 and stores == 0, f"{key}: {under_way} KB under way, {stores} stores of 4 bytes"
    return len(full)


def main():
    version, *objects = sys.argv[1:] or [""]
    if not objects:
        check_excerpt()
        print("norm_slots: 2 stored kernels checked")
        return 0
    if shutil.which("cuobjdump") is None:
        print("skipped: cuobjdump (CUDA's, or PyPI's nvidia-cuda-cuobjdump) is not on PATH")
        return 77
    if load(CHECK).of_another_compiler(HERE / "hot_kernels.txt", version):
        print(f"skipped: nvcc {version} made the kernels")
        return 77
    print(f"norm_slots: {check_objects(objects)} kernels checked")
    return 0


if __name__ == "__main__":
    sys.exit(main())
