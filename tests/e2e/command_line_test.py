"""The command's outside: verbs, help, flags, exit codes."""

import json

import e2e
from e2e import quintet, verbs


def test_no_verb_shows_verbs_and_examples(folder):
    result = quintet(expect=2)
    assert "Verbs:" in result.err and "Examples:" in result.err, result
    assert not result.out, result


def test_help_goes_to_stdout(folder):
    assert "quintet train" in quintet("--help").out
    assert "train" in verbs() and "eval" in verbs() and "generate" in verbs()


def test_every_verb_has_help_with_examples(folder):
    for verb in verbs():
        text = quintet(verb, "--help").out
        assert "Examples:" in text and f"quintet {verb}" in text, f"{verb}: {text}"


def test_an_unknown_verb_names_the_nearest(folder):
    result = quintet("trian", expect=2)
    assert "'trian'" in result.err and "'train'" in result.err, result


def test_an_unknown_flag_names_the_nearest(folder):
    result = quintet("train", "--gin_file=quintet/quickstart.gin", "--model_dri=/tmp/x", expect=2)
    assert "--model_dri" in result.err and "--model_dir" in result.err, result


def test_version_names_the_build(folder):
    text = quintet("--version").out
    assert "quintet" in text and "oneDNN" in text and "CUDA" in text, text


def test_results_go_to_stdout_and_words_to_stderr(folder):
    result = quintet("bench", "train", "--model=t5_1_1_tiny", "--batch=2", "--inputs=8", "--targets=4", "--steps=2")
    figures = json.loads(result.out)
    assert figures["tokens_per_second"] > 0 and figures["peak_bytes"] > 0, figures
    assert 0 < figures["seconds_per_step"]["min"] <= figures["seconds_per_step"]["median"], figures
    tokens = 2 * (8 + 4)
    assert abs(figures["tokens_per_second"] - tokens / figures["seconds_per_step"]["min"]) < 0.01 * figures[
        "tokens_per_second"], figures


def test_what_a_timed_step_holds_is_planned_and_follows_its_flags(folder):
    def held(*flags, batch=16):
        result = quintet("bench", "train", "--model=t5_1_1_tiny", f"--batch={batch}", "--inputs=64", "--targets=32", "--steps=1",
                         "--threads=1", *flags)
        figures = json.loads(result.out)
        assert abs(figures["planned_bytes"] / figures["tensor_bytes"] - 1) < 0.05, (flags, figures)
        return figures["tensor_bytes"], result.err

    plain, alone = held()[0], held(batch=1)[0]
    for flag in "--remat_policy=full", "--remat_policy=minimal", "--microbatches=4", "--optimizer=adafactor", "--lora_rank=2":
        assert held(flag)[0] < plain, flag
    assert held("--gradient_dtype=bfloat16", batch=1)[0] < alone
    assert "--optimizer_offload has no effect: the device is cpu" in held("--optimizer_offload")[1]
    refused = quintet("bench", "train", "--model=t5_1_1_tiny", "--batch=4", "--microbatches=3", expect=2)
    assert "--microbatches=3 does not divide the 4 rows of a batch" in refused.err, refused


def test_a_profile_adds_up_to_the_step(folder):
    # One thread and a tiny model: little happens outside ops, but the processor may be taken away there.
    result = quintet("bench", "train", "--model=t5_1_1_tiny", "--batch=8", "--inputs=64", "--targets=32", "--steps=4",
                     "--threads=1", "--profile")
    rows = [line.split() for line in result.err.splitlines() if "%" in line]
    ops = sum(float(row[2]) for row in rows)
    sums = {line[:20].strip(): [float(number) for number in line[20:].split()] for line in result.err.splitlines()
            if line.startswith(("all of these", "by the clock"))}
    last = {what: numbers[0] for what, numbers in sums.items()}
    least = json.loads(result.out)["seconds_per_step"]["min"]
    assert abs(ops - last["all of these"]) < 0.002 and len(rows) > 5, result
    assert 0.5 * last["by the clock"] < ops <= 1.01 * last["by the clock"] + 0.001, result
    assert last["by the clock"] > 0.99 * least, result
    products = {row[0]: float(row[2]) * float(row[5]) for row in rows if len(row) == 6}
    assert products.keys() == {"matmul", "matmul_t", "matmul_grad_w", "mlp", "mlp_grad", "attention", "attention_grad",
                               "cross_entropy"}, products
    for seconds, rate in sums.values():
        assert abs(seconds * rate / sum(products.values()) - 1) < 0.1, (sums, products)


e2e.run(globals())
