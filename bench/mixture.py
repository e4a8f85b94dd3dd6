#!/usr/bin/env python3
"""A training step of a small Qwen3-MoE on the CPU as transformers makes it, by torch.compile, and patched by Tigon: seconds and the process's
memory at its peak. Each party has processes of its own, which take turns; stock has transformers' own loop over experts (`eager`), and
its grouped product (`grouped_mm`)."""
import argparse
import os
import resource
import statistics
import subprocess
import sys
import time

PARTIES = "eager", "grouped_mm", "compile", "tigon", "experts"  # tigon: all of tigon.patch; experts: they alone


def child(party, dtype, tokens, hidden, inner, experts, choices, layers):
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.Qwen3MoeConfig(
        hidden_size=hidden, intermediate_size=4 * hidden, moe_intermediate_size=inner, num_experts=experts,
        num_experts_per_tok=choices, num_hidden_layers=layers, num_attention_heads=hidden // 64, head_dim=64,
        num_key_value_heads=hidden // 128, vocab_size=8192, max_position_embeddings=tokens)
    config._experts_implementation = "grouped_mm" if party == "grouped_mm" else "eager"
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype)).train()
    if party in ("tigon", "experts"):
        import tigon

        others = {} if party == "tigon" else dict.fromkeys(("embedding", "rms_norm", "mlp", "rope", "loss"), False)
        assert tigon.patch(model, **others).counts()["experts"] == layers
    run = torch.compile(model) if party == "compile" else model
    ids = torch.randint(8192, (1, tokens))

    def step(ids):
        loss = run(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        model.zero_grad(set_to_none=True)
        return loss.item()

    step(ids)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        loss = step(ids)
        times.append(time.perf_counter() - start)
    print(statistics.median(times), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, loss)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    sizes = dict(tokens=1024, hidden=512, inner=256, experts=32, choices=4, layers=2)
    for name, default in (sizes | dict(rounds=3)).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--party", nargs="+", choices=PARTIES, default=PARTIES)
    parser.add_argument("--dtype", nargs="+", choices=("float32", "bfloat16"), default=("float32", "bfloat16"))
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        return child(*given.child, *(getattr(given, name) for name in sizes))
    print("dtype     party       seconds  MiB   loss")
    for dtype in given.dtype:
        found = {party: [] for party in given.party}
        for _ in range(given.rounds):
            for party, rows in found.items():
                command = [sys.executable, *sys.argv, "--child", party, dtype]
                text = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ).stdout
                rows.append(tuple(map(float, text.split()[-3:])))
        for party, rows in found.items():
            seconds, mib, loss = (statistics.median(column) for column in zip(*rows))
            print(f"{dtype:<9} {party:<11} {seconds:7.3f} {mib:6.0f} {loss:7.4f}")


if __name__ == "__main__":
    main()
