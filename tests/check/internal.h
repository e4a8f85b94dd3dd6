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
  bool numbers; /* SCRATCH that no argument points at */
} check_buffer;

/* A bound of an output. of[i] is that of element i of the view, negative where the terms of a sum cancelled. */
struct check_limit {
  int buffer;
  tigon_tensor view; /* into the buffer, transposed or not */
  double ulps, factor, *of;
};

/* How a run differs from that of its case. */
struct check_twist {
  int64_t dims[CHECK_DIMS]; /* instead of the shape's, unless 0 */
  bool plants;
  int plant_in; /* this buffer's element plant_at holds plant_value */
  int64_t plant_at;
  double plant_value;
  int64_t offset;     /* elements from a page to the first element of every tensor */
  int64_t pitch;      /* elements from one index of the first dimension to the next */
  const check *whole; /* inputs are those of this run on more rows, from its row `first` on */
  int64_t first;
  const check *shared; /* inputs lie where this run's do */
  bool aliases; /* buffer `over` lies where buffer `under` does, `shift` elements further; the sweep judges the call */
  bool apart;   /* or has its values, as many bytes, in memory of its own */
  int under, over; /* over: 0 for none */
  int64_t shift;
};

/* Keeps the first failure of a run. */
__attribute__((format(printf, 2, 3))) void check_fail(check *k, const char *format, ...);

int64_t check_elements(const tigon_tensor *t);
/* Elements before the first of the tensor being made in that of a run on more rows, whose values it gets. */
int64_t check_elements_before(const check *k, const tigon_tensor *t);
/* What was allocated; without memory the process ends, with the command line's status for trouble. */
void *check_need(void *memory);
/* One more of k->buffers. */
check_buffer *check_add_buffer(check *k);

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
  void *args; /* allocated by malloc */
};
/* Its values, of an output, too, are in [-factor, factor]. */
tigon_tensor check_timed_tensor(check *k, const char *name, tigon_dtype dtype, int ndim, const int64_t *shape,
                                check_role role, double factor);
tigon_tensor check_timed_indices(check *k, const char *name, tigon_dtype dtype, int ndim, const int64_t *shape,
                                 int64_t low, int64_t high);
enum { CHECK_BLOCK = 1 << 19 }; /* random elements that fill a timed tensor over and over */
/* A tensor of the huge sweep, whose runs are timed ones with a twist. */
check_buffer *check_huge_buffer(check *k, const char *name, const tigon_tensor *t, check_role role, bool *fresh);
void *check_timed_memory(check *k, const char *name, size_t bytes, bool listed); /* the host's, even beyond `most` */

/* A run's buffers on a device that has memory of its own, while its call is made: device.c. */
typedef struct check_away {
  void *args;
  char *block, **place; /* on the device; of each buffer's inner bytes */
} check_away;
bool check_is_away(const check *k);
/* The arguments as the device's call has them; NULL: it has no memory for the run. */
const void *check_send(check *k, const void *args, size_t bytes, check_away *away);
void check_fetch(check *k, check_away *away);

bool check_buffers_intact(check *k);
/* Nothing was: of a call that was refused. */
void check_unwritten(check *k);
/* Takes the bytes of all buffers for what they were before the call. */
void check_snapshot(check *k);
/* Outputs against the oracle's: within its limits, and those without a bound exactly. */
void check_known(check *k);
void check_exact(check *k);
/* All outputs of two runs of one case, bit by bit; they may lie differently. */
bool check_same_bits(check *k, const check *other, const char *what);
/* Outputs that have rows against those of a run on more, from its row `first` on. How many there are. */
int check_same_rows(check *k, const check *whole, int64_t first);
void check_release(check *k);
/* For a thread that ends: returns the mappings that check_release() kept for its next run. */
void check_drop_spares(void);

/* One run; what it made stays in k. `oracle` is NULL on the oracle. If it has limits, they are not worked out again. */
void check_run(check *k, const check_case *c, tigon_context *context, uint64_t seed, check_place place,
               const check *oracle, const check_twist *twist);
void check_add_errors(check_errors *to, const check_errors *from);

#endif
