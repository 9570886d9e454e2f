"""attention_slots_test.py LIBRARY NVCC_VERSION: the order that attention's kernels for sm_90a count on is in their machine code."""

import importlib.machinery
import importlib.util
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
SLOTS = str(HERE.parents[1] / "scripts" / "attention_slots")
# Cycles, by the head's size. Forward: one warpgroup alone from block to block, two for an item of 4 blocks without and with a bias.
MOST_BLOCK = {64: 1250, 128: 1500}
MOST_ITEM = {64: (6550, 7400), 128: (9050, 9300)}
# Gradient, two warpgroups: a tile without a bias, within the table's reach, beyond it; what the bias adds at 512 x 512.
MOST_TILE = {64: (3380, 4330, 3780), 128: (2880, 3010, 2930)}
MOST_SHARE = {64: 0.22, 128: 0.04}


def load(path):
    loader = importlib.machinery.SourceFileLoader("attention_slots", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("attention_slots", loader))
    loader.exec_module(module)
    return module


def check_block(slots, name, code, depth):
    run = slots.block(code)
    count, cycles = slots.count_pipes(run)
    products = [i for i, one in enumerate(run) if one.opcode == slots.HGMMA]
    scores, _ = [i for i in products if slots.ends_group(run[i])]
    waits = [i for i, one in enumerate(run) if slots.is_wait(one)]
    assert len(products) == depth // 16 + 8 and len(waits) == 2, f"{name}: {len(products)} products, {len(waits)} waits"
    assert slots.tensor_cycles(run) == 16 * depth, f"{name}: products of {slots.tensor_cycles(run)} cycles"
    assert count["MUFU"] == 64 and cycles["MUFU"] == 2 * 64 * 8, f"{name}: {count}"
    loads = [i for i, one in enumerate(run) if one.opcode == slots.LDS]
    assert len(loads) == (17 if slots.has_bias(name) else 0), f"{name}: {len(loads)} loads from shared memory"
    assert all(scores < i < waits[0] for i in loads), f"{name}: the bias is not loaded while the scores' product runs"
    early = sum(one.opcode == slots.EX2 for one in run[waits[0]:waits[1]])
    assert early >= 24, f"{name}: {early} exponentials before the wait for the values' product, not nearly half of them"
    alone, _ = slots.simulate(run, slots.LATENCIES, 1)
    assert alone <= MOST_BLOCK[depth], f"{name}: {alone:.0f} cycles from block to block, at most {MOST_BLOCK[depth]} are expected"
    both, _ = slots.simulate(run, slots.LATENCIES, 2)
    floor = max(alone, 16 * depth, cycles["MUFU"], 2 * len(run))
    assert floor - 1 <= both, f"{name}: two warpgroups take {both:.0f} cycles, less than their parts, {floor:.0f}"


def check_item(slots, name, code, depth):
    run = slots.item(code, 4)
    assert slots.tensor_cycles(run) == 4 * 16 * depth, f"{name}: an item's products take {slots.tensor_cycles(run)} cycles"
    last = max(i for i, one in enumerate(run) if one.opcode == slots.HGMMA)
    results = [i for i, one in enumerate(run) if one.opcode == slots.STS]
    assert results and last < results[0], f"{name}: results are stored before the next item's first product is begun"
    cycles, _ = slots.simulate(run, slots.LATENCIES, 2)
    most = MOST_ITEM[depth][slots.has_bias(name)]
    assert cycles <= most, f"{name}: {cycles:.0f} cycles for an item of 4 blocks, at most {most} are expected"


def check_tiles(slots, name, code, depth):
    plain, within, beyond = MOST_TILE[depth]
    for near, most in ((True, within), (False, beyond)) if slots.has_bias(name) else ((True, plain),):
        run = slots.tile(code, near)
        count, _ = slots.count_pipes(run)
        queries = 128 if depth == 64 else 64
        assert slots.tensor_cycles(run) == 2560 and count["MUFU"] == queries // 2, f"{name}: {slots.tensor_cycles(run)} cycles of products, {count}"
        shuffles = 2 * queries // 8 if near and slots.has_bias(name) else 0
        assert shuffles <= count["SHFL"] <= shuffles + 2, f"{name}: {count['SHFL']} shuffles in a tile, {shuffles} are expected"
        cycles, _ = slots.simulate(run, slots.LATENCIES, 2)
        assert cycles <= most, f"{name}: {cycles:.0f} cycles from tile to tile, at most {most} are expected"


def main():
    library, version = sys.argv[1:]
    slots = load(SLOTS)
    tool = slots.check_sass()
    if tool.of_another_compiler(HERE / "hot_kernels.txt", version):
        print(f"skipped: nvcc {version} made the kernels")
        return 77
    forward, backward = (slots.kernels_of([pathlib.Path(library)], kind) for kind in ("forward", "backward"))
    assert len(forward) == 6 and len(backward) == 4, [name for name, _ in forward + backward]
    for name, code in forward:
        check_block(slots, name, code, slots.depth_of(name))
        check_item(slots, name, code, slots.depth_of(name))
    for name, code in backward:
        check_tiles(slots, name, code, slots.depth_of(name))
    for depth, most in MOST_SHARE.items():
        share = slots.bias_share(backward, depth)[2]
        assert share <= most, f"heads of {depth}: the bias adds {share:.1%} to the gradient, at most {most:.1%} are expected"
    print("attention_slots: 10 kernels checked")
    return 0


if __name__ == "__main__":
    sys.exit(main())
