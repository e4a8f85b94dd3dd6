#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint.h"
#include "config_json.h"
#include "pieces.h"

/* ---- opening ---- */

/* Finishes the renames of a save that was killed between them. */
static void finish_renames(const char *folder) {
  char path[TRAIN_PATH];
  train_error none;
  if (!train_path_join(folder, "model.safetensors.tmp", path, &none) || access(path, F_OK) == 0) return;
  train_path_join(folder, "optimizer.safetensors", path, &none); /* no longer than the first */
  train_file_commit(path, &none);
  train_path_join(folder, "config.json", path, &none);
  train_file_commit(path, &none);
}

static bool broken(const train_checkpoint *c, const char *what, train_error *error) {
  return train_fail(error, TRAIN_EXIT_TROUBLE, "%s is no usable checkpoint: %s", c->optimizer.path, what);
}

static bool read_step(train_checkpoint *c, train_error *error) {
  const char *step = train_safetensors_metadata(&c->optimizer, "step");
  const char *digest = train_safetensors_metadata(&c->optimizer, "data_digest");
  const char *pair = train_safetensors_metadata(&c->optimizer, "pair");
  const char *model_pair = train_safetensors_metadata(c->model.files, "pair");
  char *end = NULL;
  if (!step || !digest || !pair) return broken(c, "its metadata lack step, data_digest or pair", error);
  c->step = strtoll(step, &end, 10);
  if (end == step || *end || c->step < 0 || c->step > 1000000000)
    return broken(c, "its step is no whole number from 0 to 1000000000", error);
  c->digest = strtoull(digest, &end, 16);
  if (end == digest || *end) return broken(c, "its data_digest is no hexadecimal number", error);
  if (!model_pair || strcmp(pair, model_pair) != 0)
    return broken(c, "it is not of the same save as model.safetensors", error);
  return true;
}

/* A model.safetensors of ours says that there is an optimizer.safetensors; another's without one is weights only. */
static bool open_optimizer(train_checkpoint *c, const char *path, train_error *error) {
  c->weights_only = !train_safetensors_metadata(c->model.files, "pair") && access(path, F_OK) != 0;
  return c->weights_only || (train_safetensors_open(path, &c->optimizer, error) && read_step(c, error) &&
                             train_state_read(&c->optimizer, c->step, &c->state, error));
}

/* The checkpoint's length of a sequence; weights alone may go on with a shorter one. */
static bool adopt_seq(const train_checkpoint *c, train_options *o, train_error *error) {
  const int64_t positions = c->config.positions;
  if (!train_option_given(o, "seq")) o->seq = positions;
  if (o->seq == positions || (c->weights_only && o->seq < positions)) return true;
  return train_fail(error, TRAIN_EXIT_USAGE, "--seq is %" PRId64 ", must be %s%" PRId64 " as in the checkpoint", o->seq,
                    c->weights_only ? "at most " : "", positions);
}

/* The model's shape overrules, given options that differ are mistakes. */
static bool adopt_config(const train_config *config, train_options *o, train_error *error) {
  const struct {
    const char *name;
    int64_t *field, value;
  } fields[] = {{"vocab", &o->vocab, config->vocab},          {"layers", &o->layers, config->layers},
                {"hidden", &o->hidden, config->hidden},       {"heads", &o->heads, config->heads},
                {"kv-heads", &o->kv_heads, config->kv_heads}, {"intermediate", &o->intermediate, config->intermediate}};
  const struct {
    const char *name;
    double *field, value;
  } reals[] = {{"rope-theta", &o->rope_theta, config->rope_theta}, {"rms-eps", &o->rms_eps, config->rms_eps}};
  for (size_t i = 0; i < sizeof fields / sizeof *fields; ++i) {
    if (train_option_given(o, fields[i].name) && *fields[i].field != fields[i].value)
      return train_fail(error, TRAIN_EXIT_USAGE, "--%s is %" PRId64 ", must be %" PRId64 " as in the checkpoint",
                        fields[i].name, *fields[i].field, fields[i].value);
    *fields[i].field = fields[i].value;
  }
  for (size_t i = 0; i < sizeof reals / sizeof *reals; ++i) {
    if (train_option_given(o, reals[i].name) && *reals[i].field != reals[i].value)
      return train_fail(error, TRAIN_EXIT_USAGE, "--%s is %g, must be %g as in the checkpoint", reals[i].name,
                        *reals[i].field, reals[i].value);
    *reals[i].field = reals[i].value;
  }
  if (train_option_given(o, "tie") && o->tie != config->tied)
    return train_fail(error, TRAIN_EXIT_USAGE, "--%stie is given, but the checkpoint's head is %stied",
                      o->tie ? "" : "no-", config->tied ? "" : "not ");
  o->tie = config->tied;
  o->rope_scaling = config->rope;
  return true;
}

