/* Sweeps: what every entry of ops.def is put through beside its cases. A sweep runs the entry's own run function on small
 * sizes of its own (check_sizes), changed in one way (check_twist), so a new operator is in all of them. */
#ifndef TIGON_CHECK_SWEEP_H
#define TIGON_CHECK_SWEEP_H

#include "check/check.h"

/* One entry, dtype and variant. */
typedef struct check_target {
  int entry;
  tigon_dtype dtype;
  const char *device;
  const tigon_kernels *kernels;
} check_target;

typedef struct check_tally {
  int part, parts; /* runs every parts-th run of a sweep, from the part-th on */
  int64_t seen;    /* runs, those of other parts too */
  int64_t runs, failed;
  int64_t other_kind; /* elements, see check.h */
  char failure[512];  /* the first */
} check_tally;

typedef struct check_sweep {
  const char *name, *what;
  void (*run)(const check_target *target, check_tally *tally);
  bool on_host;  /* only for tensors in the host's memory */
  bool in_parts; /* takes a part of its runs */
} check_sweep;

/* The index-th sweep; NULL past the last one. */
const check_sweep *check_sweep_at(int index);

/* Is the next run one of the part's? */
bool check_takes(check_tally *tally);

void check_sweep_values(const check_target *target, check_tally *tally);
void check_sweep_shapes(const check_target *target, check_tally *tally);
void check_sweep_repeat(const check_target *target, check_tally *tally);
void check_sweep_batch(const check_target *target, check_tally *tally);
void check_sweep_alias(const check_target *target, check_tally *tally);
void check_sweep_far(const check_target *target, check_tally *tally);
void check_sweep_huge(const check_target *target, check_tally *tally);
void check_sweep_path(const check_target *target, check_tally *tally);
void check_sweep_crowd(const check_target *target, check_tally *tally);

/* ---- sizes ---- */

/* Dimensions of that size; false when the op has none. */
bool check_dims(int entry, check_size size, int64_t dims[CHECK_DIMS]);
/* The walk-th way that the op's dimensions follow n; false past the last one. */
bool check_dims_walk(int entry, int walk, int64_t n, int64_t dims[CHECK_DIMS]);
/* What f32 and bf16 inputs may hold anywhere. */
double check_large(int entry);
/* Do this option's rows not depend on how many there are? */
bool check_rows_apart(int entry, int option);

/* ---- the two contexts of a sweep ---- */

typedef struct check_pair {
  tigon_context *oracle, *context;
} check_pair;

check_pair check_pair_open(const check_target *target, int threads);
void check_pair_close(check_pair *pair);

/* The op and option of a run without a shape of the tables. */
check_case check_case_of(const check_target *target, int option);
/* One more run, failed when `failure` is not empty; `format` says which. */
__attribute__((format(printf, 3, 4))) void check_count(check_tally *tally, const char *failure, const char *format,
                                                       ...);

#endif
