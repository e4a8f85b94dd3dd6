#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint.h"
#include "config_json.h"
#include "json_memory.h"
#include "pieces.h"
#include "tokenizer.h"

/* One tensor of a file: device memory of the model, or host memory. */
typedef struct origin {
  const void *device, *host;
} origin;

typedef struct content {
  tigon_context *context;
  train_safetensor *tensors;
  origin *origins;
  char (*names)[96];
  int64_t count;
} content;

static void content_free(content *c) {
  free(c->tensors);
  free(c->origins);
  free(c->names);
}

static bool content_new(content *c, const train_model *model, int64_t capacity, train_error *error) {
  *c = (content){.context = model->memory->context};
  c->tensors = calloc((size_t)capacity, sizeof *c->tensors);
  c->origins = calloc((size_t)capacity, sizeof *c->origins);
  c->names = calloc((size_t)capacity, sizeof *c->names);
  if (c->tensors && c->origins && c->names) return true;
  content_free(c);
  train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for the list of a checkpoint's tensors");
  return false;
}

static void content_add(content *c, const char *prefix, const char *name, const char *dtype, int64_t rows, int64_t cols,
                        origin from) {
  train_safetensor *t = &c->tensors[c->count];
  snprintf(c->names[c->count], sizeof c->names[c->count], "%s%s", prefix, name);
  *t = (train_safetensor){.name = c->names[c->count], .dtype = dtype, .ndim = rows ? 2 : 1, .shape = {rows, cols}};
  if (!rows) t->shape[0] = cols;
  c->origins[c->count++] = from;
}

/* Every weight's part of a flat buffer, its name behind `prefix`. */
static void content_add_buffer(content *c, const train_model *model, const train_piece *pieces, const char *prefix,
                               const train_block *buffer) {
  for (int64_t i = 0; i < train_piece_count(&model->config); ++i)
    content_add(c, prefix, pieces[i].name, "F32", pieces[i].rows, pieces[i].cols,
                (origin){.device = (const float *)buffer->data + pieces[i].offset});
}

static bool fill(void *user, int64_t index, int64_t first, int64_t count, void *to, train_error *error) {
  const content *c = user;
  const origin *from = &c->origins[index];
  if (from->host) {
    memcpy(to, (const char *)from->host + first, (size_t)count);
    return true;
  }
  return train_ok(c->context, tigon_copy(c->context, to, (const char *)from->device + first, (size_t)count), error);
}

/* Ties the two files of one save together, and is the same for a resumed and for an uninterrupted run. */
static json_t *pair_text(const train_progress *p) {
  uint32_t loss = 0;
  if (p->history->steps > 0) memcpy(&loss, &p->history->loss[p->history->steps - 1], sizeof loss);
  return json_sprintf("%" PRId64 "-%08" PRIx32, p->step, loss);
}

static json_t *options_metadata(const train_progress *p) {
  json_t *metadata = json_pack("{s:o, s:o, s:o}", "pair", pair_text(p), "step", json_sprintf("%" PRId64, p->step),
                               "data_digest", json_sprintf("%016" PRIx64, p->digest));
  train_state_write(&p->state, metadata);
  for (int i = 0; i < train_option_count; ++i) {
    char key[64], text[TRAIN_PATH];
    if (!train_option_rows[i].name || train_option_rows[i].use < TRAIN_USE_SAVED) continue;
    snprintf(key, sizeof key, "option.%s", train_option_rows[i].name);
    train_option_text(p->options, i, text, sizeof text);
    json_object_set_new(metadata, key, json_string(text));
  }
  return metadata;
}

static bool write_model(const char *path, const train_model *model, const train_piece *pieces, const train_progress *p,
                        train_error *error) {
  content c;
  if (!content_new(&c, model, train_piece_count(&model->config), error)) return false;
  content_add_buffer(&c, model, pieces, "", &model->master);
  train_json_begin();
  json_t *metadata = json_pack("{s:s, s:o}", "format", "pt", "pair", pair_text(p));
  const bool good = train_safetensors_write(path, c.tensors, c.count, metadata, fill, &c, error);
  json_decref(metadata);
  content_free(&c);
  return good;
}

