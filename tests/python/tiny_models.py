"""Tiny models of each family with random weights, and what tigon.patch is to find in two of their layers."""

import torch
import transformers

COMMON = dict(
    vocab_size=131,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)
_EXPERTS = dict(num_experts_per_tok=2, output_router_logits=True)

# name: (configuration, its own arguments, what is replaced)
FAMILIES = {
    "Llama": ("LlamaConfig", {}, dict(rms_norm=5, mlp=2, rope=2, embedding=1, loss=1)),
    "Mistral": ("MistralConfig", dict(sliding_window=16), dict(rms_norm=5, mlp=2, rope=2, embedding=1, loss=1)),
    "Qwen2": ("Qwen2Config", dict(tie_word_embeddings=True), dict(rms_norm=5, mlp=2, rope=2, embedding=1, loss=1)),
    "Qwen3": ("Qwen3Config", dict(head_dim=16), dict(rms_norm=9, mlp=2, rope=2, embedding=1, loss=1)),
    "Gemma2": (
        "Gemma2Config",
        dict(head_dim=16, sliding_window=16, final_logit_softcapping=5.0, attn_implementation="eager"),
        dict(rms_norm=9, mlp=2, rope=2, embedding=1, loss=1),
    ),
    "Gemma3": (
        "Gemma3TextConfig",
        dict(head_dim=16, sliding_window=16),
        dict(rms_norm=13, mlp=2, rope=2, embedding=1, loss=1),
    ),
    "Phi3": ("Phi3Config", dict(partial_rotary_factor=0.5), dict(rms_norm=5, mlp=2, rope=2, embedding=1, loss=1)),
    "OLMo2": ("Olmo2Config", {}, dict(rms_norm=9, mlp=2, rope=2, embedding=1, loss=1)),
    "Granite": ("GraniteConfig", dict(logits_scaling=4.0), dict(rms_norm=5, mlp=2, rope=2, embedding=1, loss=1)),
    "Mixtral": (
        "MixtralConfig",
        _EXPERTS | dict(num_local_experts=4),
        dict(rms_norm=5, experts=2, rope=2, embedding=1, loss=1),
    ),
    "Qwen3-MoE": (
        "Qwen3MoeConfig",
        _EXPERTS | dict(num_experts=4, moe_intermediate_size=48, head_dim=16),
        dict(rms_norm=9, experts=2, rope=2, embedding=1, loss=1),
    ),
    "gpt-oss": (
        "GptOssConfig",
        _EXPERTS | dict(num_local_experts=4, head_dim=16, sliding_window=16, attn_implementation="eager"),
        dict(rms_norm=5, experts=2, rope=2, embedding=1, loss=1),
    ),
    "DeepSeek-V3": (
        "DeepseekV3Config",
        _EXPERTS
        | dict(n_routed_experts=4, n_shared_experts=1, n_group=1, topk_group=1, first_k_dense_replace=1)
        | dict(moe_intermediate_size=48, num_key_value_heads=4, q_lora_rank=32, kv_lora_rank=16)
        | dict(qk_rope_head_dim=8, qk_nope_head_dim=16, v_head_dim=16),
        dict(rms_norm=9, mlp=2, experts=1, embedding=1, loss=1),
    ),
    "Cohere": ("CohereConfig", {}, dict(layer_norm=3, mlp=2, rope=2, embedding=1, loss=1)),
    "GLM4": ("Glm4Config", dict(head_dim=16), dict(rms_norm=9, mlp=2, rope=2, embedding=1, loss=1)),
    "Nemotron": ("NemotronConfig", dict(head_dim=16), dict(layer_norm=5, mlp=2, rope=2, embedding=1, loss=1)),
    "StableLM": ("StableLmConfig", {}, dict(layer_norm=5, mlp=2, rope=2, embedding=1, loss=1)),
}


def config(family, **changes):
    name, own, _ = FAMILIES[family]
    return getattr(transformers, name)(**COMMON | own | changes)


def model(family, dtype=torch.float32, **changes):
    """The same weights each time; every parameter is random, norms and biases too. In bf16 a token goes to all experts,
    as one rounding would send it to another expert."""
    torch.manual_seed(0)
    if dtype == torch.bfloat16 and FAMILIES[family][1].keys() >= _EXPERTS.keys():
        changes["num_experts_per_tok"] = 4
    made = transformers.AutoModelForCausalLM.from_config(config(family, **changes), dtype=dtype)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return made.train()


def batch(rows=2, tokens=24, vocab=131):
    """(ids, labels): some labels are ignored, at the start, in the middle and, in one row, at the end."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, vocab, (rows, tokens), generator=generator)
    labels = ids.clone()
    labels[:, :3] = labels[0, 10:13] = labels[-1, -2:] = -100
    return ids, labels
