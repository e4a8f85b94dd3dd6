/* Kernels made wrong on purpose: the slot changes the problem, in one way that a bug could, before the true kernel sees it.
 * The check must notice every one (`tigon check --mutants`). */
#include <stddef.h>

#include "check/check.h"

/* The variant's own slots, saved by apply(). One check runs at a time. */
static tigon_kernels real;

/* MUTANT(name, slot, change): a slot that runs the true kernel on the problem m after `change`. */
#define MUTANT(name, slot, change)                                                \
  static tigon_status name(tigon_queue *queue, const tigon_##slot##_problem *p) { \
    tigon_##slot##_problem m = *p;                                                \
    change;                                                                       \
    return real.slot.run(queue, &m);                                              \
  }                                                                               \
  static void apply_##name(tigon_kernels *kernels) {                              \
    real = *kernels;                                                              \
    kernels->slot.run = name;                                                     \
  }

static void drop_last_row(tigon_row_space *space) {
  if (space->inner != space->rows || space->rows < 2) return;
  space->inner = --space->rows;
}

/* On many threads, which then share a wide row, it ends before its last part. */
static int64_t without_last_part(const tigon_queue *queue, int64_t cols) {
  const int64_t part = 8192;
  return queue->threads == 8 && cols > part ? (cols - 1) / part * part : cols;
}

MUTANT(norm_drop_tail, rms_norm_fwd, m.cols -= m.cols > 1)
MUTANT(norm_skip_eps, rms_norm_fwd, m.eps = 0)
MUTANT(norm_wrong_casting, rms_norm_fwd, m.casting = TIGON_CASTING_GEMMA)
MUTANT(norm_lose_part, rms_norm_fwd, m.cols = without_last_part(queue, p->cols))
MUTANT(norm_bwd_lose_part, rms_norm_bwd, m.cols = without_last_part(queue, p->cols))
MUTANT(norm_lose_row, rms_norm_bwd, drop_last_row(&m.space))
MUTANT(norm_overwrite_dw, rms_norm_bwd, m.accumulate_dw = false)
MUTANT(norm_bwd_offset, rms_norm_bwd, m.w_offset = 0)
MUTANT(add_offset, fused_add_rms_norm_fwd, m.w_offset = 0)
MUTANT(add_no_residual, fused_add_rms_norm_fwd, m.residual = m.x)
MUTANT(add_forget_ds, fused_add_rms_norm_bwd, m.ds.data = NULL)
MUTANT(layer_drop_tail, layer_norm_fwd, m.cols -= m.cols > 1)
MUTANT(layer_skip_eps, layer_norm_fwd, m.eps = 0)
MUTANT(layer_no_bias, layer_norm_fwd, m.b = NULL)
MUTANT(layer_lose_row, layer_norm_bwd, drop_last_row(&m.space))
MUTANT(layer_overwrite, layer_norm_bwd, m.accumulate_dw = false)
MUTANT(layer_wrong_mean, layer_norm_bwd, m.mean = p->rstd)
MUTANT(group_lose_batch, group_norm_fwd, m.batch -= m.batch > 1)
MUTANT(group_lose_position, group_norm_fwd, m.run -= m.run > 1)
MUTANT(group_skip_eps, group_norm_fwd, m.eps = 0)
MUTANT(group_no_bias, group_norm_fwd, m.b = NULL)
MUTANT(group_bwd_overwrite, group_norm_bwd, m.accumulate = false)
MUTANT(group_bwd_no_weight, group_norm_bwd, m.w = NULL)
MUTANT(modulated_no_shift, modulated_rms_norm_fwd, m.shift.data = NULL)
MUTANT(modulated_first_scale, modulated_rms_norm_fwd, m.share = m.space.rows)
MUTANT(modulated_no_weight, modulated_rms_norm_bwd, m.w = NULL)
MUTANT(modulated_overwrite, modulated_rms_norm_bwd, m.accumulate_dscale = false)
MUTANT(modulated_first_gradient, modulated_rms_norm_bwd, m.scale.pitch[2] = 0)
MUTANT(swiglu_drop_tail, swiglu_fwd, m.cols -= m.cols > 1)
MUTANT(swiglu_no_clamp, swiglu_fwd, m.numbers.clamp = 0)
MUTANT(swiglu_no_mult, swiglu_fwd, m.numbers.gate_mult = 1)
MUTANT(swiglu_bwd_no_clamp, swiglu_bwd, m.numbers.clamp = 0)
MUTANT(swiglu_bwd_swap, swiglu_bwd, m.in[1] = p->in[2]; m.in[2] = p->in[1])
MUTANT(geglu_drop_tail, geglu_fwd, m.cols -= m.cols > 1)
MUTANT(geglu_approx, geglu_fwd, m.numbers.approx = TIGON_GELU_TANH)
MUTANT(geglu_bwd_approx, geglu_bwd, m.numbers.approx = TIGON_GELU_ERF)
MUTANT(geglu_bwd_swap, geglu_bwd, m.in[1] = p->in[2]; m.in[2] = p->in[1])
MUTANT(relu_drop_tail, relu_squared_fwd, m.cols -= m.cols > 1)
MUTANT(relu_bwd_swap, relu_squared_bwd, m.in[0] = p->in[1]; m.in[1] = p->in[0])
MUTANT(rope_layout, rope_fwd, m.layout = m.layout == TIGON_ROPE_HALF ? TIGON_ROPE_INTERLEAVED : TIGON_ROPE_HALF)
MUTANT(rope_positions, rope_fwd, m.positions = NULL)
MUTANT(rope_bwd_swap, rope_bwd, m.cos = p->sin; m.sin = p->cos)
MUTANT(embedding_lose_column, embedding_fwd, m.cols -= m.cols > 1)
MUTANT(embedding_no_padding, embedding_bwd, m.padding_idx = -1)
MUTANT(embedding_overwrite, embedding_bwd, m.accumulate = false)
MUTANT(softmax_lose_part, softmax_fwd, m.cols = without_last_part(queue, p->cols))
MUTANT(softmax_no_scale, softmax_fwd, m.scale = 1)
MUTANT(softmax_not_causal, softmax_fwd, m.causal = false)
MUTANT(softmax_no_mask, softmax_fwd, m.mask.data = NULL)
MUTANT(softmax_bwd_scale, softmax_bwd, m.scale = 1)
MUTANT(attention_not_causal, attention_fwd, m.causal = false)
MUTANT(attention_no_window, attention_fwd, m.window = 0)
MUTANT(attention_lose_key, attention_fwd, m.keys -= !m.causal && m.window == 0 && m.keys > 1)
MUTANT(attention_bwd_window, attention_bwd, m.window += m.window > 0)
MUTANT(attention_bwd_causal, attention_bwd, m.causal = false)
MUTANT(loss_no_smoothing, cross_entropy_fwd, m.label_smoothing = 0)
MUTANT(loss_no_z, cross_entropy_fwd, m.lse_square_scale = 0)
MUTANT(loss_no_ignore, cross_entropy_fwd, m.has_ignore_index = false)
MUTANT(loss_no_weight, cross_entropy_fwd, m.weight = NULL)
MUTANT(loss_no_softcap, cross_entropy_fwd, m.softcap = 0)
MUTANT(loss_drop_tail, cross_entropy_fwd, m.cols -= m.cols > 1)
MUTANT(loss_bwd_grad_scale, cross_entropy_bwd, m.grad_scale = 1)
MUTANT(loss_bwd_smoothing, cross_entropy_bwd, m.label_smoothing = 0)
MUTANT(linear_no_bias, linear_fwd, m.b = NULL)
MUTANT(linear_drop_k, linear_fwd, m.k -= m.k > 1)
MUTANT(linear_overwrite, linear_bwd, m.accumulate = false)
MUTANT(linear_no_db, linear_bwd, m.db = NULL)
MUTANT(adamw_correction, adamw_step, m.correction2 = 1)
MUTANT(adamw_no_clip, adamw_step, m.clip_factor = NULL)
MUTANT(adamw_lose_tensor, adamw_step, m.count -= m.count > 1)
MUTANT(clip_lose_tensor, adamw_clip, m.count -= m.count > 1)

