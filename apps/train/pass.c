#include "pass.h"

#include <stdlib.h>
#include <string.h>

tigon_tensor train_rows(tigon_tensor t) {
  int64_t cols = 1;
  for (int d = 2; d < t.ndim; ++d) cols *= t.shape[d];
  return tigon_tensor_2d(t.data, t.dtype, t.shape[0] * t.shape[1], cols);
}

tigon_tensor train_cols(tigon_tensor t, int64_t first, int64_t cols) {
  if (t.data) t.data = (char *)t.data + (size_t)first * tigon_dtype_size(t.dtype);
  t.shape[1] = cols;
  return t;
}

static tigon_tensor heads_view(const train_config *config, tigon_tensor qkv, int64_t first, int64_t heads) {
  const int64_t width = qkv.shape[2];
  tigon_tensor t = tigon_tensor_4d(qkv.data, qkv.dtype, qkv.shape[0], qkv.shape[1], heads, config->head_dim);
  if (t.data) t.data = (char *)t.data + (size_t)(first * config->head_dim) * tigon_dtype_size(t.dtype);
  t.strides[0] = qkv.shape[1] * width;
  t.strides[1] = width;
  return t;
}

train_qkv train_qkv_views(const train_config *config, tigon_tensor qkv) {
  return (train_qkv){heads_view(config, qkv, 0, config->heads),
                     heads_view(config, qkv, config->heads, config->kv_heads),
                     heads_view(config, qkv, config->heads + config->kv_heads, config->kv_heads)};
}

/* ---- memory ---- */

static void lay_out_layer(const train_pass *pass, train_layer *layer, train_arena *arena) {
  const train_config *c = &pass->model->config;
  const tigon_dtype dtype = pass->model->dtype;
  const int64_t rows = pass->batch * pass->seq, width = (c->heads + 2 * c->kv_heads) * c->head_dim;
  layer->s_attention = train_arena_take(arena, dtype, rows, c->hidden, 0, 0);
  layer->rstd_attention = train_arena_take(arena, TIGON_F32, rows, 0, 0, 0);
  layer->qkv = train_arena_take(arena, dtype, pass->batch, pass->seq, width, 0);
  layer->o = train_arena_take(arena, dtype, pass->batch, pass->seq, c->heads, c->head_dim);
  layer->lse = train_arena_take(arena, TIGON_F32, pass->batch, c->heads, pass->seq, 0);
  layer->s_mlp = train_arena_take(arena, dtype, rows, c->hidden, 0, 0);
  layer->rstd_mlp = train_arena_take(arena, TIGON_F32, rows, 0, 0, 0);
  layer->gate_up = train_arena_take(arena, dtype, rows, 2 * c->intermediate, 0, 0);
  layer->y_attention = train_arena_take(arena, dtype, rows, c->hidden, 0, 0);
  layer->y_mlp = train_arena_take(arena, dtype, rows, c->hidden, 0, 0);
  if (pass->fused) return;
  layer->silu = train_arena_take(arena, dtype, rows, c->intermediate, 0, 0);
  layer->c = train_arena_take(arena, dtype, rows, c->intermediate, 0, 0);
}

/* Scratch that one part of the pass uses begins where another part's begins; *end is the longest's end. */
static void lay_out_attention_scratch(train_pass *pass, train_arena arena, size_t *end) {
  const train_config *c = &pass->model->config;
  const int64_t width = (c->heads + 2 * c->kv_heads) * c->head_dim;
  pass->d_o = train_arena_take(&arena, pass->model->dtype, pass->batch, pass->seq, c->heads, c->head_dim);
  pass->dqkv = train_arena_take(&arena, pass->model->dtype, pass->batch, pass->seq, width, 0);
  if (arena.used > *end) *end = arena.used;
}

static void lay_out_mlp_scratch(train_pass *pass, train_arena arena, size_t *end) {
  const int64_t rows = pass->batch * pass->seq, width = pass->model->config.intermediate;
  if (pass->fused) {
    pass->c = train_arena_take(&arena, pass->model->dtype, rows, width, 0, 0);
  } else {
    pass->d_c = train_arena_take(&arena, pass->model->dtype, rows, width, 0, 0);
    pass->d_silu = train_arena_take(&arena, pass->model->dtype, rows, width, 0, 0);
    pass->d_gate_up = train_arena_take(&arena, pass->model->dtype, rows, 2 * width, 0, 0);
  }
  if (arena.used > *end) *end = arena.used;
}

static void lay_out_logits(train_pass *pass, train_arena arena, size_t *end) {
  const int64_t rows = pass->batch * pass->seq, vocab = pass->model->config.vocab;
  pass->logits = train_arena_take(&arena, pass->model->dtype, rows, vocab, 0, 0);
  pass->log_probability = train_arena_take(&arena, TIGON_F32, rows, vocab, 0, 0);
  pass->d_logits = train_arena_take(&arena, pass->model->dtype, rows, vocab, 0, 0);
  if (arena.used > *end) *end = arena.used;
}

