#!/usr/bin/env python3
"""Draws README's plot from the records in bench/results: docs/speed-light.svg and docs/speed-dark.svg.
With --check it writes nothing, and fails where a plot of the tree is not what the records give. The page of documentation has
another plot, of one operator per line, which it draws when it is built."""
import argparse
import io
import re
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import PathPatch
from matplotlib.path import Path

import cuda_rows
import peers_cpu
import records

TITLES = {"eager": "PyTorch eager", "fused": "PyTorch fused", "compile": "torch.compile", "liger": "Liger-Kernel", "onednn": "oneDNN"}
ALSO = {"chunked": "fused", "trl": "eager"}  # peers with few cases, and the peer whose program they are a form of
MODES = {"fwd": "forward", "bwd": "backward", "full": "both", "step": "both"}
THEMES = {
    "light": {"ink": "#1f2328", "faint": "#d1d9e0", "behind": "#cf222e", "shade": "#cf222e",
              "eager": "#6e7781", "fused": "#1a7f37", "compile": "#0969da", "liger": "#8250df", "onednn": "#9a6700"},
    "dark": {"ink": "#e6edf3", "faint": "#3d444d", "behind": "#ff7b72", "shade": "#ff7b72",
             "eager": "#9198a1", "fused": "#3fb950", "compile": "#58a6ff", "liger": "#bc8cff", "onednn": "#d29922"},
}
STYLE = {"svg.fonttype": "path", "svg.hashsalt": "tigon", "path.simplify": False, "font.family": "DejaVu Sans", "axes.spines.top": False,
         "axes.spines.right": False, "axes.spines.left": False}
FASTEST, SLOWEST = 0.2, 30  # the axis; cases beyond it stand at its end


def machines():
    """(title, how a peer's ratio is read, its cases as [(row, {peer: its time over Tigon's})])"""
    def of(names, peers, ratio):
        return [(row, {ALSO.get(peer, peer): ratio(row, peer) for peer in peers(row)}) for row in records.cases(*names)]

    def day(*names):
        return " and ".join(sorted({records.read(records.RESULTS / f"{name}.csv")[0]["date"][:10] for name in names}))

    gpu, cpu = ("peers_cuda", "heads_cuda", "attention_cuda"), ("peers_cpu", "heads_cpu")
    yield f"NVIDIA H200, {day(*gpu)}", of(gpu, cuda_rows.peers_in, cuda_rows.ratio)
    yield (f"2 cores of a server CPU, {day(*cpu)}",
           of(cpu, lambda row: [peer for peer in peers_cpu.PEERS if peer in row], peers_cpu.ratio))


def swarm(values, width=0.36, step=0.09, bin_width=0.035):
    """A place across the line for each value: dots which lie close together show how many they are."""
    bins = np.floor(np.log10(values) / bin_width)
    most = max(np.sum(bins == one) for one in bins)
    nth = np.array([np.sum(bins[:i] == one) for i, one in enumerate(bins)])
    return (nth + 1) // 2 * np.where(nth % 2, 1, -1) * min(2 * width / most, step)


def dots(panel, x, y, colour, size):
    """One path for all dots, which keeps the file small: segments without a length, whose ends are round."""
    points = np.repeat(np.column_stack([x, y]), 2, axis=0)
    path = Path(points, [Path.MOVETO, Path.LINETO] * len(x))
    panel.add_patch(PathPatch(path, fill=False, edgecolor=colour, linewidth=size, capstyle="round"))


def axis(panel, theme):
    panel.set_xscale("log")
    panel.set_xlim(FASTEST * 0.9, SLOWEST * 1.12)
    ticks = [0.25, 0.5, 1, 2, 4, 8, 16]
    panel.set_xticks(ticks, [f"{tick:g}x" for tick in ticks])
    panel.minorticks_off()
    panel.tick_params(colors=theme["ink"], length=0)
    panel.spines["bottom"].set_color(theme["faint"])
    panel.grid(axis="x", color=theme["faint"], linewidth=0.8)
    panel.set_axisbelow(True)
    panel.axvspan(FASTEST * 0.5, 1, color=theme["shade"], alpha=0.10, linewidth=0)
    panel.axvline(1, color=theme["ink"], linewidth=1.5)


