/* Small calls of any entry, made from its description alone. */
#ifndef TIGON_OPENCL_TRIAL_H
#define TIGON_OPENCL_TRIAL_H

#include "core/schema.h"

enum { TRIAL_BYTES = 1 << 16, TRIAL_ELEMENTS = 2, TRIAL_LIST_BYTES = 2048 };

typedef struct trial {
  int entry;
  const tigon_schema *schema;
  tigon_dtype dtype; /* the main tensor's */
  uint32_t seed;     /* which says all else */
  bool is_wide;      /* a dimension is of 32 elements or more: whole vectors, and mostly a rest */
  size_t used;       /* bytes of memory */
  _Alignas(16) char args[TIGON_MAX_ARGS_BYTES];
  _Alignas(16) char elements[TRIAL_LIST_BYTES]; /* a list's */
  _Alignas(16) char memory[TRIAL_BYTES];        /* where the tensors lie, bytes of 0 between them */
} trial;

/* Makes the call of entry, dtype and seed, whose shapes and numbers a front may refuse. False: the memory is too small. */
bool trial_make(trial *t, int entry, tigon_dtype dtype, uint32_t seed);
void trial_set_workspace(trial *t, void *workspace, size_t bytes);
/* Moves the addresses of all tensors by so much. */
void trial_move(trial *t, uintptr_t by);

/* The k-th tensor of a call, in the order of fields and of a list's elements; NULL past the last. */
tigon_tensor *trial_tensor(trial *t, int k, const tigon_field **field);

#endif
