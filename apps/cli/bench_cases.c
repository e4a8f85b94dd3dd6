/* One case an operator: how many bytes it must move (or operations it must do), and how it is called. */
#include <stdlib.h>
#include <string.h>

#include "bench_views.h"

/* ---- norms ---- */

static tigon_rms_norm_bwd_args rms_norm_bwd(const bench_data *d) {
  return (tigon_rms_norm_bwd_args){.dy = wide(d, 2),
                                   .x = wide(d, 0),
                                   .w = column(d, 0),
                                   .rstd = row(d, 0),
                                   .dx = wide(d, 3),
                                   .dw = column(d, 1),
                                   .workspace = d->workspace,
                                   .workspace_bytes = d->workspace_bytes};
}

static tigon_status rms_norm_prepare(bench_data *d) {
  const tigon_rms_norm_bwd_args args = rms_norm_bwd(d);
  set_bytes(d, 2 * wide_bytes(d) + f32_bytes(d->cols + d->rows), 3 * wide_bytes(d) + f32_bytes(2 * d->cols + d->rows));
  return tigon_rms_norm_bwd_workspace(d->context, &args, &d->workspace_need);
}

static tigon_status rms_norm_run(bench_data *d, bench_mode mode) {
  if (mode == BENCH_FWD) {
    const tigon_rms_norm_fwd_args args = {
        .x = wide(d, 0), .w = column(d, 0), .y = wide(d, 1), .rstd = row(d, 0), .eps = 1e-6};
    return tigon_rms_norm_fwd(d->context, &args);
  }
  const tigon_rms_norm_bwd_args args = rms_norm_bwd(d);
  return tigon_rms_norm_bwd(d->context, &args);
}

static tigon_fused_add_rms_norm_bwd_args fused_add_bwd(const bench_data *d) {
  return (tigon_fused_add_rms_norm_bwd_args){.dy = wide(d, 3),
                                             .ds = wide(d, 1),
                                             .s = wide(d, 2),
                                             .w = column(d, 0),
                                             .rstd = row(d, 0),
                                             .dx = wide(d, 4),
                                             .dw = column(d, 1),
                                             .workspace = d->workspace,
                                             .workspace_bytes = d->workspace_bytes};
}

static tigon_status fused_add_prepare(bench_data *d) {
  const tigon_fused_add_rms_norm_bwd_args args = fused_add_bwd(d);
  set_bytes(d, 4 * wide_bytes(d) + f32_bytes(d->cols + d->rows), 4 * wide_bytes(d) + f32_bytes(2 * d->cols + d->rows));
  return tigon_fused_add_rms_norm_bwd_workspace(d->context, &args, &d->workspace_need);
}

static tigon_status fused_add_run(bench_data *d, bench_mode mode) {
  if (mode == BENCH_FWD) {
    const tigon_fused_add_rms_norm_fwd_args args = {.x = wide(d, 0),
                                                    .residual = wide(d, 1),
                                                    .w = column(d, 0),
                                                    .s = wide(d, 2),
                                                    .y = wide(d, 3),
                                                    .rstd = row(d, 0),
                                                    .eps = 1e-6};
    return tigon_fused_add_rms_norm_fwd(d->context, &args);
  }
  const tigon_fused_add_rms_norm_bwd_args args = fused_add_bwd(d);
  return tigon_fused_add_rms_norm_bwd(d->context, &args);
}

static tigon_layer_norm_bwd_args layer_norm_bwd(const bench_data *d) {
  return (tigon_layer_norm_bwd_args){.dy = wide(d, 2),
                                     .x = wide(d, 0),
                                     .w = column(d, 0),
                                     .mean = row(d, 0),
                                     .rstd = row(d, 1),
                                     .dx = wide(d, 3),
                                     .dw = column(d, 1),
                                     .db = column(d, 2),
                                     .workspace = d->workspace,
                                     .workspace_bytes = d->workspace_bytes};
}

static tigon_status layer_norm_prepare(bench_data *d) {
  const tigon_layer_norm_bwd_args args = layer_norm_bwd(d);
  set_bytes(d, 2 * wide_bytes(d) + f32_bytes(2 * (d->cols + d->rows)),
            3 * wide_bytes(d) + f32_bytes(3 * d->cols + 2 * d->rows));
  return tigon_layer_norm_bwd_workspace(d->context, &args, &d->workspace_need);
}

