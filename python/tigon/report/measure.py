"""A case's providers side by side: each trains on the same batches, in turns; and what the figures say."""

import collections
import functools
import multiprocessing
import re
import statistics
import sysconfig
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

from .trainer import MODELS, PHASES, PROVIDERS, WARM_UP, Case, serve

FEWEST_TOKENS = 256  # below which a GPU's memory is not divided further


class Worker:
    """A provider's process. `reason` is why it takes no part, None while it does."""

    def __init__(self, case: Case, provider: str, folder: str):
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.log = Path(folder, provider)
        self.process = context.Process(target=serve, args=(theirs, str(self.log), case, provider), daemon=True)
        self.process.start()
        theirs.close()
        self.reason, self.steps = None, []

    def ask(self, ids: list[int] | None) -> dict | None:
        """The answer, or None with a `reason`."""
        try:
            self.connection.send(ids)
        except OSError:  # it has ended, and what it said last can still be read
            pass
        try:
            answer = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            last = self.log.read_text(errors="replace").strip().splitlines()[-1:] if self.log.exists() else []
            answer = ": ".join([f"its process ended with {self.process.exitcode}", *last])
        if isinstance(answer, str):
            self.reason = answer
            return None
        return answer

    def close(self):
        self.connection.close()
        self.process.join()


def measure(case: Case, steps: int, left: dict[str, str], progress) -> dict:
    """Trains with every provider that is not in `left` ({provider: reason}) and summarises; `progress(case, step)`
    after each step. A sequence that a GPU's memory does not hold is halved."""
    with tempfile.TemporaryDirectory() as folder:
        workers = {name: Worker(case, name, folder) for name in PROVIDERS if name not in left}
        try:
            about = {name: worker.ask(None) for name, worker in workers.items()}
            for i, ids in enumerate(batches(MODELS[case.model].vocab_size, case.tokens, steps)):
                turn = collections.deque(workers.values())
                turn.rotate(i)  # nobody is always the first
                for worker in turn:
                    if not worker.reason and (answer := worker.ask(ids)):
                        worker.steps.append(answer)
                too_large = any("OutOfMemory" in (worker.reason or "") for worker in turn)
                if too_large and case.tokens > FEWEST_TOKENS:
                    break
                progress(case, i + 1)
        finally:
            for worker in workers.values():
                worker.close()
    if too_large and case.tokens > FEWEST_TOKENS:
        return measure(replace(case, tokens=case.tokens // 2), steps, left, progress)
    reasons = left | {name: worker.reason for name, worker in workers.items() if worker.reason}
    return summarise(case, {n: w.steps for n, w in workers.items() if not w.reason}, about, reasons)


@functools.cache
def batches(vocab: int, tokens: int, steps: int) -> list[list[int]]:
    """Sequences of real text that every machine has, the source of Python's own library: words, signs and spaces by
    rank of frequency, the rarest all the last of the vocabulary."""
    sources = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    words = re.findall(r"\w+|\s+|[^\w\s]", "".join(source.read_text(errors="replace") for source in sources))
    rank = {word: i for i, (word, _) in enumerate(collections.Counter(words).most_common(vocab - 1))}
    ids = [rank.get(words[i % len(words)], vocab - 1) for i in range(tokens * steps)]
    return [ids[start : start + tokens] for start in range(0, len(ids), tokens)]


def quantiles(values: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=10, method="inclusive") if len(values) > 1 else values * 9
    return dict(median=cuts[4], q20=cuts[1], q80=cuts[7])


def summarise(case: Case, steps: dict[str, list[dict]], about: dict, reasons: dict[str, str]) -> dict:
    """The case, a row for each provider that ran, why the others did not, and Tigon against each."""
    times = {name: [sum(step["phases"]) for step in found[WARM_UP:]] for name, found in steps.items()}
    rows = []
    for name, found in steps.items():
        row = dict(provider=name, title=PROVIDERS[name], **about[name], step_ms=quantiles(times[name]))
        for i, phase in enumerate(PHASES):
            row[f"{phase}_ms"] = quantiles([step["phases"][i] for step in found[WARM_UP:]])
        row["tokens_per_s"] = case.tokens / row["step_ms"]["median"] * 1e3
        row["peak_bytes"], row["process_bytes"] = found[-1]["peak_bytes"], found[-1]["process_bytes"]
        row["losses"] = [step["loss"] for step in found]
        rows.append(row)
    by_name = {row["provider"]: row for row in rows}
    others = [row for row in rows if "tigon" in by_name and row["provider"] != "tigon"]
    against = [_against(by_name["tigon"], other, times) for other in others]
    missing = [dict(provider=name, title=PROVIDERS[name], reason=why) for name, why in reasons.items()]
    model = dict(text=MODELS[case.model].text, **MODELS[case.model].shape())
    return asdict(case) | dict(shape=model, warm_up=WARM_UP, rows=rows, missing=missing, against=against)


def _against(tigon: dict, other: dict, times: dict[str, list[float]]) -> dict:
    """Tigon's share of the other's time, step by step, of its memory, and how far their losses lie apart."""
    shares = [ours / theirs for ours, theirs in zip(times["tigon"], times[other["provider"]])]
    memory = {key: tigon[key] / other[key] for key in ("peak_bytes", "process_bytes") if other[key]}
    apart = max(abs(ours - theirs) / theirs for ours, theirs in zip(tigon["losses"], other["losses"]))
    return dict(provider=other["provider"], title=other["title"], time=quantiles(shares), memory=memory, loss=apart)


def verdict(against: dict) -> str:
    """Faster is said when four steps of five are."""
    time, memory = against["time"], against["memory"]["peak_bytes"]
    word = "faster" if time["q80"] < 1 else "SLOWER" if time["q20"] > 1 else "NOT measurably faster"
    less = "less memory" if round(memory, 2) < 1 else "NOT less memory"
    return (
        f"Tigon is {word} than {against['title']}: {time['median']:.2f} of its time a step"
        f" ({time['q20']:.2f} to {time['q80']:.2f}); {less}: {memory:.2f} of its peak"
    )
