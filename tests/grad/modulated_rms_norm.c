#include "grad.h"

enum { ROWS = 6, COLS = 7, N = ROWS * COLS };

typedef struct state {
  double x[N], w[COLS], scale[N], shift[N], y[N], dy[N], dx[N], dw[COLS], dscale[N], dshift[N];
  float rstd[ROWS];
  float w_offset;
  bool has_w, has_shift;
  int groups; /* rows of scale and shift */
} state;

static double loss(void *argument) {
  state *t = argument;
  const tigon_modulated_rms_norm_fwd_problem p = {GRAD_SHAPE,
                                                  .w_dtype = GRAD_F64,
                                                  .x = grad_rows(t->x, COLS),
                                                  .y = grad_rows(t->y, COLS),
                                                  .w = t->has_w ? t->w : NULL,
                                                  .rstd = t->rstd,
                                                  .eps = 1e-5f,
                                                  .w_offset = t->w_offset,
                                                  .casting = TIGON_CASTING_GEMMA,
                                                  .groups = {t->groups, 1, t->groups},
                                                  .share = ROWS / t->groups,
                                                  .scale_dtype = GRAD_F64,
                                                  .shift_dtype = GRAD_F64,
                                                  .scale = grad_rows(t->scale, COLS),
                                                  .shift = grad_rows(t->has_shift ? t->shift : NULL, COLS)};
  tigon_ref_modulated_rms_norm_fwd(NULL, &p);
  return grad_dot(t->y, t->dy, N);
}

/* rstd passes from forward to backward in f32: 6e-8 of it is lost, which bounds what the comparison can show. */
static void compare(int groups, bool has_w, bool has_shift, float w_offset) {
  state t = {.groups = groups, .has_w = has_w, .has_shift = has_shift, .w_offset = w_offset};
  grad_fill(t.x, N, 1);
  grad_fill(t.w, COLS, 2);
  grad_fill(t.scale, N, 3);
  grad_fill(t.shift, N, 4);
  grad_fill(t.dy, N, 5);
  loss(&t);
  const tigon_modulated_rms_norm_bwd_problem p = {GRAD_SHAPE,
                                                  .w_dtype = GRAD_F64,
                                                  .dw_dtype = GRAD_F64,
                                                  .dy = grad_rows(t.dy, COLS),
                                                  .x = grad_rows(t.x, COLS),
                                                  .dx = grad_rows(t.dx, COLS),
                                                  .w = has_w ? t.w : NULL,
                                                  .rstd = t.rstd,
                                                  .dw = has_w ? t.dw : NULL,
                                                  .w_offset = w_offset,
                                                  .casting = TIGON_CASTING_GEMMA,
                                                  .groups = {groups, 1, groups},
                                                  .share = ROWS / groups,
                                                  .scale_dtype = GRAD_F64,
                                                  .dscale_dtype = GRAD_F64,
                                                  .dshift_dtype = GRAD_F64,
                                                  .scale = grad_rows(t.scale, COLS),
                                                  .dscale = grad_rows(t.dscale, COLS),
                                                  .dshift = grad_rows(has_shift ? t.dshift : NULL, COLS)};
  tigon_ref_modulated_rms_norm_bwd(NULL, &p);
  grad_expect("dx", loss, &t, t.x, t.dx, N, 1e-6);
  grad_expect("dscale", loss, &t, t.scale, t.dscale, groups * COLS, 1e-6);
  if (has_w) grad_expect("dw", loss, &t, t.w, t.dw, COLS, 1e-6);
  if (has_shift) grad_expect("dshift", loss, &t, t.shift, t.dshift, groups * COLS, 1e-6);
}

static void test_one_scale(void **s) { (void)s, compare(1, true, true, 0); }
static void test_batches(void **s) { (void)s, compare(3, true, true, 1); }
static void test_every_row(void **s) { (void)s, compare(ROWS, true, true, 0); }
static void test_no_weight(void **s) { (void)s, compare(2, false, true, 0); }
static void test_no_shift(void **s) { (void)s, compare(2, true, false, 0); }

GRAD_MAIN(cmocka_unit_test(test_one_scale), cmocka_unit_test(test_batches), cmocka_unit_test(test_every_row),
          cmocka_unit_test(test_no_weight), cmocka_unit_test(test_no_shift))
