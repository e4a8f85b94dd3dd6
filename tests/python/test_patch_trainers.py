"""Hugging Face's Trainer and TRL's SFTTrainer run unchanged on a patched model."""

import datasets
import pytest
import tokenizers
import torch
import transformers
from tiny_models import batch, model

import tigon

STEPS = 4


def options(folder, **others):
    return dict(
        output_dir=str(folder),
        max_steps=STEPS,
        per_device_train_batch_size=2,
        learning_rate=1e-2,
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
        seed=0,
        **others,
    )


def rows():
    """One sentence, to be learnt; batches differ in how many of its tokens count."""
    ids, labels = (t.repeat(16, 1) for t in batch(rows=1))
    labels[::2, 12:] = -100
    return datasets.Dataset.from_dict(dict(input_ids=ids.tolist(), labels=labels.tolist()))


def tokenizer():
    words = {f"w{number}": number for number in range(131)}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w3"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    special = dict(pad_token="w0", eos_token="w2", unk_token="w3")
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **special)


def losses(trainer):
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.parametrize("own", [dict(gradient_accumulation_steps=2), dict(bf16=True)], ids=str)
def test_trainer(own, tmp_path):
    def run(patched):
        trained = model("Llama")
        if patched:
            assert tigon.patch(trained).counts()["loss"] == 1
        arguments = transformers.TrainingArguments(**options(tmp_path, **own))
        trainer = transformers.Trainer(trained, arguments, train_dataset=rows(), eval_dataset=rows())
        return losses(trainer), trainer.evaluate()["eval_loss"]

    (stock, stock_evaluation), (ours, our_evaluation) = run(False), run(True)
    assert len(ours) == STEPS and ours[-1] < ours[0]
    rtol = 1e-2 if "bf16" in own else 1e-4
    torch.testing.assert_close(ours, stock, rtol=rtol, atol=0)
    assert our_evaluation == pytest.approx(stock_evaluation, rel=rtol)


def test_sft_trainer(tmp_path):
    trl = pytest.importorskip("trl")
    text = [" ".join(f"w{token}" for token in row) for row in batch(rows=1)[0].tolist()] * 16

    def run(patched):
        trained = model("Llama")
        if patched:
            assert tigon.patch(trained).counts()["loss"] == 1
        arguments = trl.SFTConfig(**options(tmp_path, max_length=32, bf16=False))
        data = datasets.Dataset.from_dict(dict(text=text))
        return losses(trl.SFTTrainer(trained, arguments, train_dataset=data, processing_class=tokenizer()))

    stock, ours = run(False), run(True)
    assert len(ours) == STEPS and ours[-1] < ours[0]
    torch.testing.assert_close(ours, stock, rtol=1e-4, atol=0)
