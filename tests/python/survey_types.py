"""The data of the survey: how a configuration becomes small, and what a single model type needs besides."""

import torch

# What a configuration's field becomes where it has one; a field that is None or a list by default stays as it is.
SIZES = dict.fromkeys("hidden_size n_embd d_model embed_dim embedding_size emb_dim embedding_dim dim".split(), 64)
SIZES |= dict.fromkeys(
    "word_embed_proj_dim input_embedding_size output_embedding_size lru_width attention_hidden_size "
    "encoder_hidden_size cross_attention_hidden_size projection_dim out_hidden_size backbone_hidden_size "
    "backbone_embed_dim hidden_size_global output_proj_dims text_hidden_size image_text_hidden_size "
    "projector_hidden_size decoder_hidden_size output_dim projector_input_dim projector_output_dim "
    "vision_output_dim pronunciation_embed_dim shape_embed_dim input_size".split(),
    64,
)
SIZES |= dict.fromkeys(
    "intermediate_size ffn_dim encoder_ffn_dim decoder_ffn_dim d_ff dim_ff dff d_inner n_inner ffn_hidden_size "
    "feed_forward_size intermediate_size_mlp mlp_dim dense_intermediate_size prefix_dense_intermediate_size".split(),
    96,
)
SIZES |= dict.fromkeys(
    "moe_intermediate_size shared_expert_intermediate_size shared_intermediate_size expert_ffn_hidden_size "
    "moe_shared_expert_intermediate_size share_expert_dim".split(),
    48,
)
SIZES |= dict.fromkeys(
    "num_hidden_layers n_layer n_layers num_layers layers encoder_layers decoder_layers num_decoder_layers "
    "num_encoder_layers depth num_layers_per_stack num_global_layers resampler_depth num_blocks "
    "conf_num_hidden_layers".split(),
    2,
)
SIZES |= dict.fromkeys(
    "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads attention_heads "
    "num_encoder_attention_heads num_decoder_attention_heads swa_num_attention_heads linear_num_value_heads "
    "linear_num_heads mamba_n_heads mamba_num_heads index_n_heads conf_num_attention_heads "
    "num_sliding_attention_heads".split(),
    4,
)
SIZES |= dict.fromkeys(
    "num_key_value_heads kv_n_heads num_kv_heads swa_num_key_value_heads linear_num_key_heads n_mamba_heads".split(), 2
)
SIZES |= dict.fromkeys(
    "head_dim dim_head d_head kv_channels linear_key_head_dim linear_value_head_dim linear_head_dim d_kv swa_head_dim "
    "v_head_dim attention_head_size index_head_dim global_head_dim resampler_head_dim resampler_dim_head "
    "query_pre_attn_scalar".split(),
    16,
)
SIZES |= dict.fromkeys("qk_nope_head_dim qk_rope_head_dim kv_lora_rank o_lora_rank".split(), 16)
SIZES |= dict(qk_head_dim=32, rotary_dim=8)
SIZES |= dict.fromkeys(
    "num_experts num_local_experts n_routed_experts moe_num_experts num_experts_routed zero_expert_num".split(), 4
)
SIZES |= dict.fromkeys("num_experts_per_tok moe_topk moe_top_k moe_k num_experts_per_token top_k_experts".split(), 2)
SIZES |= dict.fromkeys("n_group topk_group num_expert_group n_groups mamba_n_groups mamba_ngroups".split(), 1)
SIZES |= dict.fromkeys(
    "vocab_size vocab_size_per_layer_input decoder_vocab_size audio_vocab_size unpadded_vocab_size".split(), 256
)
SIZES |= dict.fromkeys(
    "max_position_embeddings n_positions n_ctx max_seq_len model_max_length context_length max_source_positions "
    "max_target_positions".split(),
    256,
)
SIZES |= dict.fromkeys("sliding_window attention_window_size local_attention sliding_window_size attention_chunk_size".split(), 16)
SIZES |= dict(
    q_lora_rank=32, n_shared_experts=1, num_shared_experts=1, moe_num_shared_experts=1, first_k_dense_replace=1,
    mamba_d_state=8, state_size=8, ssm_state_size=8, mamba_d_head=32, mamba_head_dim=32, mamba_chunk_size=8,
    time_step_rank=4, mamba_dt_rank=4, index_topk=16, laurel_rank=8, hidden_size_per_layer_input=8,
    num_nextn_predict_layers=0, num_kv_shared_layers=0, pretraining_tp=1, router_hidden_size=16,
    patch_size=8, image_size=32, num_position_embeddings=16, num_channels=3, num_query_tokens=4,
    resampler_n_latents=4, resampler_n_heads=4, latent_query_num=4, num_codebooks=1, num_quantizers=2,
    num_res_blocks=1, base_channels=32, type_vocab_size=2, adapter_rank=8, max_image_size=64, encoder_hash_byte_group_vocab=500,
)  # fmt: skip