static const check_mutant mutants[] = {
    {"rms_norm", "fwd", "drops the last column", apply_norm_drop_tail},
    {"rms_norm", "fwd", "skips eps", apply_norm_skip_eps},
    {"rms_norm", "fwd", "takes gemma's casting for llama's", apply_norm_wrong_casting},
    {"rms_norm", "fwd", "loses a part of a split row", apply_norm_lose_part},
    {"rms_norm", "bwd", "loses a part of a split row", apply_norm_bwd_lose_part},
    {"rms_norm", "bwd", "drops the last row", apply_norm_lose_row},
    {"rms_norm", "bwd", "overwrites dw instead of adding", apply_norm_overwrite_dw},
    {"rms_norm", "bwd", "forgets w_offset", apply_norm_bwd_offset},
    {"fused_add_rms_norm", "fwd", "forgets w_offset", apply_add_offset},
    {"fused_add_rms_norm", "fwd", "adds x instead of residual", apply_add_no_residual},
    {"fused_add_rms_norm", "bwd", "forgets ds", apply_add_forget_ds},
    {"layer_norm", "fwd", "drops the last column", apply_layer_drop_tail},
    {"layer_norm", "fwd", "skips eps", apply_layer_skip_eps},
    {"layer_norm", "fwd", "forgets b", apply_layer_no_bias},
    {"layer_norm", "bwd", "drops the last row", apply_layer_lose_row},
    {"layer_norm", "bwd", "overwrites dw and db instead of adding", apply_layer_overwrite},
    {"layer_norm", "bwd", "takes rstd for the mean", apply_layer_wrong_mean},
    {"group_norm", "fwd", "forgets the last batch", apply_group_lose_batch},
    {"group_norm", "fwd", "drops the last position", apply_group_lose_position},
    {"group_norm", "fwd", "skips eps", apply_group_skip_eps},
    {"group_norm", "fwd", "forgets the bias", apply_group_no_bias},
    {"group_norm", "bwd", "overwrites dw", apply_group_bwd_overwrite},
    {"group_norm", "bwd", "forgets the weight", apply_group_bwd_no_weight},
    {"modulated_rms_norm", "fwd", "forgets shift", apply_modulated_no_shift},
    {"modulated_rms_norm", "fwd", "takes the first scale for all rows", apply_modulated_first_scale},
    {"modulated_rms_norm", "bwd", "forgets w", apply_modulated_no_weight},
    {"modulated_rms_norm", "bwd", "overwrites dscale instead of adding", apply_modulated_overwrite},
    {"modulated_rms_norm", "bwd", "takes the first scale for all rows", apply_modulated_first_gradient},
    {"swiglu", "fwd", "drops the last column", apply_swiglu_drop_tail},
    {"swiglu", "fwd", "forgets the clamp", apply_swiglu_no_clamp},
    {"swiglu", "fwd", "forgets gate_mult", apply_swiglu_no_mult},
    {"swiglu", "bwd", "forgets the clamp", apply_swiglu_bwd_no_clamp},
    {"swiglu", "bwd", "swaps gate and up", apply_swiglu_bwd_swap},
    {"geglu", "fwd", "drops the last column", apply_geglu_drop_tail},
    {"geglu", "fwd", "takes tanh for erf", apply_geglu_approx},
    {"geglu", "bwd", "takes erf for tanh", apply_geglu_bwd_approx},
    {"geglu", "bwd", "swaps gate and up", apply_geglu_bwd_swap},
    {"relu_squared", "fwd", "drops the last column", apply_relu_drop_tail},
    {"relu_squared", "bwd", "swaps x and dy", apply_relu_bwd_swap},
    {"rope", "fwd", "takes the other layout", apply_rope_layout},
    {"rope", "fwd", "forgets the positions", apply_rope_positions},
    {"rope", "bwd", "swaps cos and sin", apply_rope_bwd_swap},
    {"embedding", "fwd", "drops the last column", apply_embedding_lose_column},
    {"embedding", "bwd", "gives padding a gradient", apply_embedding_no_padding},
    {"embedding", "bwd", "overwrites instead of adding", apply_embedding_overwrite},
    {"softmax", "fwd", "loses a part of a split row", apply_softmax_lose_part},
    {"softmax", "fwd", "forgets scale", apply_softmax_no_scale},
    {"softmax", "fwd", "forgets causal", apply_softmax_not_causal},
    {"softmax", "fwd", "forgets the mask", apply_softmax_no_mask},
    {"softmax", "bwd", "forgets scale", apply_softmax_bwd_scale},
    {"attention", "fwd", "forgets causal", apply_attention_not_causal},
    {"attention", "fwd", "forgets the window", apply_attention_no_window},
    {"attention", "fwd", "loses the last key", apply_attention_lose_key},
    {"attention", "bwd", "sees one key too many in a window", apply_attention_bwd_window},
    {"attention", "bwd", "forgets causal", apply_attention_bwd_causal},
    {"cross_entropy", "fwd", "forgets label smoothing", apply_loss_no_smoothing},
    {"cross_entropy", "fwd", "forgets z-loss", apply_loss_no_z},
    {"cross_entropy", "fwd", "counts ignored labels as wrong ones", apply_loss_no_ignore},
    {"cross_entropy", "fwd", "forgets class weights", apply_loss_no_weight},
    {"cross_entropy", "fwd", "forgets softcap", apply_loss_no_softcap},
    {"cross_entropy", "fwd", "drops the last column", apply_loss_drop_tail},
    {"cross_entropy", "bwd", "forgets grad_scale", apply_loss_bwd_grad_scale},
    {"cross_entropy", "bwd", "forgets label smoothing", apply_loss_bwd_smoothing},
    {"linear", "fwd", "forgets the bias", apply_linear_no_bias},
    {"linear", "fwd", "drops the last product", apply_linear_drop_k},
    {"linear", "bwd", "overwrites dw instead of adding", apply_linear_overwrite},
    {"linear", "bwd", "forgets db", apply_linear_no_db},
    {"adamw", "step", "forgets a bias correction", apply_adamw_correction},
    {"adamw", "step", "forgets the clip factor", apply_adamw_no_clip},
    {"adamw", "step", "loses the last tensor", apply_adamw_lose_tensor},
    {"adamw", "clip", "loses the last tensor", apply_clip_lose_tensor},
    {"fused_linear_cross_entropy", "fwd", "forgets label smoothing", apply_loss_no_smoothing},
    {"fused_linear_cross_entropy", "fwd", "overwrites dweight between chunks", apply_linear_overwrite},
};

const check_mutant *check_mutant_at(int index) {
  return index >= 0 && index < (int)(sizeof mutants / sizeof *mutants) ? &mutants[index] : NULL;
}
