#include "grad.h"

/* Batches, channels, tokens; places and weights at most. */
enum {
  B = 2,
  IN = 4,
  OUT = 2,
  T = 5,
  PLACES = 10,
  SCORES = B * IN * T * T,
  O = B * OUT * PLACES * PLACES,
  WEIGHTS = 96
};

typedef struct state {
  double s[SCORES], weight[WEIGHTS], bias[OUT], stat[B * IN * PLACES], o[O], q[O];
  double ds[SCORES], dweight[WEIGHTS], dbias[OUT];
  tigon_multi_token_attention_problem p;
} state;

static double loss(void *argument) {
  state *t = argument;
  tigon_ref_multi_token_attention_fwd(NULL, &t->p);
  return grad_dot(t->o, t->q, O);
}

static void expect_gradients(bool pre, bool sparse, int64_t groups, tigon_window h, tigon_window w) {
  state t = {0};
  grad_fill(t.s, SCORES, 1);
  grad_fill(t.weight, WEIGHTS, 2);
  grad_fill(t.bias, OUT, 3);
  grad_fill(t.q, O, 4);
  const int64_t rows = tigon_window_places(&h, T), cols = tigon_window_places(&w, T);
  t.p = (tigon_multi_token_attention_problem){.space = {B * IN * T, 1, B * IN * T},
                                              .out_space = {B * OUT * rows, 1, B * OUT * rows},
                                              .batch = B,
                                              .in = IN,
                                              .out = OUT,
                                              .groups = groups,
                                              .tokens = T,
                                              .rows = rows,
                                              .cols = cols,
                                              .h = h,
                                              .w = w,
                                              .dtype = GRAD_F64,
                                              .s = grad_rows(t.s, T),
                                              .ds = grad_rows(t.ds, T),
                                              .o = grad_rows(t.o, (int)cols),
                                              .weight = grad_vector(t.weight),
                                              .stat = grad_vector(t.stat),
                                              .dweight = grad_vector(t.dweight),
                                              .pre = pre,
                                              .sparse = sparse};
  assert_true(rows <= PLACES && cols <= PLACES && IN / groups * OUT * h.taps * w.taps <= WEIGHTS);
  if (!pre) t.p.bias = grad_vector(t.bias), t.p.dbias = grad_vector(t.dbias);
  loss(&t);
  tigon_multi_token_attention_problem bwd = t.p;
  bwd.o = grad_rows(t.q, (int)cols);
  tigon_ref_multi_token_attention_bwd(NULL, &bwd);
  grad_expect("ds", loss, &t, t.s, t.ds, SCORES, 1e-6);
  grad_expect("dweight", loss, &t, t.weight, t.dweight, (int)(IN / groups * OUT * h.taps * w.taps), 1e-6);
  if (!pre) grad_expect("dbias", loss, &t, t.bias, t.dbias, OUT, 1e-6);
}

static void test_gradients(void **s) {
  (void)s;
  const tigon_window three = {3, 1, 1, 1}, two = {2, 1, 0, 1}, wide = {3, 1, 2, 2}, strided = {3, 2, 1, 1};
  for (int pre = 0; pre < 2; ++pre) {
    expect_gradients(pre, false, 1, three, three);
    expect_gradients(pre, false, 2, two, wide);
    expect_gradients(pre, false, 1, strided, two);
    expect_gradients(pre, false, 2, wide, strided);
  }
}

/* The support of a sparse row must not change within a step. */
static void test_sparse(void **s) {
  (void)s;
  const tigon_window three = {3, 1, 1, 1}, strided = {2, 2, 1, 1};
  expect_gradients(false, true, 1, three, three);
  expect_gradients(false, true, 2, strided, three);
  expect_gradients(true, true, 2, three, three);
}

GRAD_MAIN(cmocka_unit_test(test_gradients), cmocka_unit_test(test_sparse))
