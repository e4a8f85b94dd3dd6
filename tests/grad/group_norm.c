#include "grad.h"

enum { BATCH = 2, GROUPS = 2, CHANNELS = 3, RUN = 4, ALL = GROUPS * CHANNELS, N = BATCH * ALL * RUN };

typedef struct state {
  double x[N], w[ALL], b[ALL], y[N], dy[N], dx[N], dw[ALL], db[ALL];
  float mean[BATCH * GROUPS], rstd[BATCH * GROUPS];
  bool affine;
} state;

static tigon_planes planes(double *data) { return (tigon_planes){data, ALL * RUN, RUN}; }

static double loss(void *argument) {
  state *t = argument;
  const tigon_group_norm_fwd_problem p = {.batch = BATCH,
                                          .groups = GROUPS,
                                          .channels = CHANNELS,
                                          .run = RUN,
                                          .dtype = GRAD_F64,
                                          .w_dtype = GRAD_F64,
                                          .b_dtype = GRAD_F64,
                                          .x = planes(t->x),
                                          .y = planes(t->y),
                                          .w = t->affine ? t->w : NULL,
                                          .b = t->affine ? t->b : NULL,
                                          .mean = t->mean,
                                          .rstd = t->rstd,
                                          .eps = 1e-5f};
  tigon_ref_group_norm_fwd(NULL, &p);
  return grad_dot(t->y, t->dy, N);
}

/* mean and rstd pass from forward to backward in f32, which bounds what the comparison can show. */
static void compare(bool affine) {
  state t = {.affine = affine};
  grad_fill(t.x, N, 1);
  grad_fill(t.w, ALL, 2);
  grad_fill(t.b, ALL, 3);
  grad_fill(t.dy, N, 4);
  loss(&t);
  const tigon_group_norm_bwd_problem p = {.batch = BATCH,
                                          .groups = GROUPS,
                                          .channels = CHANNELS,
                                          .run = RUN,
                                          .dtype = GRAD_F64,
                                          .w_dtype = GRAD_F64,
                                          .dw_dtype = GRAD_F64,
                                          .db_dtype = GRAD_F64,
                                          .dy = planes(t.dy),
                                          .x = planes(t.x),
                                          .dx = planes(t.dx),
                                          .w = affine ? t.w : NULL,
                                          .mean = t.mean,
                                          .rstd = t.rstd,
                                          .dw = affine ? t.dw : NULL,
                                          .db = affine ? t.db : NULL};
  tigon_ref_group_norm_bwd(NULL, &p);
  grad_expect("dx", loss, &t, t.x, t.dx, N, 1e-6);
  if (!affine) return;
  grad_expect("dw", loss, &t, t.w, t.dw, ALL, 1e-6);
  grad_expect("db", loss, &t, t.b, t.db, ALL, 1e-6);
}

static void test_affine(void **s) { (void)s, compare(true); }
static void test_no_affine(void **s) { (void)s, compare(false); }

GRAD_MAIN(cmocka_unit_test(test_affine), cmocka_unit_test(test_no_affine))
