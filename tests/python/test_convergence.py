"""32 steps on real text: a patched model learns what the stock one does, from one seed, with the library's defaults."""

import functools
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
import transformers
from tiny_models import COMMON, FAMILIES, model

import tigon

STEPS, ROWS, TOKENS = 32, 4, 64
TOP = 10  # the likeliest tokens whose log-probabilities are compared
# AdamW moves an element whose gradient is nothing but rounding by this much a step: 32 of them stay below 1e-2.
LEARNING_RATE = 3e-4
SECTIONS = dict(rope_type="default", rope_theta=1e4, mrope_section=[2, 3, 3])


@functools.cache
def genesis():
    """The bytes of Genesis, of Debian's bible-kjv; shared with what reads them: i64 [bytes]."""
    if not shutil.which("bible"):
        pytest.skip("bible is not installed (Debian: bible-kjv bible-kjv-text)")
    text = subprocess.run(["bible", "-f"], input=b"Gen1:1-Gen50:26\n", stdout=subprocess.PIPE, check=True).stdout
    assert len(text) > 100000
    return torch.tensor(list(text))


def batches():
    """[ROWS, TOKENS] for each step, and one more that nobody trains on."""
    return genesis()[: (STEPS + 1) * ROWS * TOKENS].view(STEPS + 1, ROWS, TOKENS)


def losses_of(learner, training, **inputs):
    """The loss of each step of ids, before the optimizer's step."""
    optimizer = torch.optim.AdamW(learner.parameters(), lr=LEARNING_RATE)
    losses = []
    for ids in training:
        loss = learner(input_ids=ids, labels=ids, use_cache=False, **inputs).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return torch.tensor(losses)


