#include "pass.h"

/* ds is the gradient of the residual stream, in place from the top to the bottom; the branches add to it. */

static void mlp(train_pass *pass, int64_t l, bool accumulate) {
  train_model *model = pass->model;
  const train_config *c = &model->config;
  train_ops *ops = &pass->ops;
  train_layer *layer = &pass->layers[l];
  const tigon_tensor ds = pass->x;
  const tigon_tensor gate = train_cols(layer->gate_up, 0, c->intermediate);
  const tigon_tensor up = train_cols(layer->gate_up, c->intermediate, c->intermediate);
  const int64_t norm = train_layer_index(l, TRAIN_POST_NORM), wide = train_layer_index(l, TRAIN_GATE_UP);
  const int64_t down = train_layer_index(l, TRAIN_DOWN);

  train_op_swiglu(ops, gate, up, pass->c);
  train_op_linear_dw(ops, ds, pass->c, train_gradient(model, down), accumulate);
  train_op_linear_dx(ops, ds, train_weight(model, down), pass->c);
  train_op_swiglu_bwd(ops, pass->c, gate, up);
  train_op_linear_dw(ops, layer->gate_up, layer->y_mlp, train_gradient(model, wide), accumulate);
  train_op_linear_dx(ops, layer->gate_up, train_weight(model, wide), pass->y);
  train_op_add_norm_bwd(ops, pass->y, ds, layer->s_mlp, train_weight(model, norm), layer->rstd_mlp, ds,
                        train_gradient(model, norm), accumulate);
}

static void attention(train_pass *pass, int64_t l, bool accumulate) {
  train_model *model = pass->model;
  const train_config *c = &model->config;
  train_ops *ops = &pass->ops;
  train_layer *layer = &pass->layers[l];
  const tigon_tensor ds = pass->x;
  const train_qkv view = train_qkv_views(c, layer->qkv), gradient = train_qkv_views(c, pass->dqkv);
  const int64_t norm = train_layer_index(l, TRAIN_INPUT_NORM), qkv = train_layer_index(l, TRAIN_QKV);
  const int64_t o = train_layer_index(l, TRAIN_O);

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
  train_op_add_norm_bwd(ops, pass->y, ds, layer->s_attention, train_weight(model, norm), layer->rstd_attention, ds,
                        train_gradient(model, norm), accumulate);
}

void train_backward(train_pass *pass, bool accumulate) {
  train_model *model = pass->model;
  const train_config *c = &model->config;
  const int64_t norm = train_final_norm_index(c);
  const tigon_tensor none = {0};

  train_op_add_norm_bwd(&pass->ops, pass->y, none, pass->s_final, train_weight(model, norm), pass->rstd_final, pass->x,
                        train_gradient(model, norm), accumulate);
  for (int64_t l = c->layers - 1; l >= 0; --l) {
    mlp(pass, l, accumulate);
    attention(pass, l, accumulate);
  }
  /* tied: the head has already written its part of the same gradient */
  train_op_embedding_bwd(&pass->ops, pass->x, pass->tokens, train_gradient(model, train_embedding_index()),
                         accumulate || c->tied);
}
