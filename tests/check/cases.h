/* The cases that are timed, for `tigon bench` and bench/peers_cpu.py. A timed case is a case of the check: the same run
 * function makes its tensors and arguments, in warm memory without guard zones, and its call is then made as often as
 * wanted. The check runs these cases, too, with fewer rows. */
#ifndef TIGON_CHECK_CASES_H
#define TIGON_CHECK_CASES_H

#include "check/check.h"

typedef enum bench_mode { BENCH_FWD, BENCH_BWD, BENCH_FULL, BENCH_STEP, BENCH_CLIP, BENCH_MODES } bench_mode;
const char *bench_mode_name(bench_mode mode);

/* A size; what rows and cols are is the case's own. */
typedef struct bench_point {
  int64_t rows, cols;
  int64_t other;              /* the third size: N of linear, words; 0 when the op has none */
  int64_t head_dim, kv_heads; /* 0: as the case chooses */
  bool as_weight;             /* dweight has the weight's dtype where the case has it in f32 otherwise */
  int threads;
  const char *model; /* NULL: no model's */
} bench_point;

enum { BENCH_AS_ROWS = -1, BENCH_AS_COLS = -2 }; /* values of bench_case.other */

typedef struct bench_case {
  const char *op;
  const char *shape_note;       /* what ROWSxCOLS is, where that is not plain */
  int64_t rows_f32, rows_16bit; /* default shape: tensors of 64 MiB and more for the ops that memory bounds */
  int64_t cols, other;
  void (*dims)(const bench_point *at, int64_t dims[CHECK_DIMS]); /* of the op's check */
  int option[BENCH_MODES];                                       /* of the op's check */
  bool full_in_one;                                              /* full is one call of fwd, not fwd, then bwd */
  double products[BENCH_FULL + 1]; /* matrix products of rows x cols x (other, else rows); 0: memory bounds the op */
} bench_case;

/* The case of `op`; NULL when there is none. */
const bench_case *bench_case_find(const char *op);
/* May a point of the case be as_weight? */
bool bench_has_as_weight(const bench_case *chosen);
int bench_option(const bench_case *chosen, bench_mode mode, const bench_point *at); /* of the op's check */
/* The third size of a point that has none yet. */
int64_t bench_other(const bench_case *chosen, const bench_point *at);
const char *const *bench_model_names(void); /* NULL-terminated */
/* The index-th model's size; false when it has no such case. */
bool bench_model_point(const bench_case *chosen, int index, bench_point *point);
/* The index-th timed case of an entry with so few rows that the oracle is quick; false past the last one. */
bool bench_case_small(int entry, int index, int64_t dims[CHECK_DIMS], int *option);

/* ---- memory and calls ---- */

typedef struct bench_data {
  const bench_case *chosen;
  check memory; /* what all modes of the case share: tensors of one name and size are one */
  struct bench_mode_data {
    int entry; /* in ops.def; < 0: no such mode */
    void *args;
    double bytes, flops; /* that must move; of matrix products, 0: memory bounds the op */
    bool reads_only;     /* the floor is the read rate */
    size_t workspace_bytes;
  } mode[BENCH_MODES];
  size_t bytes; /* that all tensors have, there or not */
} bench_data;

/* Makes the tensors and arguments of every mode. On an error nothing is left but `bytes`; OUT_OF_MEMORY also when they are
 * more than `most_bytes`, 0 of which makes nothing. */
tigon_status bench_data_open(bench_data *data, const bench_case *chosen, tigon_context *context, tigon_dtype dtype,
                             const bench_point *at, size_t most_bytes);
/* One call of a mode: "full" is forward, then backward, unless one call does both. */
tigon_status bench_call(const bench_data *data, bench_mode mode);
void bench_data_close(bench_data *data);

#endif
