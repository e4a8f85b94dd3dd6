"""The survey sees a replacement that is wrong in one respect only, and its table in docs/huggingface.md is complete."""

import os
import signal
import time

import pytest
import survey
import survey_table
import torch
from survey_compare import Result
from survey_compare import survey as surveyed
from survey_models import CAUSAL, NAMES
from survey_types import MULTIMODAL, NOT_BUILT

import tigon


def test_right_replacements_are_ok():
    result = surveyed("seed_oss", lambda model: tigon.patch(model, mlp=False))
    assert (result.wrong, result.skipped) == ([], [])
    assert result.replaced["rms_norm"] == 5
    assert (result.outcome, result.unnamed) == ("unnamed", {"SeedOssMLP": 2})
    assert surveyed("llama").outcome == "ok"


def breaks_norm(change):
    """A patch whose last norm is changed: change(norm, its output)."""

    def patch(model):
        report = tigon.patch(model)
        norm = model.model.norm
        right = norm.forward
        norm.forward = lambda x: change(norm, right(x))
        return report

    return patch


def restored(patch):
    """tigon.unpatch takes back only what is Tigon's."""

    def patched(model):
        report = patch(model)
        vars(model.model.norm)["forward"] = _OfTigon(vars(model.model.norm)["forward"])
        return report

    return patched


class _OfTigon:
    def __init__(self, function):
        self.function = function
        self.__func__ = self
        self.of_tigon = True

    def __call__(self, x):
        return self.function(x)


def _scaled(norm, y):
    return y * 1.0001


def _in_evaluation(norm, y):
    return y if norm.training else y * 1.001


def _in_bf16(norm, y):
    return y * 1.25 if y.dtype == torch.bfloat16 else y


def _for_a_token(norm, y):
    """Only a call with one token, as generation makes them with its cache."""
    return -y if y.shape[1] == 1 else y


def _raises(norm, y):
    raise RuntimeError("of the norm")


@pytest.mark.parametrize(
    ("change", "sentences"),
    [
        (_scaled, {"loss", "gradient", "with", "logits"}),
        (_in_evaluation, {"logits"}),
        (_in_bf16, {"bf16"}),
        (_for_a_token, {"generates"}),
        (_raises, {"raises"}),
    ],
)
def test_sees_a_wrong_forward(change, sentences):
    result = surveyed("llama", restored(breaks_norm(change)))
    assert result.outcome == "wrong"
    assert {sentence.split()[0] for sentence in result.wrong} == sentences


def test_sees_a_wrong_gradient():
    def patch(model):
        report = tigon.patch(model)
        model.model.layers[0].mlp.up_proj.weight.register_hook(lambda gradient: gradient * 1.0001)
        return report

    gradient = "gradient of model.layers.0.mlp.up_proj.weight"
    seen = {sentence.split(" is off")[0] for sentence in surveyed("qwen2", patch).wrong}
    assert seen == {gradient, f"with dropout: {gradient}", "unpatched it differs from stock"}


def test_sees_a_lost_dropout():
    def patch(model):
        for layer in model.model.layers:
            layer.mlp.residual_dropout = 0.0
        return tigon.patch(model)

    *others, half = surveyed("seed_oss", patch).wrong
    assert others and all(sentence.startswith("with dropout: ") for sentence in others) and half.startswith("bf16 loss")


def test_sees_what_unpatch_leaves():
    result = surveyed("llama", breaks_norm(lambda norm, y: y * (1 + 2**-23)))
    assert result.wrong == ["unpatched it differs from stock"]


def test_sees_a_head_that_is_reported_and_not_used():
    def patch(model):
        report = tigon.patch(model)
        tigon.patch(model, loss=False)
        return report

    assert surveyed("llama", patch).wrong == ["the head is reported as replaced, and logits are made"]


@pytest.mark.parametrize(
    ("behaviour", "sentence"),
    [
        (lambda name: time.sleep(60), "took more than 0.5 seconds"),
        (lambda name: os.kill(os.getpid(), signal.SIGKILL), "the process ended with -9"),
    ],
    ids=["hangs", "crashes"],
)
def test_sees_a_type_that_does_not_end_well(behaviour, sentence, monkeypatch, capfd):
    monkeypatch.setattr(survey, "survey", behaviour)
    assert survey.main(["llama", "--limit", "0.5", "--no-table"]) == 1
    assert sentence in capfd.readouterr().out


def test_unknown_type(capsys):
    with pytest.raises(SystemExit):
        survey.main(["lama"])
    assert "lama is no type of the survey; --list prints them" in capsys.readouterr().err


def test_most_types_are_built():
    assert NOT_BUILT.keys() <= CAUSAL.keys() and len(NOT_BUILT) < len(CAUSAL) / 10
    assert len(MULTIMODAL) >= 20


class TestTable:
    def test_has_every_type_and_none_is_wrong(self):
        assert list(survey_table.rows()) == NAMES, "make test-models ARGS=--write"
        assert "**" not in survey_table.table()
        assert all(f"not built: {reason}" in survey_table.rows()[name] for name, reason in NOT_BUILT.items())

    def test_a_third_has_every_kind(self):
        def kinds(names):
            cells = [survey_table.rows()[name].split("|")[2:-2] for name in names]
            return {kind for row in cells for kind, cell in zip(survey_table.KINDS, row, strict=True) if cell.strip()}

        assert kinds(NAMES[::3]) == kinds(NAMES) == set(survey_table.KINDS)

    def test_tells_a_row_that_is_no_longer_true(self, tmp_path, monkeypatch):
        page = tmp_path / "huggingface.md"
        page.write_text(f"before\n{survey_table.BEGIN}{survey_table.END}after\n")
        monkeypatch.setattr(survey_table, "PAGE", page)
        result = Result("llama", replaced=dict(rms_norm=5, mlp=2), left=[("mlp", "LlamaExperts", "no product", 1)])
        assert survey_table.stale([result]) == [
            "huggingface.md: the row of llama is not what the survey finds: make test-models ARGS=--write"
        ]
        survey_table.write([result])
        assert survey_table.stale([result]) == []
        assert survey_table.rows() == {"llama": "| llama |  | 5 |  | 2 of 3 |  |  |  | ok; left: `LlamaExperts` |\n"}
        assert page.read_text().startswith("before\n") and page.read_text().endswith("after\n")
        result.replaced["rms_norm"] = 4
        assert len(survey_table.stale([result])) == 1
