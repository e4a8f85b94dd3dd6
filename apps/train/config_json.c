#include "config_json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "json_memory.h"

static const char *const rope_kinds[] = {
    [TRAIN_ROPE_DEFAULT] = "default", [TRAIN_ROPE_LINEAR] = "linear", [TRAIN_ROPE_LLAMA3] = "llama3"};
enum { ROPE_KINDS = sizeof rope_kinds / sizeof *rope_kinds };

/* NULL for the default, which no version of transformers names there. */
static json_t *rope_scaling(const train_rope_scaling *s) {
  if (s->kind == TRAIN_ROPE_DEFAULT) return NULL;
  json_t *object = json_pack("{s:s, s:f}", "rope_type", rope_kinds[s->kind], "factor", s->factor);
  if (s->kind == TRAIN_ROPE_LINEAR) return object;
  json_object_set_new(object, "low_freq_factor", json_real(s->low_freq_factor));
  json_object_set_new(object, "high_freq_factor", json_real(s->high_freq_factor));
  json_object_set_new(object, "original_max_position_embeddings", json_integer((json_int_t)s->original_positions));
  return object;
}

json_t *train_config_json(const train_config *c) {
  /* rope_theta and rope_scaling are for transformers 4, rope_parameters, which has both, for 5. No special tokens: Llama's
   * defaults 1 and 2 would be bytes of the text. */
  json_t *scaling = rope_scaling(&c->rope), *parameters = scaling ? json_copy(scaling) : json_object();
  json_object_set_new(parameters, "rope_type", json_string(rope_kinds[c->rope.kind]));
  json_object_set_new(parameters, "rope_theta", json_real(c->rope_theta));
  return json_pack("{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:f, s:o*, s:o, s:b, s:b, s:b, "
                   "s:f, s:f, s:n, s:n, s:n, s:b, s:s}",
                   "architectures", "LlamaForCausalLM", "model_type", "llama", "vocab_size", (json_int_t)c->vocab,
                   "hidden_size", (json_int_t)c->hidden, "intermediate_size", (json_int_t)c->intermediate,
                   "num_hidden_layers", (json_int_t)c->layers, "num_attention_heads", (json_int_t)c->heads,
                   "num_key_value_heads", (json_int_t)c->kv_heads, "head_dim", (json_int_t)c->head_dim,
                   "max_position_embeddings", (json_int_t)c->positions, "hidden_act", "silu", "rms_norm_eps",
                   c->rms_eps, "rope_theta", c->rope_theta, "rope_scaling", scaling, "rope_parameters", parameters,
                   "tie_word_embeddings", (int)c->tied, "attention_bias", 0, "mlp_bias", 0, "attention_dropout", 0.0,
                   "initializer_range", 0.02, "bos_token_id", "eos_token_id", "pad_token_id", "use_cache", 1,
                   "torch_dtype", "float32");
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
  if (text && strcmp(text, must) == 0) return true;
  return wrong(r, key, must);
}

static bool read_absent_or(const reading *r, const char *key, json_t *expected, const char *must) {
  const json_t *value = json_object_get(r->object, key);
  const bool good = !value || json_typeof(value) == JSON_NULL || json_equal(value, expected);
  json_decref(expected);
  if (good) return true;
  return wrong(r, key, must);
}

/* What another Llama may have and this one has not. */
static bool read_variants(const reading *r, const train_config *c) {
  return read_absent_or(r, "attention_bias", json_false(), "false") &&
         read_absent_or(r, "mlp_bias", json_false(), "false") &&
         read_absent_or(r, "head_dim", json_integer(c->head_dim), "hidden_size / num_attention_heads");
}