static tigon_status layer_norm_run(bench_data *d, bench_mode mode) {
  if (mode == BENCH_FWD) {
    const tigon_layer_norm_fwd_args args = {.x = wide(d, 0),
                                            .w = column(d, 0),
                                            .b = column(d, 1),
                                            .y = wide(d, 1),
                                            .mean = row(d, 0),
                                            .rstd = row(d, 1),
                                            .eps = 1e-5};
    return tigon_layer_norm_fwd(d->context, &args);
  }
  const tigon_layer_norm_bwd_args args = layer_norm_bwd(d);
  return tigon_layer_norm_bwd(d->context, &args);
}

/* Channels of a batch, 512 where the columns allow it, in groups of 16 of them. */
static int64_t channels(const bench_data *d) { return d->cols % 512 == 0 ? 512 : d->cols % 32 == 0 ? 32 : 1; }
static int64_t groups(const bench_data *d) { return channels(d) == 512 ? 32 : 1; }
static tigon_tensor images(const bench_data *d, int i) {
  return tigon_tensor_3d(d->tensor[i], d->dtype, d->rows, channels(d), d->cols / channels(d));
}
static tigon_tensor channel(const bench_data *d, int i) {
  return tigon_tensor_1d(d->column[i], TIGON_F32, channels(d));
}
static tigon_tensor statistic(const bench_data *d, int i) {
  return tigon_tensor_2d(d->row[i], TIGON_F32, d->rows, groups(d));
}

static tigon_group_norm_bwd_args group_norm_bwd(const bench_data *d) {
  return (tigon_group_norm_bwd_args){.dy = images(d, 2),
                                     .x = images(d, 0),
                                     .w = channel(d, 0),
                                     .mean = statistic(d, 0),
                                     .rstd = statistic(d, 1),
                                     .dx = images(d, 3),
                                     .dw = channel(d, 1),
                                     .db = channel(d, 2),
                                     .groups = groups(d),
                                     .workspace = d->workspace,
                                     .workspace_bytes = d->workspace_bytes};
}

static tigon_status group_norm_prepare(bench_data *d) {
  const tigon_group_norm_bwd_args args = group_norm_bwd(d);
  const int64_t statistics = 2 * d->rows * groups(d);
  set_bytes(d, 2 * wide_bytes(d) + f32_bytes(2 * channels(d) + statistics),
            3 * wide_bytes(d) + f32_bytes(3 * channels(d) + statistics));
  return tigon_group_norm_bwd_workspace(d->context, &args, &d->workspace_need);
}

static tigon_status group_norm_run(bench_data *d, bench_mode mode) {
  if (mode == BENCH_FWD) {
    const tigon_group_norm_fwd_args args = {.x = images(d, 0),
                                            .w = channel(d, 0),
                                            .b = channel(d, 1),
                                            .y = images(d, 1),
                                            .mean = statistic(d, 0),
                                            .rstd = statistic(d, 1),
                                            .groups = groups(d),
                                            .eps = 1e-5};
    return tigon_group_norm_fwd(d->context, &args);
  }
  const tigon_group_norm_bwd_args args = group_norm_bwd(d);
  return tigon_group_norm_bwd(d->context, &args);
}

/* scale, shift and their gradients are [batch, cols] with a batch of 8 where that divides. */
static tigon_tensor modulation(const bench_data *d, int i) {
  return tigon_tensor_2d(d->tensor[i], d->dtype, d->rows % 8 == 0 ? 8 : 1, d->cols);
}

static tigon_modulated_rms_norm_bwd_args modulated_bwd(const bench_data *d) {
  return (tigon_modulated_rms_norm_bwd_args){.dy = wide(d, 2),
                                             .x = wide(d, 0),
                                             .w = column(d, 0),
                                             .scale = modulation(d, 4),
                                             .rstd = row(d, 0),
                                             .dx = wide(d, 3),
                                             .dw = column(d, 1),
                                             .dscale = modulation(d, 6),
                                             .dshift = modulation(d, 7),
                                             .workspace = d->workspace,
                                             .workspace_bytes = d->workspace_bytes};
}

static tigon_status modulated_prepare(bench_data *d) {
  const tigon_modulated_rms_norm_bwd_args args = modulated_bwd(d);
  const double modulation_bytes = (double)args.scale.shape[0] * (double)d->cols * (double)element(d);
  set_bytes(d, 2 * wide_bytes(d) + 2 * modulation_bytes + f32_bytes(d->cols + d->rows),
            3 * wide_bytes(d) + 3 * modulation_bytes + f32_bytes(2 * d->cols + d->rows));
  return tigon_modulated_rms_norm_bwd_workspace(d->context, &args, &d->workspace_need);
}

