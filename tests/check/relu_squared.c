/* relu_squared. Options walk what may be in place. */
#include "check/cases.h"

enum { OPTIONS = 3 };

/* Half an ulp of f32; 16-bit products are exact there, so that their one rounding is right. */
static void fwd(check *k) {
  const bool in_place = k->option > 0;
  const tigon_tensor x = check_rows(k, "x", k->fill, in_place);
  const tigon_tensor y = in_place ? x : check_out(k, "y", k->dtype, 2, k->dims);
  const tigon_relu_squared_fwd_args args = {.x = x, .y = y};
  check_call(k, &args);
  check_bound(k, &y, 0, 0, NULL);
}

static void bwd(check *k) {
  const tigon_tensor x = check_rows(k, "x", k->fill, k->option == 1);
  const tigon_tensor dy = check_rows(k, "dy", CHECK_UNIFORM, k->option == 2);
  const tigon_tensor dx = k->option == 1 ? x : k->option == 2 ? dy : check_out(k, "dx", k->dtype, 2, k->dims);
  const tigon_relu_squared_bwd_args args = {.dy = dy, .x = x, .dx = dx};
  check_call(k, &args);
  check_bound(k, &dx, 0, 0, NULL);
}

MUTANT(drop_tail, relu_squared_fwd, m.cols -= m.cols > 1)
MUTANT(bwd_swap, relu_squared_bwd, m.in[0] = p->in[1]; m.in[1] = p->in[0])
static const check_mutant wrong_fwd[] = {
    {"drops the last column", drop_tail},
    {0},
};
static const check_mutant wrong_bwd[] = {
    {"swaps x and dy", bwd_swap},
    {0},
};

static const bench_case timed = {.op = "relu_squared", .rows_f32 = 4096, .rows_16bit = 8192, .cols = 4096};

const check_op tigon_check_relu_squared_fwd = {fwd, check_row_shapes, OPTIONS, true, wrong_fwd, &timed, NULL};
const check_op tigon_check_relu_squared_bwd = {bwd, check_row_shapes, OPTIONS, true, wrong_bwd, &timed, NULL};
