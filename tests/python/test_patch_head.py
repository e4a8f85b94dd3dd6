"""The heads that tigon.patch takes, those of models inside a model, too; and strangers' that it must leave."""

import pytest
import torch
from tiny_models import batch, model

import tigon


def with_forward(change, **config):
    """A tiny Llama whose forward is `change(self, hidden, labels)`."""
    made = model("Llama", **config)

    class Mine(type(made)):
        def forward(self, input_ids=None, labels=None, **kwargs):
            return change(self, self.model(input_ids=input_ids, **kwargs)[0], labels)

    made.__class__ = Mine
    return made


def outputs(self, logits, labels, extra=0.0, **kwargs):
    from transformers.modeling_outputs import CausalLMOutputWithPast

    loss = None if labels is None else self.loss_function(logits, labels, self.config.vocab_size, **kwargs)
    return CausalLMOutputWithPast(loss=loss if loss is None else loss + extra, logits=logits)


class TestHead:
    @pytest.mark.parametrize(
        "change, text",
        [
            (lambda self, h, y: outputs(self, self.lm_head(h) * (2 if self.training else 1), y), "in training mode"),
            (
                lambda self, h, y: outputs(self, (z := self.lm_head(h)), y, 1e-3 * z.logsumexp(-1).mean()),
                "more than its loss",
            ),
            (
                lambda self, h, y: outputs(self, (z := self.lm_head(h)), y, 1e-3 * z.detach().logsumexp(-1).mean()),
                "more than its loss",
            ),
            (lambda self, h, y: outputs(self, self.lm_head(h), y, ignore_index=7), "gives its loss ignore_index"),
            (lambda self, h, y: outputs(self, self.lm_head(h)[..., :130], y), "shape of the logits"),
            (
                lambda self, h, y: outputs(self, self.lm_head(h) * torch.arange(1, h.shape[1] + 1)[:, None], y),
                "more to the logits",
            ),
            (lambda self, h, y: outputs(self, self.lm_head(h) + h.sum(-1, keepdim=True), y), "more to the logits"),
            (lambda self, h, y: outputs(self, self.lm_head(h).bfloat16().float(), y), "more to the logits"),
            (lambda self, h, y: outputs(self, self.lm_head(h), None), "calls its loss_function 0 times, must once"),
        ],
        ids=["mode", "z-loss", "z-loss quietly", "ignore_index", "slice", "position", "hidden", "rounding", "own loss"],
    )
    def test_strange(self, change, text):
        patched = with_forward(change).eval()
        (left,) = tigon.patch(patched, verify=False).left
        assert left.kind == "loss" and text in left.text

    def test_its_loss_gets_what_it_does_not_read(self):
        """Mistral 3 hands its vision_feature_layer on."""
        patched = with_forward(lambda self, h, y: outputs(self, self.lm_head(h), y, vision_feature_layer=-1))
        ids, labels = batch()
        wanted = patched(ids, labels=labels).loss
        assert tigon.patch(patched).counts()["loss"] == 1
        found = patched(ids, labels=labels)
        assert found.logits is None and abs(found.loss - wanted) <= 1e-6 * wanted

    @pytest.mark.parametrize("scaling", [6.0, 0.75, 1 / 3, 0.3, 7.0])
    def test_scaled(self, scaling):
        """Neither a factor nor its inverse need have few digits."""
        patched = model("Granite", logits_scaling=scaling)
        (entry,) = [entry for entry in tigon.patch(patched).replaced if entry.kind == "loss"]
        assert f"logits / {scaling:g}" in entry.text

    def test_stock_forward_of_another_class_is_replaced(self):
        patched = with_forward(lambda self, h, y: outputs(self, self.lm_head(h), y))
        assert tigon.patch(patched).counts()["loss"] == 1

    def test_a_layer_before_the_head(self):
        """Which is no part of the trial, and runs in the model."""
        patched = with_forward(lambda self, h, y: outputs(self, self.lm_head(self.dense(h[:, slice(0, None)])), y))
        patched.dense = torch.nn.Linear(64, 64)
        ids, labels = batch()
        stock = patched(ids, labels=labels)
        report = tigon.patch(patched)
        assert report.counts()["loss"] == 1 and not report.unverified
        torch.testing.assert_close(patched(ids, labels=labels).loss, stock.loss, rtol=1e-6, atol=0)

    def test_shape_of_the_logits_may_be_read(self):
        patched = with_forward(lambda self, h, y: outputs(self, (z := self.lm_head(h)), y, 0 * z.shape[-1]))
        ids, labels = batch()
        stock = patched(ids, labels=labels)
        assert tigon.patch(patched).counts()["loss"] == 1
        torch.testing.assert_close(patched(ids, labels=labels).loss, stock.loss, rtol=1e-6, atol=0)

    @pytest.mark.parametrize("scale", [1.0, 0.25])
    def test_head_of_a_model_inside(self, scale):
        """The outer model makes the loss of the inner one's logits: both are one head, the outer model's."""
        inner = model("Llama")

        class Outer(type(inner)):
            def __init__(self, config):
                super().__init__(config)
                self.language_model = inner
                del self.model, self.lm_head

            def get_output_embeddings(self):
                return self.language_model.get_output_embeddings()

            def get_input_embeddings(self):
                return self.language_model.get_input_embeddings()

            def forward(self, input_ids=None, labels=None, **kwargs):
                return outputs(self, self.language_model(input_ids=input_ids, **kwargs)[0] * scale, labels)

        outer = Outer(inner.config).train()
        ids, labels = batch()
        stock = outer(ids, labels=labels)
        report = tigon.patch(outer)
        assert [(e.path, e.kind) for e in (*report.replaced, *report.left) if e.kind == "loss"] == [("", "loss")]
        ours = outer(ids, labels=labels)
        assert ours.logits is None
        torch.testing.assert_close(ours.loss, stock.loss, rtol=1e-6, atol=0)
        assert inner(ids, labels=labels).logits is not None

    def test_loss_of_a_model_inside(self):
        """The inner model makes the loss."""
        inner = model("Llama")

        class Outer(type(inner)):
            def __init__(self, config):
                super().__init__(config)
                self.language_model = inner
                del self.model, self.lm_head

            def get_output_embeddings(self):
                return self.language_model.get_output_embeddings()

            def forward(self, input_ids=None, labels=None, **kwargs):
                return self.language_model(input_ids=input_ids, labels=labels, **kwargs)

        outer = Outer(inner.config).train()
        report = tigon.patch(outer)
        assert [e.path for e in report.replaced if e.kind == "loss"] == ["language_model"]
        ids, labels = batch()
        assert outer(ids, labels=labels).logits is None
