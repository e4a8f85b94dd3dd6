#include "pass.h"

/* The residual stream s goes through every layer; a branch's output is added to it by the norm of the next branch. */
void train_forward(train_pass *pass) {
  train_model *model = pass->model;
  const train_config *c = &model->config;
  train_ops *ops = &pass->ops;
  const tigon_tensor cosine = train_rope_cos(model), sine = train_rope_sin(model), none = {0};
  train_layer *layer = &pass->layers[0];

  train_op_embedding(ops, train_weight(model, train_embedding_index()), pass->tokens, layer->s_attention);
  train_op_norm(ops, layer->s_attention, train_weight(model, train_layer_index(0, TRAIN_INPUT_NORM)),
                layer->y_attention, layer->rstd_attention, c->rms_eps);

  for (int64_t l = 0; l < c->layers; ++l) {
    layer = &pass->layers[l];
    const bool last = l + 1 == c->layers;
    const train_qkv view = train_qkv_views(c, layer->qkv);
    const tigon_tensor gate = train_cols(layer->gate_up, 0, c->intermediate);
    const tigon_tensor up = train_cols(layer->gate_up, c->intermediate, c->intermediate);
    const int64_t next_norm = last ? train_final_norm_index(c) : train_layer_index(l + 1, TRAIN_INPUT_NORM);

    train_op_linear(ops, layer->y_attention, train_weight(model, train_layer_index(l, TRAIN_QKV)),
                    train_rows(layer->qkv));
    train_op_rope(ops, view.q, view.k, cosine, sine, none);
    train_op_attention(ops, view.q, view.k, view.v, layer->o, layer->lse);
    train_op_linear(ops, train_rows(layer->o), train_weight(model, train_layer_index(l, TRAIN_O)), pass->x);
    train_op_add_norm(ops, pass->x, layer->s_attention, train_weight(model, train_layer_index(l, TRAIN_POST_NORM)),
                      layer->s_mlp, layer->y_mlp, layer->rstd_mlp, c->rms_eps);

    train_op_linear(ops, layer->y_mlp, train_weight(model, train_layer_index(l, TRAIN_GATE_UP)), layer->gate_up);
    train_op_swiglu(ops, gate, up, pass->c);
    train_op_linear(ops, pass->c, train_weight(model, train_layer_index(l, TRAIN_DOWN)), pass->x);
    train_op_add_norm(ops, pass->x, layer->s_mlp, train_weight(model, next_norm),
                      last ? pass->s_final : layer[1].s_attention, last ? pass->y : layer[1].y_attention,
                      last ? pass->rstd_final : layer[1].rstd_attention, c->rms_eps);
  }
}
