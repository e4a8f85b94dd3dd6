/* Libraries that are found at run time: their functions, by name, in a struct of pointers. */
#ifndef TIGON_CORE_OUTSIDE_H
#define TIGON_CORE_OUTSIDE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct tigon_symbol {
  const char *name;
  size_t offset; /* offset of its pointer in the struct */
} tigon_symbol;

/* Fills `api` with functions of an open library. The name of the first that it lacks; NULL: none. */
const char *tigon_symbols_find(void *library, const tigon_symbol *symbols, size_t count, void *api);

/* A library that is wanted with all of its functions or not at all. */
typedef struct tigon_outside {
  const char *const *names; /* that it may have, ended by NULL: the first with all functions is taken */
  const tigon_symbol *symbols;
  size_t count;
  void *api;
  pthread_mutex_t lock;
  bool ready;
} tigon_outside;

/* Its api, looked for until that succeeds once in the process; NULL: it is not there, or lacks a function. */
const void *tigon_outside_api(tigon_outside *library);

#endif
