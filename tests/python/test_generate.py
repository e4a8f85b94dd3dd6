"""tigon generate, eval, tokenize and train --tokenizer beside transformers and tokenizers."""

import json
import os
import random
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CLI = os.environ.get("TIGON", Path(__file__).parents[2] / "build" / "tigon")
pytestmark = pytest.mark.skipif(not Path(CLI).exists(), reason=f"no {CLI}: TIGON names the command line")

SHAPE = dict(vocab_size=300, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5)
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
KINDS = ["gpt2", "prefix", "digits", "llama3", "qwen", "removed"]


def run(*arguments, input=None):
    done = subprocess.run([CLI, *map(str, arguments)], input=input, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def plain(text):
    """Without what stands for bytes that are no character, of which each program has another number."""
    return text.replace("\ufffd", "")


def pre_tokenizer(kind):
    level = pre_tokenizers.ByteLevel(add_prefix_space=kind == "prefix", use_regex=kind in ("gpt2", "prefix", "digits"))
    if kind in ("gpt2", "prefix"):
        return level
    if kind == "digits":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), level])
    pattern = LLAMA3 if kind != "qwen" else LLAMA3.replace("{1,3}", "")
    behavior, invert = ("removed", True) if kind == "removed" else ("isolated", False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), behavior, invert), level])


@pytest.fixture(scope="module")
def bible():
    text = subprocess.run("bible -f Gen1:1-Rev22:21 </dev/null", shell=True, capture_output=True).stdout.decode()
    if len(text) < 200000:
        pytest.skip("no bible-kjv")
    return text[:200000]


def trained(kind, text, vocab=600):
    """A BPE of this kind, with tokens added in every way that is read."""
    made = Tokenizer(models.BPE(ignore_merges=kind == "llama3"))
    made.pre_tokenizer = pre_tokenizer(kind)
    made.decoder = decoders.ByteLevel()
    if kind == "qwen":
        made.normalizer = normalizers.NFC()
    made.train_from_iterator([text], trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    made.add_special_tokens([AddedToken("<|begin|>", special=True, normalized=False)])
    made.add_tokens([AddedToken("<mask>", lstrip=True, rstrip=kind == "qwen", normalized=False),
                     AddedToken("h\u00e9llo", normalized=True)])
    if kind == "llama3":
        begin = ("<|begin|>", made.token_to_id("<|begin|>"))
        template = processors.TemplateProcessing(single="<|begin|> $A", special_tokens=[begin])
        made.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return made


PARTS = ["a", "b", "the ", " And", "'s", "'LL", "\u017f", "K'Ve", " ", "  ", "\t", "\n", "\r\n", "   \n\n  ", "\u00a0",
         "\u2003", "\u3000", "\u0085", "\u2028", "\u180e", "\u200b", "1", "23", "4567", "\u0663", "\u216b", "\u00bd",
         "\u00e9", "e\u0301", "u\u0308", "\ud55c\uae00", "\u65e5\u672c\u8a9e", "\U0001f469\u200d\U0001f467",
         "\U0001f1e9\U0001f1ea", "<|endoftext|>", "<mask>", " <mask>  ", "h\u00e9llo", "he\u0301llo", "<|begin|>", "!",
         "?!...", "--", "\ufb01", "\u212b", "\U0001d518", "\u0915\u094d\u0937\u093f", "\u0378", "\u2026", "_", "x=1;"]


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_are_those_of_tokenizers(kind, bible, tmp_path):
    theirs = trained(kind, bible)
    theirs.save(str(tmp_path / "tokenizer.json"))
    draw = random.Random(KINDS.index(kind))
    texts = ["".join(draw.choices(PARTS, k=60)) for _ in range(60)]
    texts += ["a" * 5000, " " * 40000 + "x", "\n" * 3000, "ab" * 3000, "1" * 1000, bible[:50000]]
    for text in ["".join(texts), *texts[:4], *texts[60:]]:
        (tmp_path / "x.txt").write_bytes(text.encode())
        run("tokenize", "--tokenizer", tmp_path, tmp_path / "x.txt", "--out", tmp_path / "x.bin")
        header = np.fromfile(tmp_path / "x.bin", np.int32, 256)
        ours = np.fromfile(tmp_path / "x.bin", np.uint16)[512:].tolist()
        wanted = theirs.encode(text, add_special_tokens=False).ids
        assert list(header[:3]) == [20240520, 1, len(wanted)]
        assert ours == wanted
    (tmp_path / "x.txt").write_bytes(texts[0].encode())
    printed = run("tokenize", "--tokenizer", tmp_path / "tokenizer.json", tmp_path / "x.txt")
    assert [int(token) for token in printed.split()] == theirs.encode(texts[0], add_special_tokens=False).ids


LINEAR = dict(rope_type="linear", factor=4.0)
SCALED = dict(rope_type="llama3", factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)


def save(folder, tied, dtype, shards, vocab=300, rope=None):
    torch.manual_seed(5)
    scaled = dict(rope_parameters=dict(rope, rope_theta=500.0)) if rope else {}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**SHAPE, "vocab_size": vocab}, **scaled,
                                                                   tie_word_embeddings=tied))
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(4 if weight.dim() > 1 else 1)
    model = model.to(dtype)
    model.save_pretrained(folder, **({"max_shard_size": "40KB"} if shards else {}))
    return model.float().eval()