# Besides, by model type; a dict reaches into the configuration's part of that name.
_NEEDS_HEAD_DIM = dict(head_dim=16)
_INDEXER = dict(
    indexer_n_heads=4, indexer_kv_heads=1, indexer_head_dim=16, indexer_budget=16, indexer_compress_ratio=4
)
_ROPE = dict(rope_type="default", rope_theta=10000.0)
_SECTIONS = dict(text_config=dict(rope_parameters=_ROPE | dict(mrope_section=[2, 3, 3])))
_MAMBA_AND_ATTENTION = dict(
    layers_block_type=["linear_attention", "hybrid"] * 2,
    num_hidden_layers=4,
    attention_hidden_size=128,
    attention_head_dim=32,
)
OVERRIDES = {
    "bamba": dict(attn_layer_indices=[1]),
    "cohere_compass_text": dict(
        layer_types=["sliding_attention", "full_attention"],
        rope_parameters=dict.fromkeys(
            ["sliding_attention", "full_attention"], _ROPE | dict(mrope_section=[4, 2, 2])
        ),
    ),
    "dbrx": dict(attn_config=dict(rope_theta=10000.0, clip_qkv=8.0)),
    "deepseek_v2": dict(num_experts_per_tok=2),
    "deepseek_v4": dict(swiglu_limit=0.5),
    "dots1": dict(first_k_dense_replace=1, n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2),
    "falcon_h1": dict(mamba_d_ssm=128, lm_head_multiplier=0.5),
    "glm4v": _SECTIONS,
    "granitemoehybrid": dict(layer_types=["mamba", "attention"], num_local_experts=4),
    "hrm_text": dict(num_layers_per_stack=None),
    "hunyuan_v1_dense": _NEEDS_HEAD_DIM,
    "hunyuan_v1_moe": _NEEDS_HEAD_DIM,
    "jamba": dict(num_hidden_layers=4, attn_layer_period=2, attn_layer_offset=1),
    "lfm2_moe": dict(layer_types=["conv", "full_attention", "conv"], num_hidden_layers=3),
    "mamba2": dict(head_dim=32, chunk_size=8),
    "ministral": _NEEDS_HEAD_DIM,
    "mpt": dict(attn_config=dict(attn_pdrop=0)),
    "nemotron": dict(num_key_value_heads=2),
    "qwen4_exp": _INDEXER,
    "qwen4_exp_text": _INDEXER,
    "qwen2_5_vl": _SECTIONS,
    "qwen2_vl": _SECTIONS,
    "recurrent_gemma": dict(num_hidden_layers=3),
    "reformer": dict(
        axial_pos_shape=[4, 8],
        axial_pos_embds_dim=[16, 48],
        local_attn_chunk_length=8,
        lsh_attn_chunk_length=8,
        num_buckets=4,
        hash_seed=0,
    ),
    "xlstm": dict(qk_dim_factor=1.0, chunk_size=8, mode="train"),
    "xmod": dict(default_language="en_XX"),
    "zamba": _MAMBA_AND_ATTENTION,
    "zamba2": _MAMBA_AND_ATTENTION | dict(mamba_headdim=32, n_mamba_heads=4, chunk_size=8),
    "zaya": dict(num_experts_per_tok=1),
}

# Multimodal types that run on text; those whose causal language model is the whole model are not here again.
MULTIMODAL = """
    aria aya_vision deepseek_vl glm4v idefics2 idefics3 internvl kimi_k25 lfm2_vl llama4 llava llava_next llava_onevision
    minimax_m3_vl mistral3 mllama ovis2 paligemma qwen2_5_vl qwen2_vl qwen3_5 qwen3_vl qwen3_vl_moe smolvlm
""".split()

# What a model type wants beside token ids, or in another shape.
INPUTS = {
    "git": dict(pixel_values=lambda inputs: torch.zeros(2, 3, 32, 32)),
    "musicgen": dict(labels=lambda inputs: inputs["labels"][..., None]),
    "musicgen_melody": dict(labels=lambda inputs: inputs["labels"][..., None]),
}

# Model types that are not built, and why.
NOT_BUILT = {
    "gemma3n": "its vision tower is the package timm's; gemma3n_text is built",
    "gemma4_assistant": "drafts for another model, whose hidden states and keys it wants",
    "gemma4_unified_assistant": "drafts for another model, whose hidden states and keys it wants",
}