def summary(theme):
    """Each peer has a line, and each case a dot."""
    found = list(machines())
    heights = [len({peer for _, peers in of for peer in peers}) for _, of in found]
    figure, panels = plt.subplots(2, 1, figsize=(8.4, 7.2), sharex=True, layout="constrained", height_ratios=heights)
    for panel, (title, of) in zip(panels, found):
        peers = [peer for peer in TITLES if any(peer in of_case for _, of_case in of)]
        axis(panel, theme)
        for line, peer in enumerate(peers):
            values = sorted(times[peer] for _, times in of if peer in times)
            at = np.clip(values, FASTEST, SLOWEST)
            dots(panel, at, line + swarm(at), theme[peer], size=4)
            panel.plot([np.median(values)] * 2, [line - 0.42, line + 0.42], color=theme["ink"], linewidth=3, solid_capstyle="butt")
        panel.set_yticks(range(len(peers)), [TITLES[peer] for peer in peers], fontsize=15)
        panel.set_ylim(len(peers) - 0.45, -0.55)
        panel.set_title(title, loc="left", fontsize=15, fontweight="bold", color=theme["ink"])
        panel.tick_params(axis="x", labelsize=15)
    panels[-1].set_xlabel("time of the peer / time of Tigon", fontsize=15, color=theme["ink"])
    panels[0].text(FASTEST, 0, "peer\nfaster", fontsize=15, color=theme["behind"], va="center")
    return figure


def by_operator(theme):
    """Each operator has a line with its median and its range beside each peer, of all shapes and dtypes of the records."""
    found = list(machines())
    rows = [sorted({row["op"] for row, _ in of}) for _, of in found]
    figure, panels = plt.subplots(2, 1, figsize=(9, 0.36 * sum(map(len, rows)) + 2.4), layout="constrained",
                                  height_ratios=[len(ops) for ops in rows])
    for panel, (title, of), ops in zip(panels, found, rows):
        axis(panel, theme)
        drawn = {}
        for line, op in enumerate(ops):
            for place, peer in enumerate(TITLES):
                values = [times[peer] for row, times in of if row["op"] == op and peer in times]
                if values:
                    y = line + (place - 1.5) * 0.17
                    ends = np.clip([min(values), max(values)], FASTEST, SLOWEST)
                    panel.plot(ends, [y, y], color=theme[peer], linewidth=1.4, alpha=0.6)
                    drawn[peer] = panel.scatter(np.clip(np.median(values), FASTEST, SLOWEST), y, s=20, color=theme[peer])
        panel.set_yticks(range(len(ops)), ops, family="DejaVu Sans Mono")
        panel.set_ylim(len(ops) - 0.4, -0.6)
        panel.set_title(title, loc="left", fontweight="bold", color=theme["ink"])
        panel.legend(drawn.values(), [TITLES[peer] for peer in drawn], loc="lower right", labelcolor=theme["ink"], framealpha=0)
        panel.set_xlabel("time of the peer / time of Tigon: median and range over shapes, dtypes and modes", color=theme["ink"])
    return figure


def svg(draw, theme):
    with plt.rc_context(STYLE):
        figure = draw(THEMES[theme])
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        plt.close(figure)
    # A hundredth of a point is enough, and hides how a machine rounds.
    return re.sub(r'(?<= d=)"[^"]*"', lambda path: re.sub(r"-?\d+\.\d+", lambda number: f"{float(number[0]):.2f}", path[0]), text.getvalue())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="say which plots of the tree are old, and fail")
    check = parser.parse_args().check
    old = []
    for theme in THEMES:
        path, text = records.ROOT / f"docs/speed-{theme}.svg", svg(summary, theme)
        if not check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            old.append(str(path.relative_to(records.ROOT)))
    if old:
        print(f"{', '.join(old)}: not what the records give: bench/plot.py draws them")
    sys.exit(1 if old else 0)


if __name__ == "__main__":
    main()