@pytest.mark.parametrize("tied,dtype,shards,rope", [
    (False, torch.float32, False, None), (True, torch.bfloat16, False, None), (False, torch.float16, True, None),
    (True, torch.float32, False, LINEAR), (False, torch.float32, False, SCALED)])
def test_greedy_is_transformers(tied, dtype, shards, rope, bible, tmp_path):
    theirs = trained("llama3", bible, vocab=290)
    model = save(tmp_path, tied, dtype, shards, rope=rope)
    theirs.save(str(tmp_path / "tokenizer.json"))
    assert len(list(tmp_path.glob("*.safetensors"))) > 1 or not shards
    prompt = theirs.encode("In the beginning").ids
    with torch.no_grad():
        wanted = model.generate(torch.tensor([prompt]), max_new_tokens=40, do_sample=False, eos_token_id=None,
                                pad_token_id=0)[0, len(prompt):].tolist()
    given = ["generate", tmp_path, "--prompt", "In the beginning", "--temperature", "0", "--max-tokens", "40"]
    ours = json.loads(run(*given, "--json"))
    assert (ours["tokens"], ours["prompt_tokens"], ours["ended"]) == (wanted, len(prompt), "max-tokens")
    text = theirs.decode([token for token in wanted if token < theirs.get_vocab_size()])
    assert plain(ours["text"]) == plain(run(*given).decode(errors="replace")) == plain(text)

    settings = json.loads((tmp_path / "generation_config.json").read_text())
    last = next(i for i, token in enumerate(wanted) if i > 2 and token not in wanted[:i])
    (tmp_path / "generation_config.json").write_text(json.dumps({**settings, "eos_token_id": [299999, wanted[last]]}))
    ours = json.loads(run(*given, "--json"))
    assert (ours["tokens"], ours["ended"]) == (wanted[:last + 1], "end")


def windows_loss(model, ids, context, stride):
    """The summed loss of all tokens but the first, each seen by the first window that has it."""
    total, counted = 0.0, 1
    for first in range(0, len(ids), stride):
        window = torch.tensor([ids[first:first + context + 1]])
        with torch.no_grad():
            probability = model(window[:, :-1]).logits[0].double().log_softmax(-1)
        losses = -probability.gather(1, window[0, 1:, None])[:, 0]
        total += losses[counted - first - 1:].sum().item()
        counted = first + window.shape[1]
        if counted == len(ids):
            return total


@pytest.mark.parametrize("context,stride,rope", [(64, 64, None), (64, 16, None), (24, 7, None), (64, 64, LINEAR),
                                                 (64, 64, SCALED)])