static size_t lay_out(train_pass *pass, void *base) {
  const train_config *c = &pass->model->config;
  const tigon_dtype dtype = pass->model->dtype;
  const int64_t rows = pass->batch * pass->seq;
  train_arena arena = {.base = base};
  pass->tokens = train_arena_take(&arena, TIGON_I32, rows, 0, 0, 0);
  pass->labels = train_arena_take(&arena, TIGON_I32, rows, 0, 0, 0);
  pass->loss = train_arena_take(&arena, TIGON_F32, 1, 0, 0, 0);
  for (int64_t l = 0; l < c->layers; ++l) lay_out_layer(pass, &pass->layers[l], &arena);
  pass->s_final = train_arena_take(&arena, dtype, rows, c->hidden, 0, 0);
  pass->rstd_final = train_arena_take(&arena, TIGON_F32, rows, 0, 0, 0);
  pass->x = train_arena_take(&arena, dtype, rows, c->hidden, 0, 0);
  pass->y = train_arena_take(&arena, dtype, rows, c->hidden, 0, 0);
  if (!pass->fused) {
    pass->d_norm = train_arena_take(&arena, dtype, rows, c->hidden, 0, 0);
    pass->norm_slabs = train_arena_take(&arena, TIGON_F32, TRAIN_SLABS, c->hidden, 0, 0);
  }
  size_t end = arena.used;
  lay_out_attention_scratch(pass, arena, &end);
  lay_out_mlp_scratch(pass, arena, &end);
  if (!pass->fused) lay_out_logits(pass, arena, &end);
  return end;
}

/* ---- life ---- */

static void run(train_pass *pass, double grad_scale, bool accumulate) {
  const train_config *c = &pass->model->config;
  const int64_t head = train_head_index(c);
  if (!pass->fused) {
    train_forward_unfused(pass);
    train_head_unfused(pass, grad_scale, accumulate);
    train_backward_unfused(pass, accumulate);
    return;
  }
  train_forward(pass);
  train_op_head_grad(&pass->ops, pass->y, train_weight(pass->model, head), pass->labels, pass->loss, grad_scale,
                     train_gradient(pass->model, head), accumulate);
  train_backward(pass, accumulate);
}

bool train_pass_create(train_memory *memory, train_model *model, int64_t batch, int64_t seq, bool fused, int threads,
                       train_pass *pass, train_error *error) {
  *pass = (train_pass){.model = model, .fused = fused, .batch = batch, .seq = seq, .threads = threads};
  pass->layers = calloc((size_t)model->config.layers, sizeof *pass->layers);
  if (!pass->layers) return train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for the list of layers");
  /* A CPU: a thirty-second of the full logits, within 1 and 16 MiB. Smaller chunks make slow GEMMs, larger ones no longer pay.
   * Elsewhere each chunk reads and writes all of the head's f32 gradient, so that it has thousands of tokens. */
  const bool cpu = strncmp(tigon_context_device(memory->context), "cpu", 3) == 0;
  const size_t logits = (size_t)(batch * seq * model->config.vocab) * sizeof(float);
  pass->ops = (train_ops){.context = memory->context, .error = error, .planning = true};
  const size_t least = 1u << 20, most = cpu ? 1u << 24 : 1u << 28, share = logits / (cpu ? 32 : 8);
  pass->ops.head_grant = share < least ? least : share > most ? most : share;

  const size_t bytes = lay_out(pass, NULL);
  run(pass, 1, false);
  if (fused)
    train_op_head(&pass->ops, pass->y, train_weight(model, train_head_index(&model->config)), pass->labels, pass->loss);
  const bool made = train_ops_ready(&pass->ops, memory, error) &&
                    train_device_alloc(memory, bytes, "the activations", &pass->arena, error);
  if (made)
    lay_out(pass, pass->arena.data);
  else
    train_pass_destroy(memory, pass);
  return made;
}

void train_pass_destroy(train_memory *memory, train_pass *pass) {
  train_device_free(memory, &pass->ops.workspace);
  train_device_free(memory, &pass->arena);
  free(pass->layers);
  *pass = (train_pass){0};
}

/* ---- use ---- */

static bool begin(train_pass *pass, const int32_t *tokens, const int32_t *labels, train_error *error) {
  tigon_context *context = pass->ops.context;
  const size_t bytes = (size_t)(pass->batch * pass->seq) * sizeof *tokens;
  pass->ops.error = error;
  pass->ops.failed = false;
  return train_ok(context, tigon_copy(context, pass->tokens.data, tokens, bytes), error) &&
         train_ok(context, tigon_copy(context, pass->labels.data, labels, bytes), error);
}

static bool finish(train_pass *pass, double *loss_sum, train_error *error) {
  tigon_context *context = pass->ops.context;
  float sum = 0;
  if (pass->ops.failed || !train_ok(context, tigon_copy(context, &sum, pass->loss.data, sizeof sum), error) ||
      !train_ok(context, tigon_context_sync(context), error))
    return false;
  *loss_sum = sum;
  return true;
}

bool train_pass_gradient(train_pass *pass, const int32_t *tokens, const int32_t *labels, double grad_scale,
                         bool accumulate, double *loss_sum, train_error *error) {
  if (!begin(pass, tokens, labels, error)) return false;
  run(pass, grad_scale, accumulate);
  return finish(pass, loss_sum, error);
}

bool train_pass_loss(train_pass *pass, const int32_t *tokens, const int32_t *labels, double *loss_sum,
                     train_error *error) {
  if (!begin(pass, tokens, labels, error)) return false;
  train_forward(pass);
  train_op_head(&pass->ops, pass->y, train_weight(pass->model, train_head_index(&pass->model->config)), pass->labels,
                pass->loss);
  return finish(pass, loss_sum, error);
}
