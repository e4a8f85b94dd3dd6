"""The sizes that peers_cuda.py times: a table's, those of models, and few rows."""
import peers_cpu

ROWS = 8192
REFERENCED = peers_cpu.referenced()
LLAMA_8B, QWEN_7B, QWEN_72B = ((4096, 14336, 128256, 32, 8), (3584, 18944, 152064, 28, 4), (8192, 29568, 152064, 64, 8))


def size(rows, cols, other=0, kv_heads=0, head_dim=0, dtype="bf16", as_weight=0, frozen=False, experts=0, choices=0):
    """as_weight: dweight has the weight's dtype, as the peers', where Tigon has it in f32 otherwise. frozen: the weight gets no
    gradient; Tigon is called from PyTorch, which finds that."""
    return {"rows": rows, "cols": cols, "other": other, "head_dim": head_dim, "kv_heads": kv_heads, "dtype": dtype,
            "as_weight": as_weight, "frozen": frozen, "experts": experts, "choices": choices}


def extents(one, rows, cols):
    """What a record's row calls a size."""
    found = "x".join(str(n) for n in (rows, cols, one["other"]) if n)
    found += f" {one['choices']} of {one['experts']}" * bool(one["experts"])
    return found + f" dw {one['dtype']}" * one["as_weight"] + " frozen" * one["frozen"]


def model_size(op, model, rows):
    """None: no size of a model has this operator."""
    hidden, intermediate, vocabulary, heads, kv_heads = model
    if op in ("rms_norm", "fused_add_rms_norm", "layer_norm", "modulated_rms_norm"):
        return size(rows, hidden)
    if op in ("swiglu", "geglu", "relu_squared"):
        return size(rows, intermediate)
    if op in ("rope", "attention"):
        return size(min(rows, 4096) if op == "attention" else rows, heads * 128, 0, kv_heads, 128)
    if op in ("cross_entropy", "divergence", "topk_divergence"):
        return size(rows, vocabulary)
    if op == "fused_linear_preference" and rows % 2:  # it has pairs
        return None
    if op in ("embedding", "linear_logprob", "linear_logprob+cache") or op.startswith("fused_linear_"):
        return size(rows, hidden, vocabulary)
    if op == "linear":
        return size(rows, hidden, intermediate)
    return size(rows, hidden) if op in REFERENCED else None


TABLE = {
    "rms_norm": [size(ROWS, cols) for cols in (1024, 4096, 8192, 16384, 32768)],
    "fused_add_rms_norm": [size(ROWS, 4096), size(ROWS, 16384), size(2048, 512, dtype="f32"), size(2048, 2048, dtype="f32")],
    "layer_norm": [size(ROWS, 4096), size(ROWS, 32768)],
    "group_norm": [size(128, 512 * 512)],
    "modulated_rms_norm": [size(ROWS, 4096)],
    "swiglu": [size(ROWS, 14336)],
    "geglu": [size(ROWS, 14336)],
    "relu_squared": [size(ROWS, 14336)],
    "rope": [size(ROWS, 4096, 0, 8, 128)],
    "softmax": [size(ROWS, 32768)],
    "cross_entropy": [size(ROWS, 32000), size(ROWS, 128256)],
    "divergence": [size(2048, 128256)],
    "divergence+kl": [size(2048, 128256)],
    "topk_divergence": [size(2048, 128256)],
    "embedding": [size(ROWS, 4096, 128256)],
    "linear_logprob": [size(ROWS, 4096, 128256), size(ROWS, 4096, 128256, frozen=True)],
    "linear_logprob+cache": [size(ROWS, 4096, 128256)],
    "policy_loss": [size(64, 1024, dtype="f32"), size(512, 4096, dtype="f32")],
    "preference_loss": [size(512, 1, dtype="f32")],
    "linear": [size(ROWS, 4096, 14336), size(ROWS, 4096, 14336, as_weight=1), size(ROWS, 4096, 14336, dtype="f32")],
    "attention": [size(4096, 4096, 0, 8, 128)],
    "adamw": [size(ROWS, 4096, dtype="f32")],
    "fused_linear_cross_entropy": [size(ROWS, 4096, 128256), size(ROWS, 4096, 128256, as_weight=1)],
    "fused_linear_policy": [size(ROWS, 4096, 128256)],
    "fused_linear_preference": [size(ROWS, 4096, 128256)],
    "fused_linear_divergence": [size(ROWS, 4096, 128256)],
    "fused_moe": [size(ROWS, 2048, 768, experts=128, choices=8)],  # Qwen3-30B-A3B's
}
for _op in REFERENCED:
    TABLE.setdefault(_op, [size(ROWS, 4096)])
HAVE_DWEIGHT = ("linear", "fused_linear_cross_entropy")
QUICK = {"rms_norm": 1, "fused_add_rms_norm": 0, "cross_entropy": 1}  # which of the table's sizes; else the first


def sizes(options):
    """(operator, size, whether torch.compile takes part), the table's first, then models', then few rows."""
    ops = options.op or list(TABLE)
    if options.shape:
        return [(op, {**TABLE[op][0], "rows": options.shape[0], "cols": options.shape[1]}, True) for op in ops]
    if options.quick:
        return [(op, TABLE[op][QUICK.get(op, 0)], True) for op in ops]
    chosen = [(op, one, True) for op in ops for one in TABLE[op]]
    parts = [(model, ROWS, True) for model in (LLAMA_8B, QWEN_7B, QWEN_72B)]
    parts += [(LLAMA_8B, rows, options.compile_all) for rows in (1, 16, 256, 2048)]
    for model, rows, compiles in parts:
        for op in ops:
            one = model_size(op, model, rows)
            if not one:
                continue
            for each in [one, {**one, "as_weight": 1}] if op in HAVE_DWEIGHT else [one]:
                if all(each != other for name, other, _ in chosen if name == op):
                    chosen.append((op, each, compiles))
    return chosen
