"""python -m tigon.report: the page, the CSV, and what it says of figures that are known."""

import base64
import csv
import io
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

import tigon
from tigon.report import page
from tigon.report.__main__ import arguments
from tigon.report.measure import Worker, summarise, verdict
from tigon.report.trainer import PROVIDERS, WARM_UP, Case

COLUMNS = (
    "kernel_name,kernel_provider,kernel_operation_mode,metric_name,metric_unit,x_name,x_label,x_value,y_value_50,"
    "y_value_20,y_value_80,extra_benchmark_config_str,gpu_name,timestamp,version"
)


class Page(HTMLParser):
    """What a page holds."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.images, self.links, self.text = [], [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.ids += [found["id"]] if "id" in found else []
        self.images += [found["src"]] if tag == "img" else []
        self.links += [found[name] for name in ("href", "src") if name in found]

    def handle_data(self, data):
        self.text += data


def report(*options):
    environment = os.environ | {"PYTHONPATH": str(Path(tigon.__file__).parents[1])}
    command = [sys.executable, "-m", "tigon.report", "--device", "cpu", *map(str, options)]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """(figures, page, lines of the CSV) of one quick run."""
    out = tmp_path_factory.mktemp("report") / "here" / "mine.html"
    done = report("--quick", "--json", "--out", out)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # no bar where it is no terminal
    return json.loads(done.stdout), out.read_text(), out.with_suffix(".csv").read_text()


def test_page_holds_every_section(quick):
    figures, text, _ = quick
    found = Page(text)
    assert found.ids == ["summary", "f32", "method"]
    (case,) = figures["cases"]
    assert [row["provider"] for row in case["rows"]][:2] == ["stock", "tigon"]
    assert all(note in found.text for note in page.notes(case))
    assert f"{case['rows'][0]['step_ms']['median']:.1f}" in found.text
    assert "1 loss" in found.text and "5 rms_norm" in found.text


def test_page_needs_nothing_else(quick):
    found = Page(quick[1])
    assert len(found.images) == 2 and found.links == found.images
    for image in found.images:
        kind, _, data = image.partition(",")
        assert kind == "data:image/svg+xml;base64"
        assert ElementTree.fromstring(base64.b64decode(data)).tag.endswith("svg")
    assert not re.search(r"https?://|@import|url\(|<script", quick[1])


def test_missing_peers_are_named(quick):
    (case,) = quick[0]["cases"]
    missing = {peer["provider"]: peer["reason"] for peer in case["missing"]}
    assert missing.keys() == {"torch_compile", "liger"}
    assert missing["torch_compile"].startswith("--quick leaves it out")
    assert missing["liger"] in ("liger_kernel is not installed", "its kernels are Triton's, which need a GPU")
    assert all(f"{PROVIDERS[name]} is missing: {reason}" in Page(quick[1]).text for name, reason in missing.items())


def test_csv(quick):
    figures, _, text = quick
    assert text.splitlines()[0] == COLUMNS
    lines = list(csv.DictReader(io.StringIO(text)))
    assert len(lines) == 8
    keys = ("kernel_provider", "kernel_operation_mode", "metric_name", "metric_unit")
    modes = [("forward", "speed", "ms"), ("backward", "speed", "ms"), ("full", "speed", "ms"), ("full", "memory", "MB")]
    wanted = {(provider, *mode) for provider in ("huggingface", "tigon") for mode in modes}
    assert {tuple(line[key] for key in keys) for line in lines} == wanted
    for line in lines:
        assert float(line["y_value_20"]) <= float(line["y_value_50"]) <= float(line["y_value_80"])
        assert json.loads(line["extra_benchmark_config_str"])["dtype"] == "f32"
        assert line["version"] == tigon.version() and line["x_value"] == "64"
    step = figures["cases"][0]["rows"][1]["step_ms"]["median"]
    assert float(lines[6]["y_value_50"]) == pytest.approx(step, rel=1e-5)


def test_both_train_alike(quick):
    (case,) = quick[0]["cases"]
    (against,) = case["against"]
    assert against["loss"] < 1e-5
    losses = case["rows"][1]["losses"]
    assert losses[-1] < losses[0] - 0.05
    for row in case["rows"]:
        assert 0 < row["peak_bytes"] < row["process_bytes"]


def steps(milliseconds, mib, loss=2.0):
    phases = [[milliseconds / 4, milliseconds / 2, milliseconds / 4]]
    kept = dict(loss=loss, peak_bytes=mib << 20, process_bytes=(mib + 300) << 20)
    return [dict(phases=phase, **kept) for phase in [[1e6] * 3] * WARM_UP + phases * 4]


def summary(**found):
    about = {name: dict(device="a machine", threads=2, replaced=None) for name in PROVIDERS}
    return summarise(Case("tiny", "bf16", "cpu", 512), found, about, {"liger": "<gone>"})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu():
    done = report("--quick", "--json", "--device", "cuda")
    assert done.returncode == 0, done.stdout
    (case,) = json.loads(done.stdout)["cases"]
    assert all(row["device"] == torch.cuda.get_device_name() and row["peak_bytes"] > 0 for row in case["rows"])


@pytest.mark.parametrize(
    ("milliseconds", "mib", "said"),
    [
        (50, 60, "faster than transformers: 0.50 of its time a step (0.50 to 0.50); less memory: 0.60 of its peak"),
        (200, 100, "SLOWER than transformers: 2.00 of its time a step (2.00 to 2.00); NOT less memory: 1.00 of"),
        (100, 99, "NOT measurably faster than transformers: 1.00 of its time"),
    ],
)
def test_verdict(milliseconds, mib, said):
    case = summary(stock=steps(100, 100), tigon=steps(milliseconds, mib))
    assert f"Tigon is {said}" in verdict(case["against"][0])


def test_warm_up_does_not_count():
    case = summary(stock=steps(100, 100), tigon=steps(50, 60, 2.002))
    assert [row["step_ms"]["q80"] for row in case["rows"]] == [100, 50]
    assert [row["tokens_per_s"] for row in case["rows"]] == [5120, 10240]
    assert case["against"][0]["loss"] == pytest.approx(1e-3)
    assert case["against"][0]["memory"] == pytest.approx({"peak_bytes": 0.6, "process_bytes": 0.9})


def test_page_without_a_provider():
    case = summary(tigon=steps(50, 60))
    words = dict(device="a <machine>", timestamp="", versions={"tigon": "1"}, command="")
    text = page.html(dict(cases=[case], threads=2, steps=7) | words, "report.csv")
    assert "a &lt;machine&gt;" in text and "Liger-Kernel is missing: &lt;gone&gt;" in text
    assert case["against"] == []


def test_a_process_that_dies_is_a_reason(tmp_path):
    worker = Worker(Case("quick", "f32", "nowhere", 64), "stock", tmp_path)
    assert worker.ask(None) is None
    assert "nowhere" in worker.reason
    worker.close()
    killed = Worker(Case("quick", "f32", "cpu", 64), "stock", tmp_path)
    killed.process.kill()
    assert killed.ask(None) is None
    assert killed.reason.startswith("its process ended with -9")
    killed.close()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--device", "tpu"], "--device is tpu, must be cpu, cuda, cuda:N, npu or npu:N"),
        (["--device", "cuda:99"], "--device is cuda:99, and torch finds"),
        (["--device", "cpu", "--steps", "3"], "--steps is 3, must be more than 3, which warm up"),
        (["--device", "cpu", "--dtype", "f64"], "invalid choice: 'f64'"),
    ],
)
def test_wrong_options(options, sentence, capsys):
    with pytest.raises(SystemExit) as ended:
        arguments(options)
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err
