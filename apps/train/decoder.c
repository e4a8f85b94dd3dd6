#include "decoder.h"

#include <stdlib.h>

#include "pass.h"

static size_t lay_out(train_decoder *d, void *base) {
  const train_config *c = &d->model->config;
  const tigon_dtype dtype = d->model->dtype;
  train_arena arena = {.base = base};
  d->tokens = train_arena_take(&arena, TIGON_I32, d->rows, 0, 0, 0);
  d->labels = train_arena_take(&arena, TIGON_I32, d->rows, 0, 0, 0);
  d->loss = train_arena_take(&arena, TIGON_F32, 1, 0, 0, 0);
  d->numbers = train_arena_take(&arena, TIGON_I32, d->positions, 0, 0, 0);
  d->s = train_arena_take(&arena, dtype, d->rows, c->hidden, 0, 0);
  d->x = train_arena_take(&arena, dtype, d->rows, c->hidden, 0, 0);
  d->y = train_arena_take(&arena, dtype, d->rows, c->hidden, 0, 0);
  d->q = train_arena_take(&arena, dtype, 1, d->rows, c->heads, c->head_dim);
  d->o = train_arena_take(&arena, dtype, 1, d->rows, c->heads, c->head_dim);
  d->gate_up = train_arena_take(&arena, dtype, d->rows, 2 * c->intermediate, 0, 0);
  d->c = train_arena_take(&arena, dtype, d->rows, c->intermediate, 0, 0);
  d->logits = train_arena_take(&arena, TIGON_F32, 1, c->vocab, 0, 0);
  d->keys = train_arena_take(&arena, dtype, c->layers, d->positions, c->kv_heads, c->head_dim);
  d->values = train_arena_take(&arena, dtype, c->layers, d->positions, c->kv_heads, c->head_dim);
  return arena.used;
}

static bool fill_numbers(train_decoder *d, train_error *error) {
  const size_t bytes = (size_t)d->positions * sizeof(int32_t);
  int32_t *numbers = malloc(bytes);
  if (!numbers) return train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for the positions");
  for (int64_t i = 0; i < d->positions; ++i) numbers[i] = (int32_t)i;
  const bool good = train_ok(d->ops.context, tigon_copy(d->ops.context, d->numbers.data, numbers, bytes), error);
  free(numbers);
  return good;
}

static void head(train_decoder *d, int64_t count) {
  train_op_head(&d->ops, train_slice(d->y, 0, count), train_weight(d->model, train_head_index(&d->model->config)),
                train_slice(d->labels, 0, count), d->loss);
}

bool train_decoder_create(train_memory *memory, train_model *model, int64_t positions, int64_t rows, train_decoder *d,
                          train_error *error) {
  *d = (train_decoder){.model = model, .positions = positions, .rows = rows};
  d->ops = (train_ops){.context = memory->context, .error = error, .planning = true, .head_grant = 1 << 22};
  const size_t bytes = lay_out(d, NULL);
  head(d, rows);
  const bool made = train_ops_ready(&d->ops, memory, error) &&
                    train_device_alloc(memory, bytes, "the keys, values and activations", &d->arena, error);
  if (made) lay_out(d, d->arena.data);
  if (made && fill_numbers(d, error)) return true;
  train_decoder_destroy(memory, d);
  return false;
}

void train_decoder_destroy(train_memory *memory, train_decoder *d) {
  train_device_free(memory, &d->ops.workspace);
  train_device_free(memory, &d->arena);
  *d = (train_decoder){0};
}

/* Positions [first, first + count) of one layer's keys or values, as [1, count, kv_heads, head_dim]. */
static tigon_tensor cached(tigon_tensor cache, int64_t layer, int64_t first, int64_t count) {
  const int64_t row = cache.shape[2] * cache.shape[3];
  char *data = (char *)cache.data + (size_t)((layer * cache.shape[1] + first) * row) * tigon_dtype_size(cache.dtype);
  return tigon_tensor_4d(data, cache.dtype, 1, count, cache.shape[2], cache.shape[3]);
}

/* The first `count` of the rows of [1, rows, heads, head_dim]. */
static tigon_tensor heads_of(tigon_tensor t, int64_t count) {
  return tigon_tensor_4d(t.data, t.dtype, 1, count, t.shape[2], t.shape[3]);
}

