/* The cases that matrix products bound: their rows quote GFLOP/s, and no memory floor. */
#include "bench_views.h"

static tigon_tensor output(const bench_data *d, int i) {
  return tigon_tensor_2d(d->tensor[i], d->dtype, d->rows, d->other);
}
static tigon_tensor weight(const bench_data *d, int i, tigon_dtype dtype) {
  return tigon_tensor_2d(d->tensor[i], dtype, d->other, d->cols);
}

static tigon_linear_bwd_args linear_bwd(const bench_data *d) {
  return (tigon_linear_bwd_args){.dy = output(d, 2),
                                 .x = wide(d, 0),
                                 .w = weight(d, 1, d->dtype),
                                 .dx = wide(d, 3),
                                 .dw = weight(d, 4, TIGON_F32),
                                 .workspace = d->workspace,
                                 .workspace_bytes = d->workspace_bytes};
}

tigon_status bench_linear_prepare(bench_data *d) {
  const tigon_linear_bwd_args args = linear_bwd(d);
  const double product = 2.0 * (double)d->rows * (double)d->cols * (double)d->other;
  const double x = wide_bytes(d), y = (double)d->rows * (double)d->other * (double)element(d);
  const double w = (double)d->other * (double)d->cols * (double)element(d);
  set_flops(d, product, 2 * product);
  set_bytes(d, x + w + y, y + 2 * x + w + f32_bytes(d->other * d->cols));
  return tigon_linear_bwd_workspace(d->context, &args, &d->workspace_need);
}

tigon_status bench_linear_run(bench_data *d, bench_mode mode) {
  if (mode == BENCH_FWD) {
    const tigon_linear_fwd_args args = {.x = wide(d, 0), .w = weight(d, 1, d->dtype), .y = output(d, 2)};
    return tigon_linear_fwd(d->context, &args);
  }
  const tigon_linear_bwd_args args = linear_bwd(d);
  return tigon_linear_bwd(d->context, &args);
}

static tigon_fused_linear_cross_entropy_args head_args(const bench_data *d, bench_mode mode) {
  tigon_fused_linear_cross_entropy_args args = {.hidden = wide(d, 0),
                                                .weight = weight(d, 1, d->dtype),
                                                .labels = indices(d),
                                                .workspace = d->workspace,
                                                .workspace_bytes = d->workspace_bytes};
  if (mode != BENCH_BWD) args.out.loss = scalar(d, 1);
  if (mode != BENCH_FWD) {
    args.dhidden = wide(d, 2);
    args.dweight = weight(d, 3, TIGON_F32);
  }
  return args;
}

tigon_status bench_head_prepare(bench_data *d) {
  const tigon_fused_linear_cross_entropy_args args = head_args(d, BENCH_FULL);
  const double product = 2.0 * (double)d->rows * (double)d->cols * (double)d->other;
  const double table = (double)d->other * (double)d->cols * (double)element(d), labels = 8.0 * (double)d->rows;
  set_flops(d, product, 3 * product);
  d->flops[BENCH_FULL] = 3 * product; /* one call: the logits are made once */
  set_bytes(d, wide_bytes(d) + table + labels, 2 * wide_bytes(d) + table + f32_bytes(d->other * d->cols) + labels);
  d->bytes[BENCH_FULL] = d->bytes[BENCH_BWD];
  return tigon_fused_linear_cross_entropy_workspace(d->context, &args, NULL, &d->workspace_need);
}

tigon_status bench_head_run(bench_data *d, bench_mode mode) {
  const tigon_fused_linear_cross_entropy_args args = head_args(d, mode);
  return mode == BENCH_BWD ? tigon_fused_linear_cross_entropy_bwd(d->context, &args)
                           : tigon_fused_linear_cross_entropy_fwd(d->context, &args);
}

/* One causal sequence of `rows` tokens: q, o of cols = Hq * D columns, k and v of Hk * D. */
static tigon_tensor head_view(const bench_data *d, int i, bool key) {
  int64_t hq, hk, width;
  heads(d, 64, &hq, &hk, &width);
  return tigon_tensor_4d(d->tensor[i], d->dtype, 1, d->rows, key ? hk : hq, width);
}
static tigon_tensor attention_lse(const bench_data *d) {
  int64_t hq, hk, width;
  heads(d, 64, &hq, &hk, &width);
  return tigon_tensor_3d(d->row[0], TIGON_F32, 1, hq, d->rows);
}

static tigon_attention_bwd_args attention_bwd(const bench_data *d) {
  return (tigon_attention_bwd_args){.d_o = head_view(d, 4, false),
                                    .q = head_view(d, 0, false),
                                    .k = head_view(d, 1, true),
                                    .v = head_view(d, 2, true),
                                    .o = head_view(d, 3, false),
                                    .lse = attention_lse(d),
                                    .dq = head_view(d, 5, false),
                                    .dk = head_view(d, 6, true),
                                    .dv = head_view(d, 7, true),
                                    .causal = 1,
                                    .workspace = d->workspace,
                                    .workspace_bytes = d->workspace_bytes};
}

tigon_status bench_attention_prepare(bench_data *d) {
  const tigon_attention_bwd_args args = attention_bwd(d);
  const double products =
      2.0 * (double)d->rows * (double)d->rows * (double)d->cols; /* q k and p v, half of each seen */
  const double keys = wide_bytes(d) * (double)args.k.shape[2] / (double)args.q.shape[2];
  const double lse = f32_bytes(d->rows * args.q.shape[2]);
  set_flops(d, products, 2.5 * products);
  set_bytes(d, 2 * wide_bytes(d) + 2 * keys + lse, 4 * wide_bytes(d) + 4 * keys + lse);
  return tigon_attention_bwd_workspace(d->context, &args, &d->workspace_need);
}

tigon_status bench_attention_run(bench_data *d, bench_mode mode) {
  if (mode == BENCH_FWD) {
    const tigon_attention_fwd_args args = {.q = head_view(d, 0, false),
                                           .k = head_view(d, 1, true),
                                           .v = head_view(d, 2, true),
                                           .o = head_view(d, 3, false),
                                           .lse = attention_lse(d),
                                           .causal = 1};
    return tigon_attention_fwd(d->context, &args);
  }
  const tigon_attention_bwd_args args = attention_bwd(d);
  return tigon_attention_bwd(d->context, &args);
}