static tigon_status modulated_run(bench_data *d, bench_mode mode) {
  if (mode == BENCH_FWD) {
    const tigon_modulated_rms_norm_fwd_args args = {.x = wide(d, 0),
                                                    .w = column(d, 0),
                                                    .scale = modulation(d, 4),
                                                    .shift = modulation(d, 5),
                                                    .y = wide(d, 1),
                                                    .rstd = row(d, 0),
                                                    .eps = 1e-6};
    return tigon_modulated_rms_norm_fwd(d->context, &args);
  }
  const tigon_modulated_rms_norm_bwd_args args = modulated_bwd(d);
  return tigon_modulated_rms_norm_bwd(d->context, &args);
}

/* ---- elementwise and rows ---- */

static tigon_status gate_prepare(bench_data *d) {
  set_bytes(d, 3 * wide_bytes(d), 5 * wide_bytes(d));
  return TIGON_OK;
}

static tigon_status swiglu_run(bench_data *d, bench_mode mode) {
  if (mode == BENCH_FWD) {
    const tigon_swiglu_fwd_args args = {.a = wide(d, 0), .b = wide(d, 1), .c = wide(d, 2)};
    return tigon_swiglu_fwd(d->context, &args);
  }
  const tigon_swiglu_bwd_args args = {
      .dc = wide(d, 2), .a = wide(d, 0), .b = wide(d, 1), .da = wide(d, 3), .db = wide(d, 4)};
  return tigon_swiglu_bwd(d->context, &args);
}

static tigon_status geglu_run(bench_data *d, bench_mode mode) {
  if (mode == BENCH_FWD) {
    const tigon_geglu_fwd_args args = {.a = wide(d, 0), .b = wide(d, 1), .c = wide(d, 2)};
    return tigon_geglu_fwd(d->context, &args);
  }
  const tigon_geglu_bwd_args args = {
      .dc = wide(d, 2), .a = wide(d, 0), .b = wide(d, 1), .da = wide(d, 3), .db = wide(d, 4)};
  return tigon_geglu_bwd(d->context, &args);
}

static tigon_status row_prepare(bench_data *d) {
  set_bytes(d, 2 * wide_bytes(d), 3 * wide_bytes(d));
  return TIGON_OK;
}

static tigon_status relu_squared_run(bench_data *d, bench_mode mode) {
  if (mode == BENCH_FWD) {
    const tigon_relu_squared_fwd_args args = {.x = wide(d, 0), .y = wide(d, 1)};
    return tigon_relu_squared_fwd(d->context, &args);
  }
  const tigon_relu_squared_bwd_args args = {.dy = wide(d, 2), .x = wide(d, 0), .dx = wide(d, 3)};
  return tigon_relu_squared_bwd(d->context, &args);
}

static tigon_status softmax_run(bench_data *d, bench_mode mode) {
  if (mode == BENCH_FWD) {
    const tigon_softmax_fwd_args args = {.x = wide(d, 0), .y = wide(d, 1)};
    return tigon_softmax_fwd(d->context, &args);
  }
  const tigon_softmax_bwd_args args = {.dy = wide(d, 2), .y = wide(d, 1), .dx = wide(d, 3)};
  return tigon_softmax_bwd(d->context, &args);
}

/* rows = batch * T with a batch of 4 where that divides; the angles lie in one f32 table [T, D / 2]. */
static tigon_rope_args rope_args(const bench_data *d) {
  const int64_t batch = d->rows % 4 == 0 ? 4 : 1, steps = d->rows / batch;
  int64_t hq, hk, width;
  heads(d, 128, &hq, &hk, &width);
  return (tigon_rope_args){
      .q = tigon_tensor_4d(d->tensor[0], d->dtype, batch, steps, hq, width),
      .k = tigon_tensor_4d(d->tensor[1], d->dtype, batch, steps, hk, width),
      .cos = tigon_tensor_2d(d->tensor[4], TIGON_F32, steps, width / 2),
      .sin = tigon_tensor_2d(d->tensor[5], TIGON_F32, steps, width / 2),
      .q_out = tigon_tensor_4d(d->tensor[2], d->dtype, batch, steps, hq, width),
      .k_out = tigon_tensor_4d(d->tensor[3], d->dtype, batch, steps, hk, width),
  };
}

static tigon_status rope_prepare(bench_data *d) {
  const tigon_rope_args args = rope_args(d);
  const double k_part = (double)args.k.shape[2] / (double)args.q.shape[2];
  const double bytes = 2 * wide_bytes(d) * (1 + k_part) + f32_bytes(args.cos.shape[0] * args.cos.shape[1] * 2);
  set_bytes(d, bytes, bytes);
  return TIGON_OK;
}

