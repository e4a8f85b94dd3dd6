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

/* One call of an entry of ops.def, with its argument struct. */
tigon_status check_entry_call(int entry, tigon_context *context, const void *args);
/* The op's run function, of k->entry. */
void check_entry_run(check *k);

/* What the runs of a timed case add up. */
struct check_timed {
  size_t held, most;    /* bytes of all tensors; beyond `most` none is made */
  double read, written; /* bytes that one call must */
  size_t workspace_bytes;
  void *args; /* of malloc */
};
tigon_tensor check_timed_tensor(check *k, const char *name, tigon_dtype dtype, int ndim, const int64_t *shape,
                                check_role role);
tigon_tensor check_timed_indices(check *k, const char *name, tigon_dtype dtype, int ndim, const int64_t *shape,
                                 int64_t low, int64_t high);
void *check_timed_memory(check *k, const char *name, size_t bytes, bool always); /* even beyond `most` */

bool check_buffers_intact(check *k);
/* Outputs without a bound against the oracle's, exactly. */
void check_exact(check *k);
/* All outputs of two runs of one case, bit by bit. */
bool check_same_bits(check *k, const check *other, const char *what);
void check_release(check *k);

#endif
