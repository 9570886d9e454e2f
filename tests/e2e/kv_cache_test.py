"""--kv_cache_dtype: keys and values in 8 bits change scores a little and no answer by what is beside it, in generate, serve, infer and
bench; where nothing is cached the flag is refused."""

import json

import e2e
from device_test import has_emulator
from e2e import quintet, tiny
from generate_test import PREFIX_LM
from serving import serving, text_of

TEXTS = ["words: 1234", "", "words: 7 7 7 7", "number: nine"]
ASK = ["--max_decode_len=24", "--format=json", "--min_length=20"]
LOOKUP = "--prompt_lookup_num_tokens=4"
TYPES = "int8", "fp8"


def trained(folder):
    (folder / "prefix_lm.gin").write_text(PREFIX_LM)
    quintet(*tiny(folder / "run", 4))
    quintet(*tiny(folder / "alone", 4, f"--gin_file={folder / 'prefix_lm.gin'}"))
    return folder / "run", folder / "alone"


def answers(*arguments):
    return [json.loads(line) for line in quintet("generate", *arguments).out.splitlines()]


def test_answers_are_the_same_alone_together_guessed_and_served(folder):
    for run in trained(folder):
        exact = answers(run, *ASK, *TEXTS)
        for dtype in TYPES:
            flag = f"--kv_cache_dtype={dtype}"
            want = answers(run, flag, *ASK, *TEXTS)
            differences = [abs(a["score"] - b["score"]) / abs(b["score"]) for a, b in zip(want, exact, strict=True)]
            assert 0 < max(differences) < 0.05, f"{run} {dtype}: {differences}"
            assert want == answers(run, flag, *ASK, "--batch_size=1", *TEXTS), dtype
            assert want == answers(run, flag, LOOKUP, *ASK, *TEXTS), dtype
            beams = ["--beams=3", "--num_decodes=3", "--max_decode_len=12", "--format=json"]
            if run.name == "run":  # T5X's beams of a decoder alone are as long as the batch
                assert answers(run, flag, *beams, *TEXTS) == answers(run, flag, *beams, "--batch_size=1", *TEXTS), dtype
            with serving(run, flag) as server:
                texts = [text for text in TEXTS if text]
                whole = [one["prediction"] for one in answers(run, flag, "--max_decode_len=12", "--format=json", *texts)]
                served = text_of(server.complete(prompt=texts, temperature=0, max_tokens=12))
                assert served == whole, f"{dtype}: {served} {whole}"
            if has_emulator():
                few = ["--max_decode_len=6", "--format=json", TEXTS[0]]
                for more in [], [LOOKUP], ["--beams=2"]:
                    cpu, gpu = (answers(run, flag, f"--device={device}", *more, *few) for device in ("cpu", "emulated"))
                    assert cpu[0]["prediction"] == gpu[0]["prediction"], f"{dtype} {more}: {cpu} {gpu}"
                    assert abs(cpu[0]["score"] - gpu[0]["score"]) < 1e-3, f"{dtype} {more}: {cpu} {gpu}"


def test_caches_take_less_memory(folder):
    run, _ = trained(folder)

    def cached(dtype):
        out = quintet("bench", "generate", f"--model_dir={run}", "--batch=2", "--inputs=64", "--targets=64", "--steps=1", "--format=json",
                      f"--kv_cache_dtype={dtype}").out
        return json.loads(out)["cache_bytes"]
    exact = cached("auto")
    for dtype in TYPES:
        assert exact / 4 < cached(dtype) < exact / 2, f"{dtype}: {cached(dtype)} of {exact}"


def test_infer_keeps_answers_of_other_caches_apart(folder):
    run, _ = trained(folder)
    file = folder / "questions.jsonl"
    file.write_text("".join(json.dumps({"inputs": text}) + "\n" for text in TEXTS))
    ask = ["infer", run, f"--input={file}", "--mode=predict_with_aux", "--max_decode_len=12",
           f"--output_dir={folder / 'out'}"]
    quintet(*ask, "--kv_cache_dtype=int8")
    found = next((folder / "out").glob("infer_*-of-00001")).read_text().splitlines()
    scores = [json.loads(line)["aux"]["scores"] for line in found]
    want = [one["score"] for one in answers(run, "--kv_cache_dtype=int8", "--max_decode_len=12", "--format=json", *TEXTS)]
    assert len(scores) == len(want) and all(abs(a - b) < 1e-4 * abs(b) for a, b in zip(scores, want)), f"{scores} {want}"
    quintet(*ask, "--kv_cache_dtype=int8")
    quintet(*ask, expect=2)


def test_eval_predicts_with_them(folder):
    run, _ = trained(folder)

    def predictions(verb, kept, *flags):
        out = folder / f"{verb}{len(kept)}{''.join(flags)[-4:]}"
        quintet(verb, f"--model_dir={run}", "--task=number_to_words", f"--output_dir={out}", *flags,
                *(["--num_examples=64"] if verb == "eval" else []))
        [file] = [path for path in out.rglob("*") if path.is_file() and path.name.endswith(kept)]
        return [json.loads(line)["prediction"] for line in file.read_text().splitlines()[:64]]
    exact = predictions("eval", "-000004.jsonl")
    of_types = {dtype: predictions("eval", "-000004.jsonl", f"--kv_cache_dtype={dtype}") for dtype in TYPES}
    assert all(len(made) == 64 for made in (exact, *of_types.values())) and of_types["fp8"] != exact, (exact, of_types)
    for dtype, made in of_types.items():
        assert made == predictions("infer", "predict.jsonl-00000-of-00001", f"--kv_cache_dtype={dtype}"), (dtype, made)


def test_it_is_refused_where_nothing_is_cached(folder):
    run, _ = trained(folder)
    file = folder / "questions.jsonl"
    file.write_text(json.dumps({"inputs": "one", "targets": "1"}) + "\n")
    for arguments, part in [
            (["generate", run, "--kv_cache_dtype=int4", "a"], "int4"),
            (["generate", run, "--embed=mean", "--kv_cache_dtype=int8", "a"], "leave the flag out"),
            (["infer", run, f"--input={file}", "--mode=score", f"--output_dir={folder / 'no'}", "--kv_cache_dtype=fp8"], "--mode=score"),
            (["bench", "generate", "--encode_only", "--kv_cache_dtype=int8"], "--encode_only"),
    ]:
        result = quintet(*arguments, expect=2)
        assert part in result.err, f"{arguments}: {result}"


if __name__ == "__main__":
    e2e.run(globals())