static tigon_status rope_run(bench_data *d, bench_mode mode) {
  const tigon_rope_args args = rope_args(d);
  return mode == BENCH_FWD ? tigon_rope_fwd(d->context, &args) : tigon_rope_bwd(d->context, &args);
}

/* The table has as many rows as there are tokens, so that it fits a buffer; tokens repeat as they fall. */
static tigon_embedding_bwd_args embedding_bwd(const bench_data *d) {
  return (tigon_embedding_bwd_args){.dy = wide(d, 1),
                                    .idx = indices(d),
                                    .dtable = tigon_tensor_2d(d->tensor[2], d->dtype, d->other, d->cols),
                                    .workspace = d->workspace,
                                    .workspace_bytes = d->workspace_bytes};
}

static tigon_status embedding_prepare(bench_data *d) {
  const tigon_embedding_bwd_args args = embedding_bwd(d);
  const double table = (double)d->other * (double)d->cols * (double)element(d), labels = 8.0 * (double)d->rows;
  set_bytes(d, 2 * wide_bytes(d) + labels, wide_bytes(d) + table + labels);
  return tigon_embedding_bwd_workspace(d->context, &args, &d->workspace_need);
}

static tigon_status embedding_run(bench_data *d, bench_mode mode) {
  if (mode == BENCH_FWD) {
    const tigon_embedding_fwd_args args = {
        .table = tigon_tensor_2d(d->tensor[0], d->dtype, d->other, d->cols), .idx = indices(d), .y = wide(d, 1)};
    return tigon_embedding_fwd(d->context, &args);
  }
  const tigon_embedding_bwd_args args = embedding_bwd(d);
  return tigon_embedding_bwd(d->context, &args);
}

/* ---- losses ---- */

static tigon_cross_entropy_fwd_args cross_entropy_fwd(const bench_data *d, bool with_gradient) {
  tigon_cross_entropy_fwd_args args = {.logits = wide(d, 0),
                                       .labels = indices(d),
                                       .out = {.loss = scalar(d, 1), .lse = row(d, 0)},
                                       .workspace = d->workspace,
                                       .workspace_bytes = d->workspace_bytes};
  if (with_gradient) args.dlogits = wide(d, 1);
  return args;
}

static tigon_cross_entropy_bwd_args cross_entropy_bwd(const bench_data *d) {
  return (tigon_cross_entropy_bwd_args){.logits = wide(d, 0),
                                        .labels = indices(d),
                                        .lse = row(d, 0),
                                        .dlogits = wide(d, 1),
                                        .workspace = d->workspace,
                                        .workspace_bytes = d->workspace_bytes};
}

static tigon_status cross_entropy_prepare(bench_data *d) {
  const tigon_cross_entropy_fwd_args fwd = cross_entropy_fwd(d, true);
  const tigon_cross_entropy_bwd_args bwd = cross_entropy_bwd(d);
  const double labels = 8.0 * (double)d->rows;
  size_t need = 0;
  set_bytes(d, wide_bytes(d) + labels, 2 * wide_bytes(d) + labels);
  d->bytes[BENCH_FULL] = 2 * wide_bytes(d) + labels; /* one call gives loss and gradient */
  d->reads_only[BENCH_FWD] = true;
  const tigon_status status = tigon_cross_entropy_fwd_workspace(d->context, &fwd, &d->workspace_need);
  if (status != TIGON_OK) return status;
  const tigon_status second = tigon_cross_entropy_bwd_workspace(d->context, &bwd, &need);
  if (need > d->workspace_need) d->workspace_need = need;
  return second;
}

static tigon_status cross_entropy_run(bench_data *d, bench_mode mode) {
  if (mode == BENCH_BWD) {
    const tigon_cross_entropy_bwd_args args = cross_entropy_bwd(d);
    return tigon_cross_entropy_bwd(d->context, &args);
  }
  const tigon_cross_entropy_fwd_args args = cross_entropy_fwd(d, mode == BENCH_FULL);
  return tigon_cross_entropy_fwd(d->context, &args);
}

/* ---- optimiser ---- */

static tigon_adamw_clip_args clip_args(const bench_data *d, const tigon_tensor *gradient) {
  return (tigon_adamw_clip_args){.grads = gradient,
                                 .count = 1,
                                 .max_norm = 1,
                                 .norm = scalar(d, 0),
                                 .factor = scalar(d, 1),
                                 .workspace = d->workspace,
                                 .workspace_bytes = d->workspace_bytes};
}

