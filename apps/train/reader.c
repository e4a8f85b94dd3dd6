#include "reader.h"

#include <errno.h>
#include <inttypes.h>

#include "checkpoint.h"
#include "json_memory.h"

static bool open_context(const train_reader_options *o, train_reader *r, train_error *error) {
  const tigon_context_desc desc = {.device = o->device, .threads = o->threads};
  const tigon_status status = tigon_context_create(&desc, &r->context);
  if (status == TIGON_ERROR_INVALID) return train_fail(error, TRAIN_EXIT_USAGE, "%s", tigon_last_error(NULL));
  r->memory.context = r->context;
  return train_ok(NULL, status, error);
}

static bool open_tokenizer(const train_reader_options *o, train_reader *r, train_error *error) {
  const int64_t vocab = r->model.config.vocab;
  const bool optional = o->tokens_only && !o->tokenizer;
  if (o->tokenizer || train_tokenizer_exists(o->folder))
    r->tokenizer = train_tokenizer_open(o->tokenizer ? o->tokenizer : o->folder, error);
  else if (vocab == 256)
    r->tokenizer = train_tokenizer_bytes(error);
  else if (!optional)
    return train_fail(error, TRAIN_EXIT_TROUBLE,
                      "%s has no tokenizer.json, and its vocabulary is %" PRId64 ", not 256 bytes: give --tokenizer",
                      o->folder, vocab);
  if (!r->tokenizer) return optional;
  if (train_tokenizer_vocab(r->tokenizer) <= vocab) return true;
  return train_fail(error, TRAIN_EXIT_TROUBLE,
                    "%s has tokens up to %" PRId64 ", must be below the model's vocabulary of %" PRId64,
                    train_tokenizer_path(r->tokenizer), train_tokenizer_vocab(r->tokenizer) - 1, vocab);
}

/* eos_token_id is a token, a list of tokens, or null. False: memory ran out. */
static bool read_ends(const char *folder, const char *name, train_reader *r) {
  char path[TRAIN_PATH];
  train_error none;
  train_json_begin();
  errno = 0;
  json_t *object = train_path_join(folder, name, path, &none) ? train_json_whole(json_load_file(path, 0, NULL)) : NULL;
  if (!object && (errno == ENOMEM || train_json_lacked())) return false;
  const json_t *ends = json_object_get(object, "eos_token_id");
  const size_t count = json_is_array(ends) ? json_array_size(ends) : 1;
  for (size_t i = 0; i < count && r->end_count < TRAIN_ENDS; ++i) {
    const json_t *end = json_is_array(ends) ? json_array_get(ends, i) : ends;
    const json_int_t token = json_integer_value(end);
    if (json_is_integer(end) && token >= 0 && token < r->model.config.vocab) r->ends[r->end_count++] = (int32_t)token;
  }
  json_decref(object);
  return true;
}

bool train_reader_open(const train_reader_options *o, train_reader *r, train_error *error) {
  *r = (train_reader){0};
  if (open_context(o, r, error) &&
      train_checkpoint_read(o->folder, &r->memory, tigon_dtype_from_name(o->dtype), &r->model, error) &&
      open_tokenizer(o, r, error)) {
    if (read_ends(o->folder, "generation_config.json", r) &&
        (r->end_count > 0 || read_ends(o->folder, "config.json", r)))
      return true;
    train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for the tokens that end a text");
  }
  train_reader_close(r);
  return false;
}

void train_reader_close(train_reader *r) {
  train_tokenizer_close(r->tokenizer);
  train_model_destroy(&r->model);
  if (r->context) tigon_context_destroy(r->context);
  *r = (train_reader){0};
}
