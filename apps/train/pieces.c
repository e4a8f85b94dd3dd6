#include "pieces.h"

#include <inttypes.h>
#include <stdio.h>

typedef struct list {
  const train_model *model;
  train_piece *next;
} list;

/* Rows [first, first + rows) of tensor `index`; rows 0: the whole vector. */
static void add(list *l, int64_t layer, const char *name, int64_t index, int64_t first, int64_t rows) {
  const train_tensor *tensor = &l->model->tensors[index];
  train_piece *piece = l->next++;
  *piece = (train_piece){.rows = rows, .cols = tensor->cols, .offset = tensor->offset + first * tensor->cols};
  if (layer < 0)
    snprintf(piece->name, sizeof piece->name, "%s.weight", name);
  else
    snprintf(piece->name, sizeof piece->name, "model.layers.%" PRId64 ".%s.weight", layer, name);
}

int64_t train_piece_count(const train_config *config) { return 2 + 9 * config->layers + (config->tied ? 0 : 1); }

void train_pieces(const train_model *model, train_piece *pieces) {
  const train_config *c = &model->config;
  const int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
  list l = {model, pieces};
  add(&l, -1, "model.embed_tokens", train_embedding_index(), 0, c->vocab);
  for (int64_t i = 0; i < c->layers; ++i) {
    const int64_t qkv = train_layer_index(i, TRAIN_QKV), wide = train_layer_index(i, TRAIN_GATE_UP);
    add(&l, i, "input_layernorm", train_layer_index(i, TRAIN_INPUT_NORM), 0, 0);
    add(&l, i, "self_attn.q_proj", qkv, 0, q);
    add(&l, i, "self_attn.k_proj", qkv, q, kv);
    add(&l, i, "self_attn.v_proj", qkv, q + kv, kv);
    add(&l, i, "self_attn.o_proj", train_layer_index(i, TRAIN_O), 0, c->hidden);
    add(&l, i, "post_attention_layernorm", train_layer_index(i, TRAIN_POST_NORM), 0, 0);
    add(&l, i, "mlp.gate_proj", wide, 0, c->intermediate);
    add(&l, i, "mlp.up_proj", wide, c->intermediate, c->intermediate);
    add(&l, i, "mlp.down_proj", train_layer_index(i, TRAIN_DOWN), 0, c->hidden);
  }
  add(&l, -1, "model.norm", train_final_norm_index(c), 0, 0);
  if (!c->tied) add(&l, -1, "lm_head", train_head_index(c), 0, c->vocab);
}