static void layer_forward(train_decoder *d, int64_t l, int64_t n, int64_t first) {
  train_model *model = d->model;
  const train_config *c = &model->config;
  train_ops *ops = &d->ops;
  const int64_t q_width = c->heads * c->head_dim, kv_width = c->kv_heads * c->head_dim;
  const tigon_tensor qkv = train_weight(model, train_layer_index(l, TRAIN_QKV)), none = {0};
  const tigon_tensor s = train_slice(d->s, 0, n), x = train_slice(d->x, 0, n), y = train_slice(d->y, 0, n);
  const tigon_tensor q = heads_of(d->q, n), o = heads_of(d->o, n);
  const tigon_tensor key = cached(d->keys, l, first, n), value = cached(d->values, l, first, n);
  const tigon_tensor gate_up = train_slice(d->gate_up, 0, n), product = train_slice(d->c, 0, n);
  const int64_t next = l + 1 < c->layers ? train_layer_index(l + 1, TRAIN_INPUT_NORM) : train_final_norm_index(c);
  const tigon_tensor places = tigon_tensor_2d((int32_t *)d->numbers.data + first, TIGON_I32, 1, n);

  train_op_linear(ops, y, train_slice(qkv, 0, q_width), train_rows(q));
  train_op_linear(ops, y, train_slice(qkv, q_width, kv_width), train_rows(key));
  train_op_linear(ops, y, train_slice(qkv, q_width + kv_width, kv_width), train_rows(value));
  train_op_rope(ops, q, key, train_rope_cos(model), train_rope_sin(model), places);
  train_op_attention(ops, q, cached(d->keys, l, 0, first + n), cached(d->values, l, 0, first + n), o, none);
  train_op_linear(ops, train_rows(o), train_weight(model, train_layer_index(l, TRAIN_O)), x);
  train_op_add_norm(ops, x, s, train_weight(model, train_layer_index(l, TRAIN_POST_NORM)), s, y, none, c->rms_eps);
  train_op_linear(ops, y, train_weight(model, train_layer_index(l, TRAIN_GATE_UP)), gate_up);
  train_op_swiglu(ops, train_cols(gate_up, 0, c->intermediate), train_cols(gate_up, c->intermediate, c->intermediate),
                  product);
  train_op_linear(ops, product, train_weight(model, train_layer_index(l, TRAIN_DOWN)), x);
  train_op_add_norm(ops, x, s, train_weight(model, next), s, y, none, c->rms_eps);
}

bool train_decoder_feed(train_decoder *d, const int32_t *tokens, int64_t count, int64_t first, train_error *error) {
  train_model *model = d->model;
  const train_config *c = &model->config;
  tigon_context *context = d->ops.context;
  const tigon_tensor none = {0}, s = train_slice(d->s, 0, count);
  d->ops.error = error;
  d->ops.failed = false;
  d->fed = count;
  if (!train_ok(context, tigon_copy(context, d->tokens.data, tokens, (size_t)count * sizeof *tokens), error))
    return false;
  train_op_embedding(&d->ops, train_weight(model, train_embedding_index()), train_slice(d->tokens, 0, count), s);
  train_op_norm(&d->ops, s, train_weight(model, train_layer_index(0, TRAIN_INPUT_NORM)), train_slice(d->y, 0, count),
                none, c->rms_eps);
  for (int64_t l = 0; l < c->layers; ++l) layer_forward(d, l, count, first);
  return !d->ops.failed;
}

bool train_decoder_logits(train_decoder *d, float *logits, train_error *error) {
  tigon_context *context = d->ops.context;
  const train_config *c = &d->model->config;
  d->ops.error = error;
  train_op_linear(&d->ops, train_slice(d->y, d->fed - 1, 1), train_weight(d->model, train_head_index(c)), d->logits);
  return !d->ops.failed &&
         train_ok(context, tigon_copy(context, logits, d->logits.data, (size_t)c->vocab * sizeof *logits), error);
}

bool train_decoder_loss(train_decoder *d, const int32_t *labels, double *sum, train_error *error) {
  tigon_context *context = d->ops.context;
  const size_t bytes = (size_t)d->fed * sizeof *labels;
  float loss = 0;
  d->ops.error = error;
  if (!train_ok(context, tigon_copy(context, d->labels.data, labels, bytes), error)) return false;
  head(d, d->fed);
  if (d->ops.failed || !train_ok(context, tigon_copy(context, &loss, d->loss.data, sizeof loss), error)) return false;
  *sum = loss;
  return true;
}
