#include "grad.h"

enum { ROWS = 3, COLS = 7, N = ROWS * COLS };

typedef struct state {
  double x[N], residual[N], w[COLS], z[N], y[N], s[N], dy[N], ds[N], dx[N], dz[N], dw[COLS];
  float rstd[ROWS];
  float w_offset;
  bool affine, fused, gated;
} state;

static void forward(state *t) {
  const tigon_rms_norm_fwd_problem p = {GRAD_SHAPE,
                                        .w_dtype = GRAD_F64,
                                        .x = grad_rows(t->x, COLS),
                                        .residual = grad_rows(t->residual, COLS),
                                        .s = grad_rows(t->s, COLS),
                                        .z = grad_rows(t->gated ? t->z : NULL, COLS),
                                        .y = grad_rows(t->y, COLS),
                                        .w = t->affine ? t->w : NULL,
                                        .rstd = t->rstd,
                                        .eps = 1e-5f,
                                        .w_offset = t->w_offset,
                                        .casting = TIGON_CASTING_GEMMA};
  if (t->fused)
    tigon_ref_fused_add_rms_norm_fwd(NULL, &p);
  else
    tigon_ref_rms_norm_fwd(NULL, &p);
}

static double loss(void *argument) {
  state *t = argument;
  forward(t);
  return grad_dot(t->y, t->dy, N) + (t->fused ? grad_dot(t->s, t->ds, N) : 0);
}

/* rstd passes from forward to backward in f32: 6e-8 of it is lost, which bounds what the comparison can show. */
static void compare(bool fused, bool affine, bool gated, float w_offset) {
  state t = {.affine = affine, .fused = fused, .gated = gated, .w_offset = w_offset};
  grad_fill(t.x, N, 1);
  grad_fill(t.residual, N, 2);
  grad_fill(t.w, COLS, 3);
  grad_fill(t.dy, N, 4);
  grad_fill(t.ds, N, 5);
  grad_fill(t.z, N, 6);
  forward(&t);
  const tigon_rms_norm_bwd_problem p = {GRAD_SHAPE,
                                        .w_dtype = GRAD_F64,
                                        .dw_dtype = GRAD_F64,
                                        .dy = grad_rows(t.dy, COLS),
                                        .x = grad_rows(fused ? t.s : t.x, COLS),
                                        .dx = grad_rows(t.dx, COLS),
                                        .ds = grad_rows(fused ? t.ds : NULL, COLS),
                                        .z = grad_rows(gated ? t.z : NULL, COLS),
                                        .dz = grad_rows(gated ? t.dz : NULL, COLS),
                                        .w = affine ? t.w : NULL,
                                        .rstd = t.rstd,
                                        .dw = affine ? t.dw : NULL,
                                        .w_offset = w_offset,
                                        .casting = TIGON_CASTING_GEMMA};
  tigon_ref_rms_norm_bwd(NULL, &p);
  grad_expect("dx", loss, &t, t.x, t.dx, N, 1e-6);
  if (fused) grad_expect("dresidual", loss, &t, t.residual, t.dx, N, 1e-6);
  if (gated) grad_expect("dz", loss, &t, t.z, t.dz, N, 1e-6);
  if (affine) grad_expect("dw", loss, &t, t.w, t.dw, COLS, 1e-6);
}

static void test_affine(void **s) { (void)s, compare(false, true, false, 0); }
static void test_gemma_offset(void **s) { (void)s, compare(false, true, false, 1); }
static void test_no_affine(void **s) { (void)s, compare(false, false, false, 0); }
static void test_gate(void **s) { (void)s, compare(false, true, true, 0); }
static void test_gate_offset(void **s) { (void)s, compare(false, true, true, 1); }
static void test_gate_no_affine(void **s) { (void)s, compare(false, false, true, 0); }
static void test_fused_add(void **s) { (void)s, compare(true, true, false, 0); }
static void test_fused_add_no_affine(void **s) { (void)s, compare(true, false, false, 0); }

GRAD_MAIN(cmocka_unit_test(test_affine), cmocka_unit_test(test_gemma_offset), cmocka_unit_test(test_no_affine),
          cmocka_unit_test(test_gate), cmocka_unit_test(test_gate_offset), cmocka_unit_test(test_gate_no_affine),
          cmocka_unit_test(test_fused_add), cmocka_unit_test(test_fused_add_no_affine))