def test_eval_is_transformers(context, stride, rope, bible, tmp_path):
    theirs = trained("llama3", bible, vocab=290)
    model = save(tmp_path, False, torch.float32, False, rope=rope)
    theirs.save(str(tmp_path / "tokenizer.json"))
    text = bible[1000:1600] + "h\u00e9llo <mask>"
    (tmp_path / "text.txt").write_bytes(text.encode())
    ids = theirs.encode(text).ids
    total = windows_loss(model, ids, context, stride)
    ours = json.loads(run("eval", tmp_path, "--data", tmp_path / "text.txt", "--context", context, "--stride", stride,
                          "--json"))
    assert (ours["tokens"], ours["bytes"]) == (len(ids) - 1, len(text.encode()))
    assert ours["loss"] == pytest.approx(total / (len(ids) - 1), rel=1e-5)
    assert ours["perplexity"] == pytest.approx(np.exp(ours["loss"]), rel=1e-4)
    assert ours["bits_per_byte"] == pytest.approx(total / np.log(2) / len(text.encode()), rel=1e-5)


def test_train_keeps_the_tokenizer(bible, tmp_path):
    (tmp_path / "text.txt").write_text(bible[:20000])
    theirs = trained("llama3", bible)
    theirs.save(str(tmp_path / "tokenizer.json"))
    tiny = ["--layers", 2, "--hidden", 32, "--heads", 2, "--seq", 16, "--batch", 2, "--eval-every", 0]
    run("train", "--data", tmp_path / "text.txt", "--tokenizer", tmp_path / "tokenizer.json", "--out", tmp_path / "out",
        "--steps", 3, "--sample", 0, *tiny)
    loaded = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert model.config.vocab_size == theirs.get_vocab_size()
    assert loaded("In the beginning 123").input_ids == theirs.encode("In the beginning 123").ids
    assert loaded.decode(loaded("In the end.").input_ids, skip_special_tokens=True) == "In the end."
    # A resumed run goes on with the copy, and the sample is text.
    (tmp_path / "tokenizer.json").unlink()
    again = run("train", "--resume", tmp_path / "out", "--steps", 4, "--prompt", "In the", "--sample", 5, "--json")
    assert json.loads(again.splitlines()[-1])["sample"].startswith("In the")
    written = json.loads(run("generate", tmp_path / "out", "--prompt", "In the", "--max-tokens", 5, "--json"))
    assert written["prompt_tokens"] == len(theirs.encode("In the").ids)


@pytest.mark.parametrize("rope", [LINEAR, SCALED], ids=["linear", "llama3"])
@pytest.mark.parametrize("version", [4, 5])
def test_train_goes_on_with_scaled_positions(rope, version, bible, tmp_path):
    """With either version's config.json; what is written loads in transformers with the same positions."""
    save(tmp_path / "first", True, torch.float32, False, vocab=256, rope=rope)
    config = json.loads((tmp_path / "first" / "config.json").read_text())
    assert config["rope_parameters"].items() >= rope.items()
    if version == 4:
        config["rope_theta"] = config["rope_parameters"].pop("rope_theta")
        config["rope_scaling"] = config.pop("rope_parameters")
        (tmp_path / "first" / "config.json").write_text(json.dumps(config))
    (tmp_path / "text.txt").write_text(bible[:4000])
    run("train", "--init-from", tmp_path / "first", "--data", tmp_path / "text.txt", "--out", tmp_path / "out", "--batch",
        2, "--steps", 2, "--sample", 0)
    run("train", "--resume", tmp_path / "out", "--steps", 3, "--sample", 0)
    written = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "out").eval()
    assert written.config.rope_parameters.items() >= dict(rope, rope_theta=500.0).items()
    ours = json.loads(run("eval", tmp_path / "out", "--data", tmp_path / "text.txt", "--json"))
    total = windows_loss(written, list((tmp_path / "text.txt").read_bytes()), 64, 64)
    assert ours["loss"] == pytest.approx(total / ours["tokens"], rel=1e-5)
