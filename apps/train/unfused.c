/* The model by separate operators: what --compare measures the fused pass against. Linear, rope, attention and embedding
 * are Tigon's in both; add, norm, silu, mul and the loss on the full logits are the loops of unfused_loops.h. */
#include <string.h>

#include "pass.h"
#include "unfused_loops.h"

static void loop(train_pass *pass, train_loop_kind kind, train_loop arguments) {
  if (!pass->ops.failed && !pass->ops.planning) train_loop_run(kind, &arguments, pass->model->dtype, pass->threads);
}

static train_matrix matrix(tigon_tensor t) { return (train_matrix){t.data, t.strides[0]}; }

/* y = f(a, b), row by row. */
static void each(train_pass *pass, train_loop_kind kind, tigon_tensor a, tigon_tensor b, tigon_tensor y) {
  loop(pass, kind,
       (train_loop){.rows = y.shape[0], .cols = y.shape[1], .a = matrix(a), .b = matrix(b), .y = matrix(y)});
}

static void norm(train_pass *pass, tigon_tensor x, int64_t weight, tigon_tensor y, tigon_tensor rstd) {
  const train_model *model = pass->model;
  loop(pass, TRAIN_LOOP_NORM,
       (train_loop){.rows = x.shape[0],
                    .cols = x.shape[1],
                    .a = matrix(x),
                    .y = matrix(y),
                    .w = train_weight(model, weight).data,
                    .rstd = rstd.data,
                    .eps = (float)model->config.rms_eps});
}

/* dx, and dw by slabs of rows that are summed in index order. */
static void norm_bwd(train_pass *pass, tigon_tensor dy, tigon_tensor x, int64_t weight, tigon_tensor rstd,
                     tigon_tensor dx, bool accumulate) {
  const int64_t cols = x.shape[1];
  float *slabs = pass->norm_slabs.data, *dw = train_gradient(pass->model, weight).data;
  loop(pass, TRAIN_LOOP_NORM_BWD,
       (train_loop){.rows = x.shape[0],
                    .cols = cols,
                    .a = matrix(dy),
                    .b = matrix(x),
                    .y = matrix(dx),
                    .w = train_weight(pass->model, weight).data,
                    .rstd = rstd.data,
                    .slabs = slabs,
                    .slab_count = TRAIN_SLABS});
  if (pass->ops.failed || pass->ops.planning) return;
  if (!accumulate) memset(dw, 0, (size_t)cols * sizeof *dw);
  for (int s = 0; s < TRAIN_SLABS; ++s)
    for (int64_t c = 0; c < cols; ++c) dw[c] += slabs[s * cols + c];
}

void train_forward_unfused(train_pass *pass) {
  train_model *model = pass->model;
  const train_config *c = &model->config;
  train_ops *ops = &pass->ops;
  const tigon_tensor cosine = train_rope_cos(model), sine = train_rope_sin(model), none = {0};

  train_op_embedding(ops, train_weight(model, train_embedding_index()), pass->tokens, pass->layers[0].s_attention);
  for (int64_t l = 0; l < c->layers; ++l) {
    train_layer *layer = &pass->layers[l];
    const train_qkv view = train_qkv_views(c, layer->qkv);
    const tigon_tensor gate = train_cols(layer->gate_up, 0, c->intermediate);
    const tigon_tensor up = train_cols(layer->gate_up, c->intermediate, c->intermediate);
    const tigon_tensor next = l + 1 < c->layers ? layer[1].s_attention : pass->s_final;

    norm(pass, layer->s_attention, train_layer_index(l, TRAIN_INPUT_NORM), layer->y_attention, layer->rstd_attention);
    train_op_linear(ops, layer->y_attention, train_weight(model, train_layer_index(l, TRAIN_QKV)),
                    train_rows(layer->qkv));
    train_op_rope(ops, view.q, view.k, cosine, sine, none);
    train_op_attention(ops, view.q, view.k, view.v, layer->o, layer->lse);
    train_op_linear(ops, train_rows(layer->o), train_weight(model, train_layer_index(l, TRAIN_O)), pass->x);
    each(pass, TRAIN_LOOP_ADD, pass->x, layer->s_attention, layer->s_mlp);

    norm(pass, layer->s_mlp, train_layer_index(l, TRAIN_POST_NORM), layer->y_mlp, layer->rstd_mlp);
    train_op_linear(ops, layer->y_mlp, train_weight(model, train_layer_index(l, TRAIN_GATE_UP)), layer->gate_up);
    each(pass, TRAIN_LOOP_SILU, gate, gate, layer->silu);
    each(pass, TRAIN_LOOP_MUL, layer->silu, up, layer->c);
    train_op_linear(ops, layer->c, train_weight(model, train_layer_index(l, TRAIN_DOWN)), pass->x);
    each(pass, TRAIN_LOOP_ADD, pass->x, layer->s_mlp, next);
  }
  norm(pass, pass->s_final, train_final_norm_index(c), pass->y, pass->rstd_final);
}

/* The sum of -log p(label) over the rows. */
static void sum_loss(train_pass *pass) {
  if (pass->ops.failed || pass->ops.planning) return;
  const float *log_probability = pass->log_probability.data;
  const int32_t *labels = pass->labels.data;
  double sum = 0;
  for (int64_t r = 0; r < pass->log_probability.shape[0]; ++r)
    sum -= (double)log_probability[r * pass->log_probability.shape[1] + labels[r]];
  *(float *)pass->loss.data = (float)sum;
}