/* An object of transformers 4 (rope_scaling, whose kind was "type" once) or 5 (rope_parameters). */
static bool read_rope_scaling(const reading *r, train_rope_scaling *s) {
  const json_t *kind = json_object_get(r->object, "rope_type"),
               *part = json_object_get(r->object, "partial_rotary_factor");
  const char *name = json_string_value(kind ? kind : json_object_get(r->object, "type"));
  int found = 0;
  if (!name) return wrong(r, "rope_type", "default, linear or llama3");
  while (found < ROPE_KINDS && strcmp(rope_kinds[found], name) != 0) ++found;
  if (found == ROPE_KINDS)
    return train_fail(r->error, TRAIN_EXIT_TROUBLE,
                      "%s is no usable configuration: rope_type is \"%.40s\", must be default, linear or llama3",
                      r->path, name);
  if (part && json_number_value(part) != 1) return wrong(r, "partial_rotary_factor", "1");
  *s = (train_rope_scaling){.kind = (train_rope_kind)found};
  if (s->kind == TRAIN_ROPE_DEFAULT) return true;
  if (!read_real(r, "factor", 1, 1e6, &s->factor)) return false;
  if (s->kind == TRAIN_ROPE_LINEAR) return true;
  if (!read_real(r, "low_freq_factor", 1e-6, 1e6, &s->low_freq_factor) ||
      !read_real(r, "high_freq_factor", 1e-6, 1e6, &s->high_freq_factor))
    return false;
  if (s->low_freq_factor >= s->high_freq_factor) return wrong(r, "high_freq_factor", "above low_freq_factor");
  return read_whole(r, "original_max_position_embeddings", 1 << 30, &s->original_positions);
}

/* Transformers 4 writes rope_theta and rope_scaling, 5 both in rope_parameters; a configuration of ours has all of them. */
static bool read_rope(const reading *r, train_config *c) {
  const json_t *theta = json_object_get(r->object, "rope_theta"), *scaling = json_object_get(r->object, "rope_scaling");
  const json_t *parameters = json_object_get(r->object, "rope_parameters");
  const reading older = {scaling, r->path, r->error}, newer = {parameters, r->path, r->error};
  const bool has_older = scaling && json_typeof(scaling) != JSON_NULL,
             has_newer = parameters && json_typeof(parameters) != JSON_NULL;
  train_rope_scaling other;
  if (has_older && !read_rope_scaling(&older, &c->rope)) return false;
  if (!has_newer) return read_real(r, "rope_theta", 1, 1e12, &c->rope_theta);
  if (!read_rope_scaling(&newer, &other) || !read_real(&newer, "rope_theta", 1, 1e12, &c->rope_theta)) return false;
  const bool alike = c->rope.kind == other.kind && c->rope.factor == other.factor &&
                     c->rope.low_freq_factor == other.low_freq_factor &&
                     c->rope.high_freq_factor == other.high_freq_factor &&
                     c->rope.original_positions == other.original_positions;
  if (has_older && !alike) return wrong(r, "rope_scaling", "that of rope_parameters");
  c->rope = other;
  if (!theta || json_number_value(theta) == c->rope_theta) return true;
  return wrong(r, "rope_theta", "that of rope_parameters");
}

static bool read_config(const reading *r, train_config *c) {
  const json_t *tied = json_object_get(r->object, "tie_word_embeddings");
  if (json_typeof(r->object) != JSON_OBJECT) return wrong(r, "the JSON", "an object");
  if (!read_text(r, "model_type", "llama") || !read_text(r, "hidden_act", "silu") ||
      !read_whole(r, "vocab_size", 1 << 24, &c->vocab) || !read_whole(r, "hidden_size", 65536, &c->hidden) ||
      !read_whole(r, "intermediate_size", 1 << 20, &c->intermediate) ||
      !read_whole(r, "num_hidden_layers", 1024, &c->layers) || !read_whole(r, "num_attention_heads", 1024, &c->heads) ||
      !read_whole(r, "num_key_value_heads", 1024, &c->kv_heads) ||
      !read_whole(r, "max_position_embeddings", 1 << 20, &c->positions) ||
      !read_real(r, "rms_norm_eps", 0, 1, &c->rms_eps) || !read_rope(r, c))
    return false;
  if (!tied || (json_typeof(tied) != JSON_TRUE && json_typeof(tied) != JSON_FALSE))
    return wrong(r, "tie_word_embeddings", "true or false");
  c->tied = json_typeof(tied) == JSON_TRUE;
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
  json_t *object = train_json_whole(json_loadf(file, JSON_REJECT_DUPLICATES, &broken));
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
