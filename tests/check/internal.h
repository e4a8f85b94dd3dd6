/* Shared by the harness's own files. */
#ifndef TIGON_CHECK_INTERNAL_H
#define TIGON_CHECK_INTERNAL_H

#include "check/check.h"

typedef enum check_role {
  CHECK_ROLE_IN,
  CHECK_ROLE_OUT,
  CHECK_ROLE_INOUT,
  CHECK_ROLE_WORKSPACE,
  CHECK_ROLE_SCRATCH, /* the run function's own */
} check_role;

typedef struct check_buffer {
  const char *name;
  check_role role;
  tigon_tensor tensor;
  char *map, *inner, *start; /* protected page, then inner, then protected page; start: the first element */
  size_t map_bytes, inner_bytes, bytes;
  char *before; /* inner as it was before the call */
  bool bounded;
} check_buffer;

/* Keeps the first failure of a run. */
__attribute__((format(printf, 2, 3))) void check_fail(check *k, const char *format, ...);

/* Elements from data to element `index` in row-major order. */
int64_t check_offset(const tigon_tensor *t, int64_t index);

bool check_buffers_intact(check *k);
/* Outputs without a bound against the oracle's, exactly. */
void check_exact(check *k);
/* All outputs of two runs of one case, bit by bit. */
bool check_same_bits(check *k, const check *other, const char *what);
void check_release(check *k);

#endif
