#include "shards.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "json_memory.h"

static bool broken(const char *index, const char *what, train_error *error) {
  return train_fail(error, TRAIN_EXIT_TROUBLE, "%s is no usable index: %s", index, what);
}

/* The file `name` of the folder, unless it is open already. */
static bool open_shard(const char *folder, const char *index, const char *name, train_shards *s, train_error *error) {
  char path[TRAIN_PATH];
  if (!*name || strchr(name, '/')) return broken(index, "its weight_map names something outside its folder", error);
  if (!train_path_join(folder, name, path, error)) return false;
  for (int64_t i = 0; i < s->count; ++i)
    if (strcmp(s->files[i].path, path) == 0) return true;
  if (access(path, F_OK) != 0)
    return train_fail(error, TRAIN_EXIT_TROUBLE, "%s is missing, which %s names", path, index);
  if (!train_safetensors_open(path, &s->files[s->count], error)) return false;
  ++s->count;
  return true;
}

static bool open_shards(const char *folder, const char *index, train_shards *s, train_error *error) {
  json_error_t wrong;
  train_json_begin();
  json_t *object = train_json_whole(json_load_file(index, JSON_REJECT_DUPLICATES, &wrong));
  if (!object && train_json_lacked()) return train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for %s", index);
  if (!object)
    return train_fail(error, TRAIN_EXIT_TROUBLE, "%s is no usable index: its JSON is broken in line %d: %.120s", index,
                      wrong.line, wrong.text);
  json_t *map = json_object_get(object, "weight_map"), *file;
  const char *name;
  bool good = json_object_size(map) > 0;
  if (!good) broken(index, "it has no weight_map", error);
  s->files = calloc(json_object_size(map) + 1, sizeof *s->files);
  if (!s->files) {
    train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for %s", index);
    good = false;
  }
  json_object_foreach(map, name, file) { /* GCOVR_EXCL_BR_LINE a key of jansson has a value */
    const char *text = json_string_value(file);
    if (good && !text) good = broken(index, "its weight_map holds something that is no text", error);
    good = good && open_shard(folder, index, text, s, error);
  }
  json_decref(object);
  return good;
}

static bool open_one(const char *path, train_shards *s, train_error *error) {
  s->files = calloc(1, sizeof *s->files);
  if (!s->files) return train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for %s", path);
  s->count = train_safetensors_open(path, s->files, error);
  return s->count == 1;
}

bool train_shards_open(const char *folder, train_shards *s, train_error *error) {
  char one[TRAIN_PATH], index[TRAIN_PATH];
  *s = (train_shards){0};
  if (!train_path_join(folder, "model.safetensors", one, error) ||
      !train_path_join(folder, "model.safetensors.index.json", index, error))
    return false;
  const bool whole = access(one, F_OK) == 0 || access(index, F_OK) != 0;
  if (whole ? open_one(one, s, error) : open_shards(folder, index, s, error)) return true;
  train_shards_close(s);
  return false;
}

void train_shards_close(train_shards *s) {
  for (int64_t i = 0; i < s->count; ++i) train_safetensors_close(&s->files[i]);
  free(s->files);
  *s = (train_shards){0};
}

const train_safetensors *train_shards_holder(const train_shards *s, const char *name) {
  for (int64_t i = 0; i < s->count; ++i)
    if (train_safetensors_find(&s->files[i], name)) return &s->files[i];
  return s->files;
}
