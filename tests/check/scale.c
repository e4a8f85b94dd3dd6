/* scale. Options walk what may be in place, and a factor of 1. */
#include "check/cases.h"

enum { IN_PLACE = 1, ONE = 2, OPTIONS = 4 };

/* The product of two numbers of f32 is exact in double. 16-bit dtypes round it to f32 first. */
static void fwd(check *k) {
  const bool in_place = k->option & IN_PLACE;
  const int64_t one = 1;
  const tigon_tensor x = check_rows(k, "x", k->fill, in_place);
  const tigon_tensor factor = check_inout_dense(k, "factor", TIGON_F32, 1, &one, CHECK_UNIFORM);
  if (!k->timed && k->option & ONE) *(float *)factor.data = 1;
  const tigon_tensor y = in_place ? x : check_out(k, "y", k->dtype, 2, k->dims);
  const tigon_scale_fwd_args args = {.x = x, .factor = factor, .y = y};
  check_call(k, &args);
  check_bound(k, &y, k->dtype == TIGON_F32 ? 0 : 1, 0, NULL);
}

MUTANT(drop_tail, scale_fwd, m.cols -= m.cols > 1)
MUTANT(drop_row, scale_fwd, check_drop_last_row(&m.space))
static const check_mutant wrong[] = {{"drops the last column", drop_tail}, {"drops the last row", drop_row}, {0}};

static const bench_case timed = {.op = "scale", .rows_f32 = 4096, .rows_16bit = 8192, .cols = 4096};

const check_op tigon_check_scale_fwd = {fwd, check_row_shapes, OPTIONS, true, wrong, &timed, NULL};
