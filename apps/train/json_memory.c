#include "json_memory.h"

#include <jansson.h>
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
