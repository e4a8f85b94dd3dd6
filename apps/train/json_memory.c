#include "json_memory.h"

#include <stdlib.h>

static _Thread_local bool lacked;

static void *allocate(size_t bytes) {
  void *memory = malloc(bytes);
  if (!memory) lacked = true;
  return memory;
}

__attribute__((constructor)) static void watch(void) { json_set_alloc_funcs(allocate, free); }

void train_json_begin(void) { lacked = false; }
bool train_json_lacked(void) { return lacked; }
json_t *train_json_whole(json_t *read) {
  if (!lacked) return read;
  json_decref(read);
  return NULL;
}
char *train_json_text(const json_t *value, size_t flags) {
  char *text = lacked ? NULL : json_dumps(value, flags);
  if (!lacked) return text;
  free(text);
  return NULL;
}