def trained(family, dtype, patched):
    """(losses, log-probabilities [ROWS, TOKENS, 256] of unseen text, parameters)."""
    learner = model(family, dtype, vocab_size=256)
    if patched:
        assert tigon.patch(learner).counts() == FAMILIES[family][2]
    *training, unseen = batches()
    losses = losses_of(learner, training)
    with torch.no_grad():
        logits = learner.eval()(input_ids=unseen, use_cache=False).logits
    return losses, logits.float().log_softmax(-1), dict(learner.named_parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_learns_the_same(family, dtype):
    stock_losses, stock_logs, stock_parameters = trained(family, dtype, patched=False)
    losses, logs, parameters = trained(family, dtype, patched=True)
    loss_bound, log_bound, bound = (1e-5, 5e-3, 5e-3) if dtype == torch.float32 else (1e-2, 1e-1, 1e-2)
    assert stock_losses[-1] < stock_losses[0] - 0.05
    torch.testing.assert_close(losses, stock_losses, rtol=loss_bound, atol=0)
    top, tokens = stock_logs.topk(TOP)
    torch.testing.assert_close(logs.gather(-1, tokens), top, rtol=bound, atol=log_bound)
    for name, stock in stock_parameters.items():
        torch.testing.assert_close(parameters[name], stock, rtol=bound, atol=bound, msg=lambda text: f"{name}: {text}")


def of_many_tokens(patched):
    """(losses, parameters) of 3 steps of 64 x 1024 tokens, whose MLPs are in tiles where it is patched."""
    learner = model("Llama", vocab_size=256, max_position_embeddings=1024)
    if patched:
        report = tigon.patch(learner, mlp="tiled")
        assert [", tiled: " in entry.text for entry in report.replaced if entry.kind == "mlp"] == [True, True]
    training = [genesis()[step * 16384 :][: 64 * 1024].view(64, 1024) for step in range(3)]
    return losses_of(learner, training), dict(learner.named_parameters())


def test_tiles_of_many_tokens_learn_the_same():
    (losses, parameters), (stock_losses, stock_parameters) = of_many_tokens(True), of_many_tokens(False)
    torch.testing.assert_close(losses, stock_losses, rtol=1e-5, atol=0)
    for name, stock in stock_parameters.items():
        torch.testing.assert_close(parameters[name], stock, rtol=5e-3, atol=5e-3, msg=lambda text: f"{name}: {text}")


def of_images(patched):
    """(losses, parameters) of Qwen2-VL: in each row an image of 4 x 6 tokens before the text."""
    START, IMAGE, END = 201, 200, 202
    torch.manual_seed(0)
    learner = transformers.Qwen2VLForConditionalGeneration(
        transformers.Qwen2VLConfig(
            text_config=COMMON | dict(vocab_size=256, rope_parameters=SECTIONS),
            vision_config=dict(depth=1, embed_dim=32, hidden_size=64, num_heads=2, mlp_ratio=2, patch_size=4),
            image_token_id=IMAGE,
            vision_start_token_id=START,
            vision_end_token_id=END,
        )
    ).train()
    if patched:
        counts = tigon.patch(learner).counts()
        assert counts == dict(rms_norm=5, layer_norm=3, mlp=2, rope=3, embedding=1, loss=1)
    image = torch.tensor([START] + [IMAGE] * 24 + [END]).expand(ROWS, -1)
    *texts, _ = batches()
    training = [torch.cat([image, text], dim=1) for text in texts]
    pixels = torch.randn(ROWS * 8 * 12, 3 * 2 * 4 * 4)  # 2 x 2 patches a token, of 2 frames
    grid = torch.tensor([[1, 8, 12]] * ROWS)
    kinds = (training[0] == IMAGE).int()
    losses = losses_of(learner, training, pixel_values=pixels, image_grid_thw=grid, mm_token_type_ids=kinds)
    return losses, dict(learner.named_parameters())


def test_images_and_text_learn_the_same():
    (losses, parameters), (stock_losses, stock_parameters) = of_images(True), of_images(False)
    assert stock_losses[-1] < stock_losses[0] - 0.05
    torch.testing.assert_close(losses, stock_losses, rtol=1e-5, atol=0)
    for name, stock in stock_parameters.items():
        torch.testing.assert_close(parameters[name], stock, rtol=5e-3, atol=5e-3, msg=lambda text: f"{name}: {text}")


class TestTrainer:
    """`tigon train` and transformers read each other's checkpoints."""

    WINDOWS, SEQ = 8, 32
    SHAPE = dict(
        hidden_size=32,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=SEQ,
        vocab_size=256,
    )

    def train(self, folder, *arguments):
        """The last line of `tigon train --json`."""
        cli = os.environ.get("TIGON", Path(__file__).parents[2] / "build" / "tigon")
        if not Path(cli).exists():
            pytest.skip(f"no {cli}: TIGON names the command line")
        text = bytes(genesis()[:40000].tolist())
        (folder / "text").write_bytes(text[10000:])
        (folder / "unseen").write_bytes(text[: self.WINDOWS * self.SEQ + 1])
        data = ["--data", folder / "text", "--heldout", folder / "unseen", "--seq", str(self.SEQ), "--batch", "4"]
        command = [cli, "train", "--json", "--out", folder / "out", *data, *arguments]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def unseen_loss(self, learner):
        ids = genesis()[: self.WINDOWS * self.SEQ + 1]
        inputs, targets = (t.view(self.WINDOWS, self.SEQ) for t in (ids[:-1], ids[1:]))
        with torch.no_grad():
            return learner(input_ids=inputs, labels=inputs, shift_labels=targets).loss.item()

    @pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
    def test_transformers_loads_its_checkpoint(self, tied, tmp_path):
        shape = ["--layers", "2", "--hidden", "32", "--heads", "4", "--kv-heads", "2", *["--tie"] * tied]
        last = self.train(tmp_path, *shape, "--steps", "8")
        loaded = tigon.AutoModelForCausalLM.from_pretrained(tmp_path / "out").train()
        assert self.unseen_loss(loaded) == pytest.approx(last["heldout_loss"], rel=1e-5)
        assert self.unseen_loss(tigon.unpatch(loaded)) == pytest.approx(last["heldout_loss"], rel=1e-5)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["f32", "bf16", "f16"])
    @pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
    def test_goes_on_from_a_checkpoint_of_transformers(self, tied, dtype, tmp_path):
        shape = transformers.LlamaConfig(**self.SHAPE, tie_word_embeddings=tied)
        transformers.LlamaForCausalLM(shape).to(dtype).save_pretrained(tmp_path / "theirs")
        learner = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "theirs", dtype=torch.float32)
        resume = ["--resume", tmp_path / "theirs", "--steps", "1"]
        last = self.train(tmp_path, *resume, "--lr", "1e-12")
        assert last["heldout_loss"] == pytest.approx(self.unseen_loss(learner), rel=1e-5)

    def test_goes_on_from_shards_of_transformers(self, tmp_path):
        learner = transformers.LlamaForCausalLM(transformers.LlamaConfig(**self.SHAPE))
        learner.save_pretrained(tmp_path / "theirs", max_shard_size="40KB")
        shards = sorted(path.name for path in (tmp_path / "theirs").glob("model-*.safetensors"))
        assert len(shards) > 1
        resume = ["--resume", tmp_path / "theirs", "--steps", "1", "--lr", "1e-12"]
        assert self.train(tmp_path, *resume)["heldout_loss"] == pytest.approx(self.unseen_loss(learner), rel=1e-5)
        (tmp_path / "theirs" / shards[1]).unlink()
        with pytest.raises(AssertionError, match=f"{shards[1]} is missing, which .*model.safetensors.index.json names"):
            self.train(tmp_path, *resume)
