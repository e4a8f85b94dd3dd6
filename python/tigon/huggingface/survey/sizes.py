"""The data of the survey: how a configuration becomes small, and what a single model type needs besides."""

import torch

# What a configuration's field becomes, by its value. A field that is None or 0 by default stays so. Factors of 1 and
# clamps beyond every value would hide a replacement that leaves them out.
_FIELDS = {
    0: """
        num_nextn_predict_layers num_kv_shared_layers
    """,
    0.5: """
        swiglu_limit
    """,
    0.75: """
        logits_scaling logit_scale embedding_multiplier residual_multiplier attention_multiplier
        lm_head_multiplier key_multiplier attention_out_multiplier attention_in_multiplier ssm_in_multiplier
        ssm_out_multiplier routed_scaling_factor
    """,
    1: """
        n_group topk_group num_expert_group n_groups mamba_n_groups mamba_ngroups n_shared_experts
        num_shared_experts moe_num_shared_experts first_k_dense_replace pretraining_tp num_codebooks
        num_res_blocks
    """,
    2: """
        num_hidden_layers n_layer n_layers num_layers layers encoder_layers decoder_layers num_decoder_layers
        num_encoder_layers depth num_layers_per_stack num_global_layers resampler_depth num_blocks
        conf_num_hidden_layers num_key_value_heads kv_n_heads num_kv_heads swa_num_key_value_heads
        linear_num_key_heads n_mamba_heads num_experts_per_tok moe_topk moe_top_k moe_k num_experts_per_token
        top_k_experts num_quantizers type_vocab_size
    """,
    3: """
        num_channels
    """,
    4: """
        num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads
        attention_heads num_encoder_attention_heads num_decoder_attention_heads swa_num_attention_heads
        linear_num_value_heads linear_num_heads mamba_n_heads mamba_num_heads index_n_heads
        conf_num_attention_heads num_sliding_attention_heads num_experts num_local_experts n_routed_experts
        moe_num_experts zero_expert_num time_step_rank mamba_dt_rank num_query_tokens resampler_n_latents
        resampler_n_heads latent_query_num
    """,
    8: """
        rotary_dim mamba_d_state state_size ssm_state_size mamba_chunk_size laurel_rank
        hidden_size_per_layer_input patch_size adapter_rank
    """,
    16: """
        head_dim dim_head d_head kv_channels linear_key_head_dim linear_value_head_dim linear_head_dim d_kv
        swa_head_dim v_head_dim attention_head_size index_head_dim global_head_dim resampler_head_dim
        resampler_dim_head query_pre_attn_scalar qk_nope_head_dim qk_rope_head_dim kv_lora_rank o_lora_rank
        sliding_window attention_window_size local_attention sliding_window_size attention_chunk_size index_topk
        router_hidden_size num_position_embeddings
    """,
    32: """
        qk_head_dim q_lora_rank mamba_d_head mamba_head_dim image_size base_channels
    """,
    48: """
        moe_intermediate_size shared_expert_intermediate_size shared_intermediate_size expert_ffn_hidden_size
        moe_shared_expert_intermediate_size share_expert_dim
    """,
    64: """
        hidden_size n_embd d_model embed_dim embedding_size emb_dim embedding_dim dim word_embed_proj_dim
        input_embedding_size output_embedding_size lru_width attention_hidden_size encoder_hidden_size
        cross_attention_hidden_size projection_dim out_hidden_size backbone_hidden_size backbone_embed_dim
        hidden_size_global output_proj_dims text_hidden_size image_text_hidden_size projector_hidden_size
        decoder_hidden_size output_dim projector_input_dim projector_output_dim vision_output_dim
        pronunciation_embed_dim shape_embed_dim input_size max_image_size
    """,
    96: """
        intermediate_size ffn_dim encoder_ffn_dim decoder_ffn_dim d_ff dim_ff dff d_inner n_inner
        ffn_hidden_size feed_forward_size intermediate_size_mlp mlp_dim dense_intermediate_size
        prefix_dense_intermediate_size
    """,
    256: """
        vocab_size vocab_size_per_layer_input decoder_vocab_size audio_vocab_size unpadded_vocab_size
        max_position_embeddings n_positions n_ctx max_seq_len model_max_length context_length
        max_source_positions max_target_positions
    """,
    500: """
        encoder_hash_byte_group_vocab
    """,
}
SIZES = {name: size for size, names in _FIELDS.items() for name in names.split()}

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
    "deepseek_v2": dict(num_experts_per_tok=2, first_k_dense_replace=1),
    "dots1": dict(first_k_dense_replace=1, n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2),
    "falcon_h1": dict(mamba_d_ssm=128, mlp_multipliers=[0.75, 1.25]),
    "glm4v": _SECTIONS,
    "glm5_next": dict(text_config=dict(num_key_value_heads=4)),
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
    aria aya_vision deepseek_vl glm4v glm5_next idefics2 idefics3 internvl kimi_k25 lfm2_vl llama4 llava
    llava_next llava_onevision minimax_m3_vl mistral3 mllama ovis2 paligemma qwen2_5_vl qwen2_vl qwen3_5 qwen3_vl
    qwen3_vl_moe smolvlm
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
