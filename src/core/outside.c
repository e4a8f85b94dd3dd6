#include "core/outside.h"

#include <dlfcn.h>
#include <string.h>

const char *tigon_symbols_find(void *library, const tigon_symbol *symbols, size_t count, void *api) {
  for (size_t i = 0; i < count; ++i) {
    void *found = dlsym(library, symbols[i].name);
    if (!found) return symbols[i].name;
    memcpy((char *)api + symbols[i].offset, &found, sizeof found);
  }
  return NULL;
}

static bool load(const tigon_outside *l) {
  for (const char *const *name = l->names; *name; ++name) {
    void *library = dlopen(*name, RTLD_NOW | RTLD_LOCAL);
    if (!library) continue;
    if (!tigon_symbols_find(library, l->symbols, l->count, l->api)) return true;
    dlclose(library);
  }
  return false;
}

const void *tigon_outside_api(tigon_outside *library) {
  pthread_mutex_lock(&library->lock);
  if (!library->ready) library->ready = load(library);
  const bool there = library->ready;
  pthread_mutex_unlock(&library->lock);
  return there ? library->api : NULL;
}