static bool adopt_options(const train_checkpoint *c, train_options *options, train_error *error) {
  for (int i = 0; i < train_option_count; ++i) {
    const train_option_row *row = &train_option_rows[i];
    char key[64], origin[TRAIN_PATH + 64];
    if (!row->name || row->use != TRAIN_USE_SAVED || train_option_given(options, row->name)) continue;
    snprintf(key, sizeof key, "option.%s", row->name);
    const char *text = train_safetensors_metadata(&c->optimizer, key);
    if (!text) continue;
    snprintf(origin, sizeof origin, "%s is no usable checkpoint: option.", c->optimizer.path);
    if (!train_option_set(options, i, text, origin, error)) {
      error->exit_code = TRAIN_EXIT_TROUBLE;
      return false;
    }
  }
  return true;
}

static bool open_checkpoint(const char *folder, bool weights_only, train_checkpoint *c, train_options *options,
                            train_error *error) {
  char optimizer[TRAIN_PATH];
  *c = (train_checkpoint){.optimizer.file = -1, .weights_only = weights_only};
  if (!train_path_join(folder, "optimizer.safetensors", optimizer, error)) return false;
  const bool good = train_config_read(folder, &c->config, error) && train_shards_open(folder, &c->model, error) &&
                    (weights_only || open_optimizer(c, optimizer, error)) && adopt_config(&c->config, options, error) &&
                    adopt_seq(c, options, error) && (weights_only || adopt_options(c, options, error));
  if (!good) train_checkpoint_close(c);
  return good;
}

bool train_checkpoint_open(const char *folder, train_checkpoint *c, train_options *options, train_error *error) {
  finish_renames(folder);
  return open_checkpoint(folder, false, c, options, error);
}

bool train_checkpoint_open_weights(const char *folder, train_checkpoint *c, train_options *options,
                                   train_error *error) {
  return open_checkpoint(folder, true, c, options, error);
}

void train_checkpoint_close(train_checkpoint *c) {
  train_shards_close(&c->model);
  train_safetensors_close(&c->optimizer);
}

/* ---- tensors ---- */

enum { STAGE = 1 << 18 /* f32 elements that go to the device at once */, STAGE_BYTES = 4 * STAGE };

static float from_f16(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const float size = exponent == 31  ? (mantissa ? NAN : INFINITY)
                     : exponent == 0 ? ldexpf((float)mantissa, -24)
                                     : ldexpf((float)(1024 + mantissa), exponent - 25);
  return bits >> 15 ? -size : size;
}

/* bf16 or f16 become f32 in place, the last one first: none is overwritten before it is read. */
static void widen(char *stage, int64_t count, bool is_bf16) {
  for (int64_t i = count - 1; i >= 0; --i) {
    uint16_t bits;
    memcpy(&bits, stage + i * (int64_t)sizeof bits, sizeof bits);
    const float value = is_bf16 ? train_from_bf16(bits) : from_f16(bits);
    memcpy(stage + i * (int64_t)sizeof value, &value, sizeof value);
  }
}

static bool load_tensor(const train_safetensors *file, const char *name, const train_piece *piece,
                        tigon_context *context, float *to, char *stage, train_error *error) {
  const int64_t shape[2] = {piece->rows ? piece->rows : piece->cols, piece->cols};
  const train_safetensor *found = train_safetensors_find(file, name);
  const bool is_bf16 = found && strcmp(found->dtype, "BF16") == 0;
  const bool is_half = is_bf16 || (found && strcmp(found->dtype, "F16") == 0);
  const train_safetensor *tensor =
      train_safetensors_expect(file, name, is_half ? found->dtype : "F32", piece->rows ? 2 : 1, shape, error);
  if (!tensor) return false;
  const int64_t element = train_safetensors_element(tensor->dtype), elements = tensor->bytes / element;
  for (int64_t first = 0; first < elements; first += STAGE) {
    const int64_t count = elements - first < STAGE ? elements - first : STAGE;
    if (!train_safetensors_read(file, tensor, first * element, count * element, stage, error)) return false;
    if (is_half) widen(stage, count, is_bf16);
    if (!train_ok(context, tigon_copy(context, to + first, stage, (size_t)count * sizeof *to), error)) return false;
  }
  return true;
}

