"""attention_slots_test.py LIBRARY NVCC_VERSION: the order that attention's forward pass for sm_90a counts on is in its machine code."""

import importlib.machinery
import importlib.util
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
SLOTS = str(HERE.parents[1] / "scripts" / "attention_slots")
LDS, MUFU, HGMMA = 0x184, 0x108, 0x1F0
MOST_CYCLES = {64: 1250, 128: 1500}  # of one warpgroup alone, from block to block


def load(path):
    loader = importlib.machinery.SourceFileLoader("attention_slots", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("attention_slots", loader))
    loader.exec_module(module)
    return module


def check(slots, name, code):
    depth, path, count, cycles = slots.measure(name, code)
    products = [i for i, one in enumerate(path) if one.opcode == HGMMA]
    scores, values = [i for i in products if slots.ends_group(path[i])]
    waits = [i for i, one in enumerate(path) if slots.is_wait(one)]
    assert len(products) == depth // 16 + 8 and len(waits) == 2, f"{name}: {len(products)} products, {len(waits)} waits"
    assert count["MUFU"] == 64 and cycles["MUFU"] == 2 * 64 * 8, f"{name}: {count}"
    loads = [i for i, one in enumerate(path) if one.opcode == LDS]
    assert len(loads) == (17 if ", true, " in name else 0), f"{name}: {len(loads)} loads from shared memory"
    assert all(scores < i < waits[0] for i in loads), f"{name}: the bias is not loaded while the scores' product runs"
    early = sum(one.opcode == MUFU for one in path[waits[0]:waits[1]])
    assert early >= 24, f"{name}: {early} exponentials before the wait for the values' product, not nearly half of them"
    alone, _ = slots.simulate(path, slots.LATENCIES, depth, 1)
    assert alone <= MOST_CYCLES[depth], f"{name}: {alone:.0f} cycles from block to block, at most {MOST_CYCLES[depth]} are expected"
    both, _ = slots.simulate(path, slots.LATENCIES, depth, 2)
    floor = max(alone, 16 * depth, cycles["MUFU"], 2 * len(path))
    assert floor - 1 <= both, f"{name}: two warpgroups take {both:.0f} cycles, less than their parts, {floor:.0f}"


def main():
    library, version = sys.argv[1:]
    slots = load(SLOTS)
    tool = slots.check_sass()
    if tool.of_another_compiler(HERE / "hot_kernels.txt", version):
        print(f"skipped: nvcc {version} made the kernels")
        return 77
    kernels = slots.forward_kernels([pathlib.Path(library)])
    assert len(kernels) == 6, [name for name, _ in kernels]
    for name, code in kernels:
        check(slots, name, code)
    print("attention_slots: 6 kernels checked")
    return 0


if __name__ == "__main__":
    sys.exit(main())
