#include "sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops.h"
#include "pass.h"
#include "random.h"

typedef struct decoder {
  train_model *model;
  train_ops ops;
  train_block arena;
  tigon_tensor token, position; /* [1], [1, 1] i32 */
  tigon_tensor s, x, y;         /* [1, H] */
  tigon_tensor q, o;            /* [1, 1, heads, head_dim] */
  tigon_tensor gate_up, c;      /* [1, 2 I], [1, I] */
  tigon_tensor logits;          /* [1, V] f32 */
  tigon_tensor keys, values;    /* [layers, positions, kv_heads, head_dim] */
} decoder;

static size_t lay_out(decoder *d, void *base) {
  const train_config *c = &d->model->config;
  const tigon_dtype dtype = d->model->dtype;
  train_arena arena = {.base = base};
  d->token = train_arena_take(&arena, TIGON_I32, 1, 0, 0, 0);
  d->position = train_arena_take(&arena, TIGON_I32, 1, 1, 0, 0);
  d->s = train_arena_take(&arena, dtype, 1, c->hidden, 0, 0);
  d->x = train_arena_take(&arena, dtype, 1, c->hidden, 0, 0);
  d->y = train_arena_take(&arena, dtype, 1, c->hidden, 0, 0);
  d->q = train_arena_take(&arena, dtype, 1, 1, c->heads, c->head_dim);
  d->o = train_arena_take(&arena, dtype, 1, 1, c->heads, c->head_dim);
  d->gate_up = train_arena_take(&arena, dtype, 1, 2 * c->intermediate, 0, 0);
  d->c = train_arena_take(&arena, dtype, 1, c->intermediate, 0, 0);
  d->logits = train_arena_take(&arena, TIGON_F32, 1, c->vocab, 0, 0);
  d->keys = train_arena_take(&arena, dtype, c->layers, c->positions, c->kv_heads, c->head_dim);
  d->values = train_arena_take(&arena, dtype, c->layers, c->positions, c->kv_heads, c->head_dim);
  return arena.used;
}

/* Positions [first, first + count) of one layer's keys or values, as [1, count, kv_heads, head_dim]. */
static tigon_tensor cached(tigon_tensor cache, int64_t layer, int64_t first, int64_t count) {
  const int64_t row = cache.shape[2] * cache.shape[3];
  char *data = (char *)cache.data + (size_t)((layer * cache.shape[1] + first) * row) * tigon_dtype_size(cache.dtype);
  return tigon_tensor_4d(data, cache.dtype, 1, count, cache.shape[2], cache.shape[3]);
}

static void layer_forward(decoder *d, int64_t l, int64_t position) {
  train_model *model = d->model;
  const train_config *c = &model->config;
  train_ops *ops = &d->ops;
  const int64_t q_width = c->heads * c->head_dim, kv_width = c->kv_heads * c->head_dim;
  const tigon_tensor qkv = train_weight(model, train_layer_index(l, TRAIN_QKV)), none = {0};
  const tigon_tensor key = cached(d->keys, l, position, 1), value = cached(d->values, l, position, 1);
  const int64_t next = l + 1 < c->layers ? train_layer_index(l + 1, TRAIN_INPUT_NORM) : train_final_norm_index(c);

  train_op_linear(ops, d->y, train_slice(qkv, 0, q_width), train_rows(d->q));
  train_op_linear(ops, d->y, train_slice(qkv, q_width, kv_width), train_rows(key));
  train_op_linear(ops, d->y, train_slice(qkv, q_width + kv_width, kv_width), train_rows(value));
  train_op_rope(ops, d->q, key, train_rope_cos(model), train_rope_sin(model), d->position);
  train_op_attention(ops, d->q, cached(d->keys, l, 0, position + 1), cached(d->values, l, 0, position + 1), d->o, none);
  train_op_linear(ops, train_rows(d->o), train_weight(model, train_layer_index(l, TRAIN_O)), d->x);
  train_op_add_norm(ops, d->x, d->s, train_weight(model, train_layer_index(l, TRAIN_POST_NORM)), d->s, d->y, none,
                    c->rms_eps);
  train_op_linear(ops, d->y, train_weight(model, train_layer_index(l, TRAIN_GATE_UP)), d->gate_up);
  train_op_swiglu(ops, train_cols(d->gate_up, 0, c->intermediate),
                  train_cols(d->gate_up, c->intermediate, c->intermediate), d->c);
  train_op_linear(ops, d->c, train_weight(model, train_layer_index(l, TRAIN_DOWN)), d->x);
  train_op_add_norm(ops, d->x, d->s, train_weight(model, next), d->s, d->y, none, c->rms_eps);
}