/* One flat buffer; its tensors are named prefix + piece. Without files all becomes 0, with them the padding. */
static bool load_buffer(const train_shards *files, const char *prefix, const train_model *model,
                        const train_piece *pieces, const train_block *buffer, char *stage, train_error *error) {
  tigon_context *context = model->memory->context;
  bool good = train_ok(context, tigon_fill(context, buffer->data, 0, buffer->bytes), error);
  for (int64_t i = 0; files && good && i < train_piece_count(&model->config); ++i) {
    char name[96];
    snprintf(name, sizeof name, "%s%s", prefix, pieces[i].name);
    good = load_tensor(train_shards_holder(files, name), name, &pieces[i], context,
                       (float *)buffer->data + pieces[i].offset, stage, error);
  }
  return good;
}

/* A list of the history, in memory of malloc(). */
static void *load_list(const train_safetensors *file, const char *name, const char *dtype, int64_t *count,
                       train_error *error) {
  const train_safetensor *found = train_safetensors_find(file, name);
  const int64_t shape[1] = {found && found->ndim == 1 ? found->shape[0] : 0};
  const train_safetensor *tensor = train_safetensors_expect(file, name, dtype, 1, shape, error);
  if (!tensor) return NULL;
  void *list = malloc((size_t)tensor->bytes + 1);
  if (!list)
    train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for the list of losses");
  else if (!train_safetensors_read(file, tensor, 0, tensor->bytes, list, error)) {
    free(list);
    return NULL;
  }
  *count = shape[0];
  return list;
}

/* Checkpoints of older versions have no rates. */
static bool load_rates(const train_checkpoint *c, train_history *h, train_error *error) {
  int64_t rates = h->steps;
  if (train_safetensors_find(&c->optimizer, "history.rate"))
    h->rate = load_list(&c->optimizer, "history.rate", "F32", &rates, error);
  else if (!(h->rate = malloc((size_t)rates * sizeof *h->rate + 1)))
    train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for the list of learning rates");
  else
    for (int64_t i = 0; i < rates; ++i) h->rate[i] = NAN;
  if (!h->rate || rates == h->steps) return h->rate != NULL;
  return broken(c, "its lists of losses and rates differ in length", error);
}

static bool load_history(const train_checkpoint *c, train_history *h, train_error *error) {
  int64_t losses = 0;
  h->loss = load_list(&c->optimizer, "history.loss", "F32", &h->steps, error);
  if (!h->loss) return false;
  h->eval_step = load_list(&c->optimizer, "history.eval_step", "I64", &h->evals, error);
  if (!h->eval_step) return false;
  h->eval_loss = load_list(&c->optimizer, "history.eval_loss", "F32", &losses, error);
  if (!h->eval_loss) return false;
  if (!load_rates(c, h, error)) return false;
  h->capacity = h->steps;
  h->eval_capacity = h->evals;
  if (h->steps != c->step || losses != h->evals) return broken(c, "its lists of losses do not fit its step", error);
  return true;
}

bool train_checkpoint_load(const train_checkpoint *c, train_model *model, train_history *history, train_error *error) {
  train_piece *pieces = calloc((size_t)train_piece_count(&model->config), sizeof *pieces);
  char *stage = malloc(STAGE_BYTES);
  train_safetensors optimizer = c->optimizer;
  const train_shards all = {&optimizer, 1}, *moments = c->weights_only ? NULL : &all;
  bool good = pieces && stage;
  if (!good) train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for loading the checkpoint");
  if (good) train_pieces(model, pieces);
  good = good && load_buffer(&c->model, "", model, pieces, &model->master, stage, error) &&
         load_buffer(moments, "exp_avg.", model, pieces, &model->exp_avg, stage, error) &&
         load_buffer(moments, "exp_avg_sq.", model, pieces, &model->exp_avg_sq, stage, error) &&
         (c->weights_only || !history || load_history(c, history, error)) && train_model_round(model, error);
  free(stage);
  free(pieces);
  return good;
}

bool train_checkpoint_read(const char *folder, train_memory *memory, tigon_dtype dtype, train_model *model,
                           train_error *error) {
  train_config config;
  train_checkpoint c = {.optimizer.file = -1, .weights_only = true};
  bool good = train_config_read(folder, &config, error) && train_shards_open(folder, &c.model, error);
  if (good) {
    good = train_model_create_weights(memory, &config, dtype, model, error);
    if (good && !train_checkpoint_load(&c, model, NULL, error)) {
      train_model_destroy(model);
      good = false;
    }
    if (good && dtype != TIGON_F32) train_device_free(memory, &model->master);
  }
  train_checkpoint_close(&c);
  return good;
}