static bool write_optimizer(const char *path, const train_model *model, const train_piece *pieces,
                            const train_progress *p, train_error *error) {
  static const char none[8];
  const train_history *h = p->history;
  content c;
  if (!content_new(&c, model, 2 * train_piece_count(&model->config) + 4, error)) return false;
  content_add(&c, "", "history.eval_step", "I64", 0, h->evals,
              (origin){.host = h->evals ? (void *)h->eval_step : none});
  content_add(&c, "", "history.eval_loss", "F32", 0, h->evals,
              (origin){.host = h->evals ? (void *)h->eval_loss : none});
  content_add(&c, "", "history.loss", "F32", 0, h->steps, (origin){.host = h->steps ? (void *)h->loss : none});
  content_add(&c, "", "history.rate", "F32", 0, h->steps, (origin){.host = h->steps ? (void *)h->rate : none});
  content_add_buffer(&c, model, pieces, "exp_avg.", &model->exp_avg);
  content_add_buffer(&c, model, pieces, "exp_avg_sq.", &model->exp_avg_sq);
  train_json_begin();
  json_t *metadata = options_metadata(p);
  const bool good = train_safetensors_write(path, c.tensors, c.count, metadata, fill, &c, error);
  json_decref(metadata);
  content_free(&c);
  return good;
}

static bool write_config(const char *path, const train_model *model, train_error *error) {
  train_file file;
  train_json_begin();
  json_t *object = train_config_json(&model->config);
  char *text = train_json_text(object, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
  json_decref(object);
  if (!text) return train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for %s", path);
  const bool good = train_file_create(path, &file, error) && train_file_append(&file, text, strlen(text), error) &&
                    train_file_append(&file, "\n", 1, error) && train_file_finish(&file, error);
  free(text);
  return good;
}

static void remove_temporary(const char *path) {
  char temporary[TRAIN_PATH + 8];
  snprintf(temporary, sizeof temporary, "%s.tmp", path);
  unlink(temporary);
}

bool train_checkpoint_save(const char *folder, const train_model *model, const train_progress *progress,
                           train_error *error) {
  char weights[TRAIN_PATH], optimizer[TRAIN_PATH], config[TRAIN_PATH];
  if (!train_path_join(folder, "model.safetensors", weights, error) ||
      !train_path_join(folder, "optimizer.safetensors", optimizer, error) ||
      !train_path_join(folder, "config.json", config, error))
    return false;
  train_piece *pieces = calloc((size_t)train_piece_count(&model->config), sizeof *pieces);
  if (!pieces) return train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for the list of a checkpoint's tensors");
  train_pieces(model, pieces);
  const bool written = write_model(weights, model, pieces, progress, error) &&
                       write_optimizer(optimizer, model, pieces, progress, error) && write_config(config, model, error);
  free(pieces);
  if (!written) { /* model.safetensors.tmp last: its absence means that the renames have begun */
    remove_temporary(config);
    remove_temporary(optimizer);
    remove_temporary(weights);
    return false;
  }
  const bool named =
      train_file_commit(weights, error) && train_file_commit(optimizer, error) && train_file_commit(config, error);
  train_folder_flush(folder);
  return named;
}

int64_t train_checkpoint_bytes(const train_model *model, int64_t steps) {
  return 3 * model->parameters * (int64_t)sizeof(float) + train_piece_count(&model->config) * 600 +
         2 * steps * (int64_t)sizeof(float) + 65536;
}

bool train_checkpoint_exists(const char *folder) {
  char path[TRAIN_PATH];
  train_error none;
  return train_path_join(folder, "model.safetensors", path, &none) && access(path, F_OK) == 0;
}

void train_checkpoint_remove(const char *folder) {
  static const char *const names[] = {"model.safetensors", "optimizer.safetensors", "config.json"};
  char path[TRAIN_PATH];
  train_error none;
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i)
    if (train_path_join(folder, names[i], path, &none)) unlink(path);
  train_tokenizer_remove(folder);
  rmdir(folder);
}
