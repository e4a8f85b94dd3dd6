#include "config_json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "json_memory.h"

json_t *train_config_json(const train_config *c) {
  /* no special tokens: Llama's defaults 1 and 2 would be bytes of the text */
  return json_pack("{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:f, s:{s:s, s:f}, s:b, s:b, s:b, "
                   "s:f, s:f, s:n, s:n, s:n, s:b, s:s}",
                   "architectures", "LlamaForCausalLM", "model_type", "llama", "vocab_size", (json_int_t)c->vocab,
                   "hidden_size", (json_int_t)c->hidden, "intermediate_size", (json_int_t)c->intermediate,
                   "num_hidden_layers", (json_int_t)c->layers, "num_attention_heads", (json_int_t)c->heads,
                   "num_key_value_heads", (json_int_t)c->kv_heads, "head_dim", (json_int_t)c->head_dim,
                   "max_position_embeddings", (json_int_t)c->positions, "hidden_act", "silu", "rms_norm_eps",
                   c->rms_eps, "rope_theta", c->rope_theta, "rope_parameters", "rope_type", "default", "rope_theta",
                   c->rope_theta, "tie_word_embeddings", (int)c->tied, "attention_bias", 0, "mlp_bias", 0,
                   "attention_dropout", 0.0, "initializer_range", 0.02, "bos_token_id", "eos_token_id", "pad_token_id",
                   "use_cache", 1, "torch_dtype", "float32");
}

typedef struct reading {
  const json_t *object;
  const char *path;
  train_error *error;
} reading;

static bool wrong(const reading *r, const char *key, const char *must) {
  return train_fail(r->error, TRAIN_EXIT_TROUBLE, "%s is no usable configuration: %s must be %s", r->path, key, must);
}

static bool read_whole(const reading *r, const char *key, int64_t high, int64_t *value) {
  const json_t *number = json_object_get(r->object, key);
  *value = (int64_t)json_integer_value(number);
  if (json_is_integer(number) && *value >= 1 && *value <= high) return true;
  char must[64];
  snprintf(must, sizeof must, "a whole number from 1 to %" PRId64, high);
  return wrong(r, key, must);
}

static bool read_real(const reading *r, const char *key, double low, double high, double *value) {
  const json_t *number = json_object_get(r->object, key);
  *value = json_number_value(number);
  if (json_is_number(number) && *value >= low && *value <= high) return true;
  char must[64];
  snprintf(must, sizeof must, "a number from %g to %g", low, high);
  return wrong(r, key, must);
}

static bool read_text(const reading *r, const char *key, const char *must) {
  const char *text = json_string_value(json_object_get(r->object, key));
  return (text && strcmp(text, must) == 0) || wrong(r, key, must);
}

static bool read_absent_or(const reading *r, const char *key, json_t *expected, const char *must) {
  const json_t *value = json_object_get(r->object, key);
  const bool good = !value || json_is_null(value) || json_equal(value, expected);
  json_decref(expected);
  return good || wrong(r, key, must);
}

/* What another Llama may have and this one has not. */
static bool read_variants(const reading *r, const train_config *c) {
  return read_absent_or(r, "attention_bias", json_false(), "false") &&
         read_absent_or(r, "mlp_bias", json_false(), "false") &&
         read_absent_or(r, "rope_scaling", json_null(), "null") &&
         read_absent_or(r, "head_dim", json_integer(c->head_dim), "hidden_size / num_attention_heads");
}

/* Older ones have it outside of rope_parameters, newer ones inside, ours have both. */
static bool read_rope_theta(const reading *r, double *theta) {
  const json_t *outside = json_object_get(r->object, "rope_theta");
  const json_t *parameters = json_object_get(r->object, "rope_parameters");
  const reading inside = {parameters, r->path, r->error};
  if (!parameters || json_is_null(parameters)) return read_real(r, "rope_theta", 1, 1e12, theta);
  if (!read_text(&inside, "rope_type", "default") || !read_real(&inside, "rope_theta", 1, 1e12, theta)) return false;
  return !outside || (json_is_number(outside) && json_number_value(outside) == *theta) ||
         wrong(r, "rope_theta", "that of rope_parameters");
}

static bool read_config(const reading *r, train_config *c) {
  const json_t *tied = json_object_get(r->object, "tie_word_embeddings");
  if (!json_is_object(r->object)) return wrong(r, "the JSON", "an object");
  if (!read_text(r, "model_type", "llama") || !read_text(r, "hidden_act", "silu") ||
      !read_whole(r, "vocab_size", 1 << 24, &c->vocab) || !read_whole(r, "hidden_size", 65536, &c->hidden) ||
      !read_whole(r, "intermediate_size", 1 << 20, &c->intermediate) ||
      !read_whole(r, "num_hidden_layers", 1024, &c->layers) || !read_whole(r, "num_attention_heads", 1024, &c->heads) ||
      !read_whole(r, "num_key_value_heads", 1024, &c->kv_heads) ||
      !read_whole(r, "max_position_embeddings", 1 << 20, &c->positions) ||
      !read_real(r, "rms_norm_eps", 0, 1, &c->rms_eps) || !read_rope_theta(r, &c->rope_theta))
    return false;
  if (!json_is_boolean(tied)) return wrong(r, "tie_word_embeddings", "true or false");
  c->tied = json_is_true(tied);
  if (c->hidden % c->heads != 0 || c->hidden / c->heads % 2 != 0)
    return wrong(r, "hidden_size", "an even multiple of num_attention_heads");
  if (c->heads % c->kv_heads != 0) return wrong(r, "num_attention_heads", "a multiple of num_key_value_heads");
  c->head_dim = c->hidden / c->heads;
  return read_variants(r, c);
}

bool train_config_read(const char *folder, train_config *config, train_error *error) {
  char path[TRAIN_PATH];
  json_error_t broken;
  *config = (train_config){0};
  if (!train_path_join(folder, "config.json", path, error)) return false;
  FILE *file = fopen(path, "re");
  if (!file) return train_fail(error, TRAIN_EXIT_TROUBLE, "cannot open %s: %s", path, strerror(errno));
  train_json_begin();
  json_t *object = json_loadf(file, JSON_REJECT_DUPLICATES, &broken);
  fclose(file);
  if (!object && train_json_lacked()) return train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for %s", path);
  if (!object)
    return train_fail(error, TRAIN_EXIT_TROUBLE, "%s is no usable configuration: its JSON is broken in line %d: %.120s",
                      path, broken.line, broken.text);
  const reading r = {object, path, error};
  const bool good = read_config(&r, config);
  json_decref(object);
  return train_json_lacked() ? train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for %s", path) : good;
}
