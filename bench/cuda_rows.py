"""What peers_cuda.py prints of its rows, and how a row is judged."""
import math

PEERS = ["eager", "fused", "chunked", "trl", "compile", "liger", "quack", "fa4", "cudnn"]
COMPARED = ["python", *PEERS]  # python: Tigon from PyTorch
ROUNDS = 5  # rounds of all parties in turns. In one of them the differences of equal kernels have either sign, 15 times of 16
# Losses that make their gradient in forward; their backward only multiplies it by the upstream one.
MADE_IN_FORWARD = {("cross_entropy", "bwd", "liger"), ("fused_linear_cross_entropy", "bwd", "liger"),
                   ("fused_linear_cross_entropy", "bwd", "chunked"), ("fused_linear_cross_entropy", "bwd", "quack"), ("fused_linear_divergence", "bwd", "liger")}

HEAD = (f"{'operator':<20} {'mode':<4} {'dtype':<4} {'shape':<25} {'us':>8} {'floor':>5} {'copy':>5} {'host':>5}"
        + "".join(f" {name:>7}" for name in COMPARED))


def ratio(row, name):
    return row[name]["median_ms"] / row["tigon"]["median_ms"]


def short(op):
    return op.replace("cross_entropy", "ce").replace("fused_linear", "fl") if op.startswith("fused_linear") else op


def line(row):
    ours = row["tigon"]
    names = short(row["op"])
    text = (f"{names:<20} {row['mode']:<4} {row['dtype']:<4} {row['shape']:<25} {ours['median_ms'] * 1e3:>8.4g}"
            f" {100 * row['floor_ms'] / ours['median_ms']:>4.0f}%")
    text += f" {100 * row['copy_ms'] / ours['median_ms']:>4.0f}%" if row["copy_ms"] else f" {'-':>5}"
    text += f" {ours['host_us']:>5.3g}"
    for name in COMPARED:
        text += f" {ratio(row, name):>5.2f}x{'!' if row[name]['wrong_by'] else ' '}" if name in row else f" {'-':>7}"
    return text


def peers_in(row):
    """Those that do the row's work."""
    return [name for name in PEERS if name in row and (row["op"], row["mode"], name) not in MADE_IN_FORWARD]


def best_peer(row):
    """Name and ratio of the fastest peer; ("", nan) without one."""
    return min(((name, ratio(row, name)) for name in peers_in(row)), key=lambda pair: pair[1], default=("", math.nan))


def is_behind(row):
    """Is a peer faster in every round? Of equal kernels one is ahead in most rounds, seldom in all."""
    return any(row[name]["rounds_ahead"] == ROUNDS for name in peers_in(row))


def report(rows, copy, matmul, gpu):
    """A line a case."""
    print(f"\n{gpu}: copy {copy * 1e-12:.3g} TB/s, bf16 products {matmul['bf16'] * 1e-12:.3g} TFLOP/s")
    print("Tigon's device time in us; its share of the floor in %; the best peer's time over it (the first letters of its name).")
    cases = {}
    for row in rows:
        cases.setdefault((row["op"], row["dtype"], row["shape"]), []).append(row)
    for (op, dtype, shape), modes in cases.items():
        name = short(op)
        times = "/".join(f"{row['tigon']['median_ms'] * 1e3:.4g}" for row in modes)
        floors = "/".join(f"{100 * row['floor_ms'] / row['tigon']['median_ms']:.0f}" for row in modes)
        ratios = " ".join(f"{peer[:2].capitalize()}{times:.2f}" for peer, times in map(best_peer, modes))
        print(f"{name:<18} {dtype:<4} {shape:<25} {times:<22} {floors:<9} {ratios}")
    behind, slower = sum(map(is_behind, rows)), sum(best_peer(row)[1] < 0.95 for row in rows)
    print(f"{'/'.join(dict.fromkeys(row['mode'] for row in rows))}: {len(rows)} rows; in {behind} a peer is ahead in all of {ROUNDS} rounds, "
          f"in {slower} by more than 5 %")