void train_head_unfused(train_pass *pass, double grad_scale, bool accumulate) {
  train_model *model = pass->model;
  const int64_t head = train_head_index(&model->config), rows = pass->logits.shape[0], cols = pass->logits.shape[1];
  train_op_linear(&pass->ops, pass->y, train_weight(model, head), pass->logits);
  each(pass, TRAIN_LOOP_LOG_SOFTMAX, pass->logits, pass->logits, pass->log_probability);
  sum_loss(pass);
  loop(pass, TRAIN_LOOP_LOG_SOFTMAX_BWD,
       (train_loop){.rows = rows,
                    .cols = cols,
                    .a = matrix(pass->log_probability),
                    .y = matrix(pass->d_logits),
                    .labels = pass->labels.data,
                    .scale = (float)grad_scale});
  train_op_linear_dw(&pass->ops, pass->d_logits, pass->y, train_gradient(model, head), accumulate);
  train_op_linear_dx(&pass->ops, pass->d_logits, train_weight(model, head), pass->y);
}

static void mlp(train_pass *pass, int64_t l, bool accumulate) {
  train_model *model = pass->model;
  const int64_t width = model->config.intermediate;
  train_ops *ops = &pass->ops;
  train_layer *layer = &pass->layers[l];
  const tigon_tensor ds = pass->x;
  const tigon_tensor gate = train_cols(layer->gate_up, 0, width), up = train_cols(layer->gate_up, width, width);
  const tigon_tensor d_gate = train_cols(pass->d_gate_up, 0, width);
  const tigon_tensor d_up = train_cols(pass->d_gate_up, width, width);
  const int64_t wide = train_layer_index(l, TRAIN_GATE_UP), down = train_layer_index(l, TRAIN_DOWN);

  train_op_linear_dw(ops, ds, layer->c, train_gradient(model, down), accumulate);
  train_op_linear_dx(ops, ds, train_weight(model, down), pass->d_c);
  each(pass, TRAIN_LOOP_MUL, pass->d_c, up, pass->d_silu);
  each(pass, TRAIN_LOOP_MUL, pass->d_c, layer->silu, d_up);
  each(pass, TRAIN_LOOP_SILU_BWD, pass->d_silu, gate, d_gate);
  train_op_linear_dw(ops, pass->d_gate_up, layer->y_mlp, train_gradient(model, wide), accumulate);
  train_op_linear_dx(ops, pass->d_gate_up, train_weight(model, wide), pass->y);
  norm_bwd(pass, pass->y, layer->s_mlp, train_layer_index(l, TRAIN_POST_NORM), layer->rstd_mlp, pass->d_norm,
           accumulate);
  each(pass, TRAIN_LOOP_ADD, pass->d_norm, ds, ds);
}

static void attention(train_pass *pass, int64_t l, bool accumulate) {
  train_model *model = pass->model;
  const train_config *c = &model->config;
  train_ops *ops = &pass->ops;
  train_layer *layer = &pass->layers[l];
  const tigon_tensor ds = pass->x;
  const train_qkv view = train_qkv_views(c, layer->qkv), gradient = train_qkv_views(c, pass->dqkv);
  const int64_t qkv = train_layer_index(l, TRAIN_QKV), o = train_layer_index(l, TRAIN_O);

  train_op_linear_dw(ops, ds, train_rows(layer->o), train_gradient(model, o), accumulate);
  train_op_linear_dx(ops, ds, train_weight(model, o), train_rows(pass->d_o));
  train_op_attention_bwd(ops, &(tigon_attention_bwd_args){.d_o = pass->d_o,
                                                          .q = view.q,
                                                          .k = view.k,
                                                          .v = view.v,
                                                          .o = layer->o,
                                                          .lse = layer->lse,
                                                          .dq = gradient.q,
                                                          .dk = gradient.k,
                                                          .dv = gradient.v});
  train_op_rope_bwd(ops, gradient.q, gradient.k, train_rope_cos(model), train_rope_sin(model));
  train_op_linear_dw(ops, train_rows(pass->dqkv), layer->y_attention, train_gradient(model, qkv), accumulate);
  train_op_linear_dx(ops, train_rows(pass->dqkv), train_weight(model, qkv), pass->y);
  norm_bwd(pass, pass->y, layer->s_attention, train_layer_index(l, TRAIN_INPUT_NORM), layer->rstd_attention,
           pass->d_norm, accumulate);
  each(pass, TRAIN_LOOP_ADD, pass->d_norm, ds, ds);
}

void train_backward_unfused(train_pass *pass, bool accumulate) {
  train_model *model = pass->model;
  const train_config *c = &model->config;
  norm_bwd(pass, pass->y, pass->s_final, train_final_norm_index(c), pass->rstd_final, pass->x, accumulate);
  for (int64_t l = c->layers - 1; l >= 0; --l) {
    mlp(pass, l, accumulate);
    attention(pass, l, accumulate);
  }
  train_op_embedding_bwd(&pass->ops, pass->x, pass->tokens, train_gradient(model, train_embedding_index()),
                         accumulate || c->tied);
}
