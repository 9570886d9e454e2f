"""Speculative decoding: generate and serve answer with guesses what they answer without, in fewer steps where guesses are right."""

import json
import pathlib
import re

import e2e
from device_test import has_emulator
from e2e import quintet, tiny
from generate_test import PREFIX_LM
from serving import FREE, serving, text_of

ENCODER = e2e.ROOT / "tests" / "fixtures" / "huggingface" / "encoder"
TEXTS = ["words: 1234", "", "words: 7 7 7 7", "number: nine"]
ASK = ["--max_decode_len=24", "--format=json", "--logprobs=2", "--min_length=20", *TEXTS]
SAMPLED = ["--temperature=1.3", "--top_p=0.9", "--seed=3"]
LOOKUP = "--prompt_lookup_num_tokens=4"


def counted(result):
    """Tokens, steps, right guesses and all guesses that generate tells of."""
    return [int(number) for number in re.search(r"(\d+) tokens in (\d+) steps; (\d+) of (\d+) guesses were right", result.err).groups()]


def trained(folder):
    quintet(*tiny(folder / "run", 4))
    quintet(*tiny(folder / "small", 4, "--gin.network.T5Config.emb_dim=8"))
    return folder / "run", folder / "small"


def test_answers_are_those_without_guesses(folder):
    run, small = trained(folder)
    for more in ([], SAMPLED, ["--repetition_penalty=1.3", "--stop=en"], ["--quantize=int8"]):
        want = quintet("generate", run, *more, *ASK).out
        for guess in ([LOOKUP], [f"--assistant_model={run}"], [f"--assistant_model={small}", "--num_assistant_tokens=3", "--batch_size=2"]):
            result = quintet("generate", run, *guess, *more, *ASK)
            assert result.out == want, f"{guess} {more}: {result} {want}"
            tokens, steps, right, guesses = counted(result)
            assert right <= guesses and (steps < tokens / 2 if run in map(pathlib.Path, guess[0].split("=")) and not more else True), result
    alone = quintet("generate", run, f"--assistant_model={run}", *ASK[:-4], TEXTS[0])
    tokens, steps, right, guesses = counted(alone)
    # A model guesses its own answers, but for what the rules change.
    assert tokens >= 20 and right > tokens / 2 and steps < tokens / 2, alone
    if has_emulator():
        few = ["--max_decode_len=6", "--format=json", "--logprobs=1", *TEXTS[:2]]
        want = quintet("generate", run, "--device=emulated", LOOKUP, *few).out
        assert want == quintet("generate", run, "--device=emulated", f"--assistant_model={run}", *few).out
        cpu = quintet("generate", run, *few).out
        assert [json.loads(line)["prediction"] for line in want.splitlines()] == \
            [json.loads(line)["prediction"] for line in cpu.splitlines()], f"{want} {cpu}"


def test_decoders_alone_and_ranks_that_share_a_model(folder):
    (folder / "prefix_lm.gin").write_text(PREFIX_LM)
    quintet(*tiny(folder / "alone", 4, f"--gin_file={folder / 'prefix_lm.gin'}"))
    for more in ([], ["--repetition_penalty=5"], ["--no_repeat_ngram_size=1"], ["--bad_word=ten"]):
        want = quintet("generate", folder / "alone", *more, *ASK).out
        for guess in (LOOKUP, f"--assistant_model={folder / 'alone'}"):
            assert quintet("generate", folder / "alone", guess, *more, *ASK).out == want, f"{guess} {more}"
    asked = ["--repetition_penalty=5", "--max_decode_len=24", "--format=json", TEXTS[0]]
    want = json.loads(quintet("generate", folder / "alone", *asked).out)["prediction"]
    assert want != json.loads(quintet("generate", folder / "alone", *asked[1:]).out)["prediction"]
    with serving(folder / "alone") as server:
        assert text_of(server.complete(prompt=TEXTS[0], temperature=0, max_tokens=24, repetition_penalty=5)) == [want]
    run, small = trained(folder)
    want = quintet("generate", run, *ASK).out
    for guess in (LOOKUP, f"--assistant_model={small}"):
        two = e2e.mpirun(e2e.QUINTET, 2, "generate", run, guess, *ASK)
        assert two.code == 0 and two.out == want, two
    for wrong in (folder / "alone", run):
        model = run if wrong != run else folder / "alone"
        assert "an assistant must be of the model's kind" in quintet("generate", model, f"--assistant_model={wrong}", "a", expect=2).err


def test_a_server_counts_guesses(folder):
    run, _ = trained(folder)
    asked = dict(prompt=["words: 7 7 7 7", "one two one two"], max_tokens=24, logprobs=1, **FREE)
    answers = []
    for flags in ([], [LOOKUP], [f"--assistant_model={run}"]):
        with serving(run, *flags) as server:
            greedy, beams, sampled = (server.complete(**asked, **more) for more in
                                      (dict(temperature=0), dict(num_beams=2), dict(temperature=1.2, seed=3, n=2)))
            answers.append([choice["logprobs"]["token_logprobs"] for answer in (greedy, beams, sampled) for choice in answer["choices"]]
                           + [text_of(greedy)])
            with server.open_stream(prompt="words: 7 7 7 7", max_tokens=24, temperature=0, **FREE) as stream:
                told = [json.loads(line[6:]) for line in stream.read().decode().splitlines() if line.startswith("data: {")]
            assert "".join(choice["text"] for event in told for choice in event["choices"]) == text_of(greedy)[0], told
            metrics = server.metrics()
            guessed, right = metrics["quintet_draft_tokens_total"], metrics["quintet_accepted_draft_tokens_total"]
            assert (guessed == 0) == (not flags) and 0 <= right <= guessed, metrics
            if flags and "assistant" in flags[0]:
                assert right > 24, metrics
    assert answers[0] == answers[1] == answers[2], answers


def test_what_does_not_go_together_is_refused(folder):
    run, small = trained(folder)
    quintet(*tiny(folder / "other", 4, "--gin.network.T5Config.vocab_size=512"))
    for arguments, part in [
            (["generate", run, LOOKUP, f"--assistant_model={small}", "a"], "give one"),
            (["generate", run, "--num_assistant_tokens=3", "a"], "--assistant_model guesses"),
            (["generate", run, LOOKUP, "--beams=4", "a"], "give --beams=1"),
            (["generate", run, LOOKUP, "--temperature=1", "--num_decodes=2", "a"], "no --num_decodes"),
            (["generate", run, LOOKUP, "--target=b", "a"], "leave out --assistant_model"),
            (["generate", run, LOOKUP, "--embed=mean", "a"], "leave out"),
            (["generate", run, LOOKUP, "--gin.models.EncoderDecoderModel.predict_batch_with_aux.num_decodes=4", "a"], "otherwise than greedily"),
            (["generate", ENCODER, "--ids", LOOKUP, "5 1"], "encoder alone"),
            (["generate", run, f"--assistant_model={ENCODER}", "a"], "guesses nothing"),
            (["serve", run, LOOKUP, "--max_batch=1", "--max_n=1"], "leaves no row"),
            (["generate", run, f"--assistant_model={folder / 'other'}", "a"], "its vocabulary has 512 ids, the model's 384"),
            (["serve", run, f"--assistant_model={small}", f"--adapter={small}"], "--prompt_lookup_num_tokens, or leave one out")]:
        result = quintet(*arguments, expect=2)
        assert part in result.err, f"{arguments}: {result}"
    assert "no such folder" in quintet("generate", run, f"--assistant_model={folder / 'none'}", "a", expect=3).err


if __name__ == "__main__":
    e2e.run(globals())
