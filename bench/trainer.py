#!/usr/bin/env python3
"""`tigon train` beside the same Llama in transformers, under torch.compile with autocast and fused AdamW: tokens a second and memory at its
peak. Both read the same random tokens, each in processes of its own, which take turns. The defaults are a model of 124 million parameters."""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WARM = 5  # steps that are not counted
PARTIES = "tigon", "transformers", "compile"


def tigon(o, data):
    with tempfile.TemporaryDirectory() as out:
        command = [o.tigon, "train", "--device", o.device, "--dtype", o.dtype, "--data", data, "--vocab", str(o.vocab),
                   "--layers", str(o.layers), "--hidden", str(o.hidden), "--intermediate", str(o.intermediate),
                   "--heads", str(o.heads), "--kv-heads", str(o.heads), "--seq", str(o.seq), "--batch", str(o.batch), "--tie",
                   "--steps", str(o.steps), "--log-every", "1", "--eval-every", "0", "--checkpoint-every", "0", "--sample", "0",
                   "--json", "--out", os.path.join(out, "run")]
        lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    steps = [json.loads(line) for line in lines if '"step":' in line]
    return statistics.median(s["tokens_per_s"] for s in steps[WARM:]), steps[-1]["peak_bytes"] / 2**20, steps[-1]["loss"]


def torch_child(party, o, data):
    """Prints tokens a second, MiB and the last loss."""
    import array
    import time

    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=o.vocab, hidden_size=o.hidden, intermediate_size=o.intermediate, num_hidden_layers=o.layers,
        num_attention_heads=o.heads, num_key_value_heads=o.heads, max_position_embeddings=o.seq, tie_word_embeddings=True)
    gpu = o.device.startswith("cuda")
    model = transformers.LlamaForCausalLM(config).to(o.device).train()
    run = torch.compile(model) if party == "compile" else model
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=gpu)
    with open(data, "rb") as file:
        tokens = torch.tensor(array.array("H", file.read()), dtype=torch.long)
    times = []
    for step in range(o.steps):
        places = torch.randint(len(tokens) - o.seq, (o.batch,))
        ids = torch.stack([tokens[p:p + o.seq] for p in places]).to(o.device)
        start = time.perf_counter()
        with torch.autocast(o.device.split(":")[0], getattr(torch, {"bf16": "bfloat16", "f16": "float16"}.get(o.dtype, "float32")),
                            enabled=o.dtype != "f32"):
            loss = run(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        last = loss.item()
        times.append(time.perf_counter() - start)
    peak = torch.cuda.max_memory_allocated() / 2**20 if gpu else float("nan")
    print(o.batch * o.seq / statistics.median(times[WARM:]), peak, last)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("layers", 12), ("hidden", 768), ("intermediate", 2048), ("heads", 12), ("vocab", 50304), ("seq", 1024),
                        ("batch", 16), ("steps", 25), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=value, metavar="N", help=f"default: {value}")
    parser.add_argument("--device", default="cuda", help="default: cuda")
    parser.add_argument("--dtype", default="bf16", choices=["f32", "bf16", "f16"], help="default: bf16")
    parser.add_argument("--tigon", default=os.path.join(ROOT, "build", "tigon"), metavar="FILE", help="default: build/tigon")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.child:
        return torch_child(*o.child[:1], o, o.child[1])
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, "tokens.bin")
        draw = random.Random(1)
        with open(data, "wb") as file:
            file.write(b"".join(min(int(draw.paretovariate(0.3)), o.vocab - 1).to_bytes(2, "little") for _ in range(1 << 20)))
        found = {party: [] for party in PARTIES}
        for _ in range(o.rounds):
            for party in PARTIES:
                if party == "tigon":
                    found[party].append(tigon(o, data))
                else:
                    words = [sys.executable, *sys.argv, "--child", party, data]
                    made = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
                    found[party].append(tuple(map(float, made[-3:])))
    print(f"{'':14} tokens/s   tigon's   peak MiB   tigon's   loss at the end")
    speed, memory = (statistics.median(run[i] for run in found["tigon"]) for i in (0, 1))
    for party, runs in found.items():
        s, m = (statistics.median(run[i] for run in runs) for i in (0, 1))
        print(f"{party:14} {s:8.0f} {speed / s:8.2f}x {m:10.0f} {memory / m:8.2f}x   {runs[-1][2]:.3f}")


if __name__ == "__main__":
    main()
