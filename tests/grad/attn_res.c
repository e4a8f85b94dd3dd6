#include "grad.h"

enum { ROWS = 3, COLS = 7, BLOCKS = 4, N = ROWS * COLS, ALL = BLOCKS * N };

typedef struct state {
  double v[ALL], q[COLS], wn[COLS], h[N], dh[N], a[ROWS * BLOCKS], rstd[ROWS * BLOCKS];
  double dv[ALL], dq[COLS], dwn[COLS];
  const void *at[BLOCKS];
  bool listed;
} state;

static tigon_blocks blocks(state *t, double *data, const void *const *at) {
  return (tigon_blocks){.rows = grad_rows(data, COLS), .step = N, .at = t->listed ? at : NULL};
}

static tigon_attn_res_problem problem(state *t, double *h) {
  for (int i = 0; i < BLOCKS; ++i) t->at[i] = t->v + i * N;
  return (tigon_attn_res_problem){GRAD_SHAPE,
                                  .blocks = BLOCKS,
                                  .v = blocks(t, t->v, t->at),
                                  .dv = {.rows = grad_rows(t->dv, COLS), .step = N},
                                  .h = grad_rows(h, COLS),
                                  .q = grad_vector(t->q),
                                  .wn = grad_vector(t->wn),
                                  .dq = grad_vector(t->dq),
                                  .dwn = grad_vector(t->dwn),
                                  .a = (float *)t->a,
                                  .rstd = (float *)t->rstd,
                                  .eps = 1e-6f};
}

static double loss(void *argument) {
  state *t = argument;
  const tigon_attn_res_problem p = problem(t, t->h);
  tigon_ref_attn_res_fwd(NULL, &p);
  return grad_dot(t->h, t->dh, N);
}

static void test_gradients(void **s) {
  (void)s;
  for (int listed = 0; listed < 2; ++listed) {
    state t = {.listed = listed};
    grad_fill(t.v, ALL, 1);
    grad_fill(t.q, COLS, 2);
    grad_fill(t.wn, COLS, 3);
    grad_fill(t.dh, N, 4);
    loss(&t);
    const tigon_attn_res_problem p = problem(&t, t.dh);
    tigon_ref_attn_res_bwd(NULL, &p);
    grad_expect("dv", loss, &t, t.v, t.dv, ALL, 1e-6);
    loss(&t);
    grad_expect("dq", loss, &t, t.q, t.dq, COLS, 1e-6);
    grad_expect("dwn", loss, &t, t.wn, t.dwn, COLS, 1e-6);
  }
}

GRAD_MAIN(cmocka_unit_test(test_gradients))
