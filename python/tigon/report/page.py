"""The page, its plots, the CSV and the table on a terminal, all from one dictionary of figures."""

import base64
import csv
import io
import json
from importlib import resources

from .measure import verdict
from .trainer import PHASES

# The columns of Liger-Kernel's benchmark data and the names that its tools know providers by.
COLUMNS = (
    "kernel_name kernel_provider kernel_operation_mode metric_name metric_unit x_name x_label x_value y_value_50"
    " y_value_20 y_value_80 extra_benchmark_config_str gpu_name timestamp version"
).split()
LIGERS_NAMES = {"stock": "huggingface"}
COLOURS = {"stock": "#6b7280", "tigon": "#d9730d", "torch_compile": "#2b6cb0", "liger": "#7b4fa3"}
MIB = 2**20


def csv_text(report: dict) -> str:
    """A line for each provider, phase and metric; "full" is the whole step with its optimizer."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for case in report["cases"]:
        shape = {name: value for name, value in case["shape"].items() if name != "text"}
        config = json.dumps({"dtype": case["dtype"], "batch": 1, "optimizer": "AdamW"} | shape)
        for row in case["rows"]:
            modes = {"forward": "forward_ms", "backward": "backward_ms", "full": "step_ms"}
            metrics = [(mode, "speed", "ms", row[key]) for mode, key in modes.items()]
            metrics.append(("full", "memory", "MB", dict.fromkeys(("median", "q20", "q80"), row["peak_bytes"] / MIB)))
            for mode, metric, unit, value in metrics:
                line = {
                    "kernel_name": "llama_train_step",
                    "kernel_provider": LIGERS_NAMES.get(row["provider"], row["provider"]),
                    "kernel_operation_mode": mode,
                    "metric_name": metric,
                    "metric_unit": unit,
                    "x_name": "T",
                    "x_label": "sequence length",
                    "x_value": case["tokens"],
                    "y_value_50": f"{value['median']:.6g}",
                    "y_value_20": f"{value['q20']:.6g}",
                    "y_value_80": f"{value['q80']:.6g}",
                    "extra_benchmark_config_str": config,
                    "gpu_name": row["device"],
                    "timestamp": report["timestamp"],
                    "version": report["versions"]["tigon"],
                }
                writer.writerow(line)
    return text.getvalue()


def heading(case: dict) -> str:
    return f"{case['dtype']}, {case['tokens']} tokens a step"


def notes(case: dict) -> list[str]:
    """Verdicts, and who is missing and why."""
    absent = [f"{peer['title']} is missing: {peer['reason']}" for peer in case["missing"]]
    return [verdict(against) for against in case["against"]] + absent


def terminal_text(report: dict) -> str:
    lines = []
    for case in report["cases"]:
        lines.append(f"{case['shape']['text']}, {heading(case)}, {report['device']}")
        phases = "".join(f"{phase + ' ms':>14}" for phase in PHASES)
        lines.append(f"{'':16}{'step ms':>10}{'20 %':>8}{'80 %':>8}{phases}{'peak MiB':>10}{'last loss':>11}")
        for row in case["rows"]:
            step, phases = row["step_ms"], "".join(f"{row[phase + '_ms']['median']:14.1f}" for phase in PHASES)
            times = f"{step['median']:10.1f}{step['q20']:8.1f}{step['q80']:8.1f}{phases}"
            lines.append(f"{row['title']:16}{times}{row['peak_bytes'] / MIB:10.0f}{row['losses'][-1]:11.4f}")
        lines += [*notes(case), ""]
    return "\n".join(lines)


def html(report: dict, csv_name: str) -> str:
    """The page, which refers to nothing outside itself but the CSV beside it."""
    import jinja2

    template = resources.files(__package__).joinpath("page.html").read_text()
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    names = dict(heading=heading, notes=notes, phases=PHASES, colours=COLOURS, mib=MIB, csv_name=csv_name)
    figures = [[(alt, _image(draw(case))) for alt, draw in FIGURES.items()] for case in report["cases"] if case["rows"]]
    return environment.from_string(template).render(report=report, figures=figures, **names)


def _image(figure) -> str:
    """A data URI: an SVG whose letters are drawn, so that it looks the same everywhere."""
    import matplotlib.pyplot as plt

    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)
    return "data:image/svg+xml;base64," + base64.b64encode(text.getvalue().encode()).decode()


def _panels(*titles: str):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    style = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.titleweight": "bold"}
    with plt.rc_context(style):
        figure, panels = plt.subplots(1, len(titles), figsize=(9.6, 3.2), layout="constrained")
        for panel, title in zip(panels, titles):
            panel.set_title(title, loc="left", fontsize=11)
            panel.grid(alpha=0.25)
            panel.set_axisbelow(True)
    return figure, panels


def speed_and_memory(case: dict):
    """Bars: a step by its phases with the 20 % and 80 % quantiles of the whole, and the peak memory."""
    figure, (speed, memory) = _panels("Time of a training step, ms", "Peak memory, MiB")
    rows = case["rows"]
    titles, colours = [row["title"] for row in rows], [COLOURS[row["provider"]] for row in rows]
    start = [0.0] * len(rows)
    for phase, alpha in zip(PHASES, (1.0, 0.65, 0.35)):
        width = [row[f"{phase}_ms"]["median"] for row in rows]
        speed.barh(titles, width, left=start, color=colours, alpha=alpha)
        start = [a + b for a, b in zip(start, width)]
    for i, row in enumerate(rows):
        step = row["step_ms"]
        spread = [[max(start[i] - step["q20"], 0)], [max(step["q80"] - start[i], 0)]]
        speed.errorbar(start[i], i, xerr=spread, color="#111827", capsize=3, linewidth=1)
        right = max(step["q80"], start[i])
        speed.annotate(f"{step['median']:.0f}", (right, i), (6, 0), textcoords="offset points", va="center")
        peak = row["peak_bytes"] / MIB
        memory.annotate(f"{peak:.0f}", (peak, i), (6, 0), textcoords="offset points", va="center")
    memory.barh(titles, [row["peak_bytes"] / MIB for row in rows], color=colours)
    speed.set_xlabel("forward, backward and optimizer, from dark to light")
    for panel in (speed, memory):
        panel.invert_yaxis()
        panel.margins(x=0.15)
        panel.locator_params(axis="x", nbins=5)
        panel.grid(axis="y", visible=False)
    return figure


def losses(case: dict):
    """The curves, which should hide each other, and how far each lies from the first provider's."""
    first = case["rows"][0]
    figure, (curves, distance) = _panels("Loss, nats a token", f"Distance from {first['title']}, relative")
    steps = range(1, len(first["losses"]) + 1)
    for i, row in enumerate(case["rows"]):
        style = dict(color=COLOURS[row["provider"]], label=row["title"], linewidth=2)
        curves.plot(steps, row["losses"], linestyle=("-", "--", ":", "-.")[i], **style)
        if row is not first:
            apart = [abs(a - b) / b for a, b in zip(row["losses"], first["losses"])]
            distance.plot(steps, apart, marker=".", **style)
    distance.set_yscale("symlog", linthresh=1e-7)
    for panel in (curves, distance):
        panel.set_xlabel("step")
    curves.legend(frameon=False)
    return figure


FIGURES = {"Time and memory of a training step": speed_and_memory, "Loss curves": losses}