/* Parameter and gradient in the dtype, the two moments in f32; no master copy. */
static tigon_status adamw_prepare(bench_data *d) {
  const tigon_tensor gradient = wide(d, 1);
  const tigon_adamw_clip_args args = clip_args(d, &gradient);
  d->bytes[BENCH_STEP] = 3 * wide_bytes(d) + 4 * f32_bytes(d->rows * d->cols);
  d->bytes[BENCH_CLIP] = wide_bytes(d);
  d->reads_only[BENCH_CLIP] = true;
  const tigon_status status = tigon_fill(d->context, d->tensor[3], 0, (size_t)f32_bytes(d->rows * d->cols));
  return status == TIGON_OK ? tigon_adamw_clip_workspace(d->context, &args, &d->workspace_need) : status;
}

static tigon_status adamw_run(bench_data *d, bench_mode mode) {
  const tigon_tensor gradient = wide(d, 1);
  if (mode == BENCH_CLIP) {
    const tigon_adamw_clip_args args = clip_args(d, &gradient);
    return tigon_adamw_clip(d->context, &args);
  }
  const tigon_adamw_param param = {.param = wide(d, 0),
                                   .grad = gradient,
                                   .exp_avg = tigon_tensor_2d(d->tensor[2], TIGON_F32, d->rows, d->cols),
                                   .exp_avg_sq = tigon_tensor_2d(d->tensor[3], TIGON_F32, d->rows, d->cols),
                                   .weight_decay = 0.1};
  const tigon_adamw_step_args args = {
      .params = &param, .count = 1, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .step = 1};
  return tigon_adamw_step(d->context, &args);
}

/* ---- the table ---- */

static const bench_case cases[] = {
    {"rms_norm", "", 4096, 8192, 4096, 0, 4, 0, rms_norm_prepare, rms_norm_run},
    {"fused_add_rms_norm", "", 4096, 8192, 4096, 0, 5, 0, fused_add_prepare, fused_add_run},
    {"layer_norm", "", 4096, 8192, 4096, 0, 4, 0, layer_norm_prepare, layer_norm_run},
    {"group_norm", "batch x (512 channels * positions), 32 groups", 64, 128, 262144, 0, 4, 0, group_norm_prepare,
     group_norm_run},
    {"swiglu", "", 1536, 3072, 11008, 0, 5, 0, gate_prepare, swiglu_run},
    {"geglu", "tanh", 1536, 3072, 11008, 0, 5, 0, gate_prepare, geglu_run},
    {"relu_squared", "", 4096, 8192, 4096, 0, 4, 0, row_prepare, relu_squared_run},
    {"modulated_rms_norm", "8 scales and shifts", 4096, 8192, 4096, 0, 8, 0, modulated_prepare, modulated_run},
    {"rope", "tokens x (heads * 128)", 4096, 8192, 4096, 0, 6, 0, rope_prepare, rope_run},
    {"embedding", "tokens x hidden, as many words", 4096, 8192, 4096, BENCH_AS_ROWS, 3, 0, embedding_prepare,
     embedding_run},
    {"softmax", "", 4096, 8192, 4096, 0, 4, 0, row_prepare, softmax_run},
    {"attention", "tokens x (heads * 64), causal", 512, 512, 1024, 0, 8, 0, bench_attention_prepare,
     bench_attention_run},
    {"cross_entropy", "tokens x vocabulary", 1024, 2048, 32000, 0, 2, BENCH_FULL_IN_ONE, cross_entropy_prepare,
     cross_entropy_run},
    {"linear", "rows x K, N = K", 512, 512, 2048, BENCH_AS_COLS, 5, BENCH_F32_INSIDE, bench_linear_prepare,
     bench_linear_run},
    {"adamw", "", 4096, 8192, 4096, 0, 4, BENCH_F32_INSIDE, adamw_prepare, adamw_run},
    {"fused_linear_cross_entropy", "tokens x hidden, 16000 words", 256, 256, 1024, 16000, 4,
     BENCH_FULL_IN_ONE | BENCH_F32_INSIDE, bench_head_prepare, bench_head_run},
};

const bench_case *bench_case_find(const char *op) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i)
    if (strcmp(cases[i].op, op) == 0) return &cases[i];
  return NULL;
}

tigon_status bench_call(const bench_case *chosen, bench_data *data, bench_mode mode) {
  if (mode != BENCH_FULL || chosen->flags & BENCH_FULL_IN_ONE) return chosen->run(data, mode);
  const tigon_status status = chosen->run(data, BENCH_FWD);
  return status == TIGON_OK ? chosen->run(data, BENCH_BWD) : status;
}

const char *bench_mode_name(bench_mode mode) {
  static const char *const names[BENCH_MODES] = {"fwd", "bwd", "full", "step", "clip"};
  return names[mode];
}
