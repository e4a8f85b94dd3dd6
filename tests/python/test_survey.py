"""The survey sees a replacement that is wrong in one respect only, and its tables in docs/huggingface.md are complete."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
import torch

import tigon
from tigon.huggingface.survey import compare, table
from tigon.huggingface.survey.__main__ import main
from tigon.huggingface.survey.compare import Result
from tigon.huggingface.survey.compare import survey as surveyed
from tigon.huggingface.survey.families import CAUSAL, NAMES
from tigon.huggingface.survey.sizes import MULTIMODAL, NOT_BUILT

PAGE = Path(__file__).parents[2] / "docs" / "huggingface.md"


def test_right_replacements_are_ok():
    result = surveyed("seed_oss", lambda model, **kinds: tigon.patch(model, mlp=False, **kinds))
    assert (result.wrong, result.skipped) == ([], [])
    assert result.replaced["rms_norm"] == 5
    assert (result.outcome, result.unnamed) == ("unnamed", {"SeedOssMLP": 2})
    assert surveyed("llama").outcome == "ok"


def breaks_norm(change):
    """A patch whose last norm is changed: change(norm, its output)."""

    def patch(model, **kinds):
        report = tigon.patch(model, **kinds)
        norm = model.model.norm
        right = norm.forward
        norm.forward = lambda x: change(norm, right(x))
        return report

    return patch


def restored(patch):
    """tigon.unpatch takes back only what is Tigon's."""

    def patched(model, **kinds):
        report = patch(model, **kinds)
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
        (_in_evaluation, {"logits", "with"}),
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
    def patch(model, **kinds):
        report = tigon.patch(model, **kinds)
        model.model.layers[0].mlp.up_proj.weight.register_hook(lambda gradient: gradient * 1.0001)
        return report

    gradient = "gradient of model.layers.0.mlp.up_proj.weight"
    seen = {sentence.split(" is off")[0] for sentence in surveyed("qwen2", patch).wrong}
    assert seen == {gradient, *(f"with {mode}: {gradient}" for mode in ("attention", "dropout")), "unpatched it differs from stock"}


def test_sees_a_lost_dropout():
    def patch(model, **kinds):
        for layer in model.model.layers:
            layer.mlp.residual_dropout = 0.0
        return tigon.patch(model, **kinds)

    *others, half = surveyed("seed_oss", patch).wrong
    assert others and all(sentence.startswith("with dropout: ") for sentence in others) and half.startswith("bf16 loss")


def test_sees_what_unpatch_leaves():
    result = surveyed("llama", breaks_norm(lambda norm, y: y * (1 + 2**-23)))
    assert result.wrong == ["unpatched it differs from stock"]


def test_sees_a_head_that_is_reported_and_not_used():
    def patch(model, **kinds):
        report = tigon.patch(model, **kinds)
        tigon.patch(model, loss=False)
        return report

    assert surveyed("llama", patch).wrong == ["the head is reported as replaced, and logits are made"]


def test_sees_a_wrong_attention(monkeypatch):
    from tigon.huggingface import attention

    right = attention.F.attention
    monkeypatch.setattr(attention.F, "attention", lambda q, *rest, **more: right(q, *rest, **more) * (1 + (q.shape[2] > 5) * 1e-3))
    wrong = surveyed("llama").wrong
    assert wrong and all(sentence.startswith("with attention: ") for sentence in wrong)


@pytest.mark.parametrize(
    ("behaviour", "details", "status"),
    [
        (lambda name, built: time.sleep(60), "not built\n    takes more than 0.5 seconds", 0),
        (lambda name, built: (built(), time.sleep(60)), "wrong\n    takes more than 0.5 seconds", 1),
        (lambda name, built: os.kill(os.getpid(), signal.SIGKILL), "not built\n    its process ended with -9", 0),
    ],
    ids=["hangs", "hangs when patched", "crashes"],
)
def test_sees_a_family_that_does_not_end_well(behaviour, details, status, monkeypatch, capfd):
    monkeypatch.setattr(compare, "survey", behaviour)
    assert main(["llama", "--seconds", "0.5"]) == status
    assert details in capfd.readouterr().out


def test_says_why_a_family_is_not_built(monkeypatch, capfd):
    def of_too_many(name):
        return torch.empty(1 << 40)

    monkeypatch.setattr(compare, "model", of_too_many)
    assert main(["llama", "mistral", "--memory", "1"]) == 0
    assert capfd.readouterr().out.count("not built\n    RuntimeError: ") == 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["lama"], "lama is no family of the survey; --list prints them (near it: llama"),
        (["--jobs", "0"], "--jobs is 0, must be above 0"),
        (["llama", "--write", str(PAGE)], "--write wants all families"),
        (["--check", __file__], "does not have the two lines between which the tables stand"),
        (["--check", "absent.md"], "absent.md cannot be read: No such file or directory"),
    ],
)
def test_mistakes_of_its_user(arguments, sentence, capsys):
    with pytest.raises(SystemExit):
        main(arguments)
    assert sentence in " ".join(capsys.readouterr().err.split())


def test_json(capfd):
    assert main(["nanochat", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    (family,) = found["families"]
    assert found["versions"] == table.versions()
    assert (family["name"], family["outcome"], family["replaced"]["rms_norm"]) == ("nanochat", "ok", 9)
    assert ["rope", "NanoChatAttention"] in [left[:2] for left in family["left"]]


def test_most_families_are_built():
    assert NOT_BUILT.keys() <= CAUSAL.keys() and len(NOT_BUILT) < len(CAUSAL) / 10
    assert len(MULTIMODAL) >= 20


class TestTables:
    def test_a_few_families_have_the_same_rows(self, capfd):
        names = ["llama", "gpt_oss", "bart", "nemotron"]
        assert main([*names, "--check", str(PAGE), "--jobs", "1"]) == 0, capfd.readouterr().err

    def test_have_every_family_and_none_is_wrong(self):
        assert list(table.rows(PAGE)) == NAMES, 'make test-models ARGS="--write docs/huggingface.md"'
        assert "**wrong**" not in table.written(PAGE)
        not_built = {name for name, row in table.rows(PAGE).items() if "not built: " in row}
        assert not_built == NOT_BUILT.keys()

    def test_a_third_has_every_kind(self):
        def kinds(names):
            cells = [table.rows(PAGE)[name].split("|")[2:-2] for name in names]
            return {kind for row in cells for kind, cell in zip(table.KINDS, row, strict=True) if cell.strip()}

        assert kinds(NAMES[::3]) == kinds(NAMES) == table.KINDS.keys()

    def test_tell_what_is_no_longer_true(self, tmp_path):
        page = tmp_path / "page.md"
        page.write_text(f"before\n{table.BEGIN}{table.END}after\n")
        result = Result("llama", replaced=dict(rms_norm=5, mlp=2), left=[("mlp", "LlamaExperts", "no product", 1)])
        assert len(table.stale(page, [result])) == 2
        table.write(page, [result])
        assert table.stale(page, [result]) == []
        assert page.read_text().startswith("before\n") and page.read_text().endswith("after\n")
        result.left = [("mlp", "LlamaExperts", "another reason", 1)]
        assert table.stale(page, [result]) == [
            f"{page}: the reason for LlamaExperts of llama is not what the survey finds: write the page anew"
        ]
        result.left, result.replaced["rms_norm"] = [], 4
        assert table.stale(page, [result]) == [
            f"{page}: the row of llama is not what the survey finds: write the page anew"
        ]
