/* A checkpoint's folder: config.json, the index, model.safetensors, optimizer.safetensors and a shard, with a form feed after each.
 * An empty one is absent. A safetensors file that begins with `{` gets the length of its first line in front. What is opened is
 * read, and a small model is loaded. */
#include "checkpoint.h"
#include "config_json.h"
#include "fuzz/scratch.h"

enum { MOST_WEIGHTS = 1 << 16 };
static const char *const names[] = {"config.json", "model.safetensors.index.json", "model.safetensors",
                                    "optimizer.safetensors", "a.safetensors"};
enum { NAMES = sizeof names / sizeof *names };

static void put(const char *name, const uint8_t *data, size_t bytes) {
  char path[128];
  const uint8_t *line = bytes ? memchr(data, '\n', bytes) : NULL;
  if (strstr(name, ".json") || !bytes || data[0] != '{' || !line) {
    if (bytes) scratch_put(name, data, bytes);
    snprintf(path, sizeof path, "%s/%s", scratch_folder(), name);
    if (!bytes) unlink(path);
    return;
  }
  const uint64_t length = (uint64_t)(line - data);
  uint8_t *all = malloc(bytes + 7);
  if (!all) abort();
  for (int i = 0; i < 8; ++i) all[i] = (uint8_t)(length >> (8 * i));
  memcpy(all + 8, data, (size_t)length);
  memcpy(all + 8 + length, line + 1, bytes - (size_t)length - 1);
  scratch_put(name, all, bytes + 7);
  free(all);
}

static void put_all(const uint8_t *data, size_t size) {
  for (int i = 0; i < NAMES; ++i) {
    const uint8_t *end = size ? memchr(data, '\f', size) : NULL;
    const size_t bytes = end ? (size_t)(end - data) : size, step = end ? bytes + 1 : bytes;
    put(names[i], data, bytes);
    data += step, size -= step;
  }
}

/* A failure has a sentence, and only a failure has. */
static bool judge(bool good, const train_error *error) {
  if (good == (error->exit_code != 0) || good == (*error->text != 0)) abort();
  return good;
}

static void read_file(const train_safetensors *file) {
  for (int64_t i = 0; i < file->count; ++i) {
    train_error error = {0};
    void *data = malloc((size_t)file->tensors[i].bytes + 1);
    if (!data) abort();
    judge(train_safetensors_read(file, &file->tensors[i], 0, file->tensors[i].bytes, data, &error), &error);
    free(data);
  }
}

static bool is_small(const train_config *c) {
  const double layer = 4.0 * (double)c->hidden * (double)c->hidden + 3.0 * (double)c->hidden * (double)c->intermediate;
  return 2.0 * (double)c->vocab * (double)c->hidden + (double)c->layers * (layer + 64) < MOST_WEIGHTS;
}

static void load(train_memory *memory, const train_checkpoint *c) {
  train_error error = {0};
  train_model model;
  train_history history = {0};
  if (!judge(train_model_create(memory, &c->config, TIGON_BF16, &model, &error), &error)) return;
  judge(train_checkpoint_load(c, &model, &history, &error), &error);
  train_history_free(&history);
  train_model_destroy(&model);
}

static void read_weights(train_memory *memory) {
  train_error error = {0};
  train_config config;
  train_model model;
  if (!judge(train_config_read(scratch_folder(), &config, &error), &error) || !is_small(&config)) return;
  if (judge(train_checkpoint_read(scratch_folder(), memory, TIGON_F16, &model, &error), &error))
    train_model_destroy(&model);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static train_memory memory;
  if (!memory.context &&
      tigon_context_create(&(tigon_context_desc){.device = "cpu", .threads = 1}, &memory.context) != TIGON_OK)
    abort();
  put_all(data, size);
  train_options options;
  train_options_init(&options);
  train_checkpoint c;
  train_error error = {0};
  if (judge(train_checkpoint_open(scratch_folder(), &c, &options, &error), &error)) {
    for (int64_t i = 0; i < c.model.count; ++i) read_file(&c.model.files[i]);
    if (!c.weights_only) read_file(&c.optimizer);
    if (is_small(&c.config)) load(&memory, &c);
    train_checkpoint_close(&c);
  }
  read_weights(&memory);
  if (memory.now != 0) abort();
  return 0;
}