/* One token at one position; the logits of what follows. */
static bool feed(decoder *d, int32_t token, int64_t position, float *logits, train_error *error) {
  train_model *model = d->model;
  const train_config *c = &model->config;
  tigon_context *context = d->ops.context;
  const int32_t place = (int32_t)position;
  const tigon_tensor none = {0};
  if (!train_ok(context, tigon_copy(context, d->token.data, &token, sizeof token), error) ||
      !train_ok(context, tigon_copy(context, d->position.data, &place, sizeof place), error))
    return false;
  train_op_embedding(&d->ops, train_weight(model, train_embedding_index()), d->token, d->s);
  train_op_norm(&d->ops, d->s, train_weight(model, train_layer_index(0, TRAIN_INPUT_NORM)), d->y, none, c->rms_eps);
  for (int64_t l = 0; l < c->layers; ++l) layer_forward(d, l, position);
  train_op_linear(&d->ops, d->y, train_weight(model, train_head_index(c)), d->logits);
  return !d->ops.failed &&
         train_ok(context, tigon_copy(context, logits, d->logits.data, (size_t)c->vocab * sizeof *logits), error);
}

/* ---- drawing ---- */

/* The k-th largest of n values, by quickselect on a copy in `scratch`. */
static float kth_largest(const float *values, int64_t n, int64_t k, float *scratch) {
  for (int64_t i = 0; i < n; ++i) scratch[i] = values[i];
  int64_t low = 0, high = n - 1;
  while (low < high) {
    const float pivot = scratch[low + (high - low) / 2];
    int64_t i = low, j = high;
    while (i <= j) {
      while (scratch[i] > pivot) ++i;
      while (scratch[j] < pivot) --j;
      if (i > j) break;
      const float swapped = scratch[i];
      scratch[i++] = scratch[j];
      scratch[j--] = swapped;
    }
    if (k - 1 <= j)
      high = j;
    else if (k - 1 >= i)
      low = i;
    else
      break;
  }
  return scratch[k - 1];
}

/* A token by its probability; `u` is uniform in (0, 1). The logits are finite: the caller looked. */
static int32_t draw(const float *logits, int64_t vocab, const train_sampling *how, double u, float *scratch) {
  int64_t best = 0;
  for (int64_t v = 1; v < vocab; ++v)
    if (logits[v] > logits[best]) best = v;
  if (how->temperature <= 0) return (int32_t)best;
  const bool all = how->top_k == 0 || how->top_k >= vocab;
  const float least = all ? -INFINITY : kth_largest(logits, vocab, how->top_k, scratch);
  double total = 0;
  for (int64_t v = 0; v < vocab; ++v)
    if (logits[v] >= least) total += exp((double)(logits[v] - logits[best]) / how->temperature);
  double left = u * total;
  for (int64_t v = 0; v < vocab; ++v) {
    if (logits[v] < least) continue;
    left -= exp((double)(logits[v] - logits[best]) / how->temperature);
    if (left <= 0) return (int32_t)v;
  }
  return (int32_t)best;
}

static bool all_finite(const float *values, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    if (!isfinite(values[i])) return false;
  return true;
}

/* Makes room when the positions are used up: feeds the last half again from position 0. `window` holds what was fed. */
static bool make_room(decoder *d, int32_t *window, int64_t *used, float *logits, train_error *error) {
  const int64_t positions = d->model->config.positions, kept = positions / 2;
  if (*used < positions) return true;
  for (int64_t i = 0; i < kept; ++i) window[i] = window[*used - kept + i];
  *used = kept;
  for (int64_t i = 0; i < kept; ++i)
    if (!feed(d, window[i], i, logits, error)) return false;
  return true;
}

static bool generate(decoder *d, const train_sampling *how, const int32_t *prompt, int64_t prompt_count, int64_t count,
                     int32_t *tokens, int32_t *window, float *logits, train_error *error) {
  const int64_t vocab = d->model->config.vocab;
  int64_t used = 0;
  for (int64_t i = 0; i < prompt_count + count; ++i) {
    if (i >= prompt_count) {
      if (!all_finite(logits, vocab))
        return train_fail(error, TRAIN_EXIT_FAILED, "the model's logits are not numbers, so no text can be drawn");
      tokens[i - prompt_count] =
          draw(logits, vocab, how, train_uniform(how->seed, TRAIN_STREAM_SAMPLE, (uint64_t)i), logits + vocab);
      if (i + 1 == prompt_count + count) break;
    }
    if (!make_room(d, window, &used, logits, error)) return false;
    window[used] = i < prompt_count ? prompt[i] : tokens[i - prompt_count];
    if (!feed(d, window[used], used, logits, error)) return false;
    ++used;
  }
  return true;
}

bool train_sample(train_memory *memory, train_model *model, const train_sampling *sampling, const int32_t *prompt,
                  int64_t prompt_count, int64_t count, int32_t *tokens, train_error *error) {
  const train_config *c = &model->config;
  decoder d = {.model = model, .ops = {.context = memory->context, .error = error}};
  int32_t *window = malloc((size_t)c->positions * sizeof *window);
  float *logits = malloc((size_t)c->vocab * 2 * sizeof *logits); /* and scratch for top-k */
  bool good = (window && logits) || train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for the sample");
  good = good && train_device_alloc(memory, lay_out(&d, NULL), "the sample", &d.arena, error);
  if (good) {
    lay_out(&d, d.arena.data);
    good = generate(&d, sampling, prompt, prompt_count, count, tokens, window, logits, error);
  }
  train_device_free(memory, &d.arena);
  free(window);
  free(logits);
  return good;
}
