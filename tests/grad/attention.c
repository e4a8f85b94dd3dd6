#include "grad.h"

enum { BATCH = 2, TOKENS = 5, KEYS = 6, Q_HEADS = 4, K_HEADS = 2, DIM = 3 };
enum { QUERIES = BATCH * Q_HEADS * TOKENS, NQ = QUERIES * DIM, NK = BATCH * KEYS * K_HEADS * DIM };

typedef struct state {
  double q[NQ], k[NK], v[NK], o[NQ], d_o[NQ], dq[NQ], dk[NK], dv[NK];
  float lse[QUERIES];
  float scale;
  bool causal;
  int64_t window;
} state;

static tigon_heads heads(double *data, int64_t tokens, int64_t count) {
  return (tigon_heads){data, count, tokens * count * DIM, count * DIM, DIM};
}

static double loss(void *argument) {
  state *t = argument;
  const tigon_attention_fwd_problem p = {.batch = BATCH,
                                         .tokens = TOKENS,
                                         .keys = KEYS,
                                         .head_dim = DIM,
                                         .dtype = GRAD_F64,
                                         .q = heads(t->q, TOKENS, Q_HEADS),
                                         .k = heads(t->k, KEYS, K_HEADS),
                                         .v = heads(t->v, KEYS, K_HEADS),
                                         .o = heads(t->o, TOKENS, Q_HEADS),
                                         .lse = t->lse,
                                         .scale = t->scale,
                                         .causal = t->causal,
                                         .window = t->window};
  tigon_ref_attention_fwd(NULL, &p);
  return grad_dot(t->o, t->d_o, NQ);
}

static void backward(state *t) {
  const tigon_attention_bwd_problem p = {.batch = BATCH,
                                         .tokens = TOKENS,
                                         .keys = KEYS,
                                         .head_dim = DIM,
                                         .dtype = GRAD_F64,
                                         .q = heads(t->q, TOKENS, Q_HEADS),
                                         .k = heads(t->k, KEYS, K_HEADS),
                                         .v = heads(t->v, KEYS, K_HEADS),
                                         .o = heads(t->o, TOKENS, Q_HEADS),
                                         .d_o = heads(t->d_o, TOKENS, Q_HEADS),
                                         .dq = heads(t->dq, TOKENS, Q_HEADS),
                                         .dk = heads(t->dk, KEYS, K_HEADS),
                                         .dv = heads(t->dv, KEYS, K_HEADS),
                                         .lse = t->lse,
                                         .scale = t->scale,
                                         .causal = t->causal,
                                         .window = t->window};
  tigon_ref_attention_bwd(NULL, &p);
}

static void fill(state *t) {
  grad_fill(t->q, NQ, 1);
  grad_fill(t->k, NK, 2);
  grad_fill(t->v, NK, 3);
  grad_fill(t->d_o, NQ, 4);
}

/* lse passes from forward to backward in f32, which changes every p of a query by up to 6e-8 |lse|; |lse| is below 2 here. */
static void compare(bool causal, int64_t window, float scale) {
  state t = {.causal = causal, .window = window, .scale = scale};
  fill(&t);
  loss(&t);
  backward(&t);
  grad_expect("dq", loss, &t, t.q, t.dq, NQ, 1e-6);
  grad_expect("dk", loss, &t, t.k, t.dk, NK, 1e-6);
  grad_expect("dv", loss, &t, t.v, t.dv, NK, 1e-6);
}

static void test_full(void **s) { (void)s, compare(false, 0, 0.6f); }
static void test_causal(void **s) { (void)s, compare(true, 0, 0.6f); }
static void test_window(void **s) { (void)s, compare(false, 2, -0.5f); }
static void test_causal_window(void **s) { (void)s, compare(true, 3, 0.6f); }

/* The weights of a query sum to 1, so with v = 1 everywhere o is 1 and dq and dk are 0, up to the rounding of lse. */
static void test_constant_v(void **s) {
  (void)s;
  state t = {.causal = true, .scale = 0.6f};
  fill(&t);
  for (int i = 0; i < NK; ++i) t.v[i] = 1;
  loss(&t);
  backward(&t);
  for (int i = 0; i < NQ; ++i) assert_true(fabs(t.o[i] - 1) < 1e-14 && fabs(t.dq[i]) < 1e-12);
  for (int i = 0; i < NK; ++i) assert_true(fabs(t.dk[i]) < 1e-12);
}

GRAD_MAIN(cmocka_unit_test(test_full), cmocka_unit_test(test_causal), cmocka_unit_test(test_window),
          cmocka_unit_test(test_causal_window), cmocka_unit_test(test_constant_v))
