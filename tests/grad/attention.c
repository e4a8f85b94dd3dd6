#include "grad.h"

enum { BATCH = 2, TOKENS = 5, KEYS = 6, Q_HEADS = 4, K_HEADS = 2, DIM = 3 };
enum { QUERIES = BATCH * Q_HEADS * TOKENS, NQ = QUERIES * DIM, NK = BATCH * KEYS * K_HEADS * DIM };

typedef struct state {
  double q[NQ], k[NK], v[NK], o[NQ], d_o[NQ], dq[NQ], dk[NK], dv[NK];
  double sinks[Q_HEADS], dsinks[Q_HEADS];
  float lse[QUERIES];
  float scale, softcap;
  bool causal, has_sinks;
  int64_t window, segments, dilation;
} state;

/* The rows of both batches as one batch. The first query and the last key are in no segment. */
static int32_t cu_q[] = {1, 3, 3, BATCH *TOKENS}, cu_k[] = {0, 4, 5, BATCH *KEYS - 1};

static tigon_heads heads(double *data, int64_t tokens, int64_t count) {
  return (tigon_heads){data, count, tokens * count * DIM, count * DIM, DIM};
}

/* The fields that both directions have. */
#define FIELDS_OF(t)                                                                                            \
  .batch = (t)->segments ? 1 : BATCH, .tokens = cuts_of(t).tokens, .keys = cuts_of(t).keys, .cuts = cuts_of(t), \
  .head_dim = DIM, .dtype = GRAD_F64, .lse = (t)->lse, .scale = (t)->scale, .softcap = (t)->softcap,            \
  .causal = (t)->causal, .window = (t)->window, .sinks = {(t)->has_sinks ? (t)->sinks : NULL, GRAD_F64}

static tigon_attention_cuts cuts_of(const state *t) {
  const int64_t all = t->segments ? BATCH : 1;
  tigon_attention_cuts c = {.tokens = TOKENS * all, .keys = KEYS * all, .segments = t->segments, .dilation = 1};
  if (t->dilation) c.dilation = t->dilation;
  if (t->segments) c.cu_q = (tigon_vector){cu_q, TIGON_I32}, c.cu_k = (tigon_vector){cu_k, TIGON_I32};
  return c;
}

static double loss(void *argument) {
  state *t = argument;
  const tigon_attention_fwd_problem p = {FIELDS_OF(t), .q = heads(t->q, TOKENS, Q_HEADS),
                                         .k = heads(t->k, KEYS, K_HEADS), .v = heads(t->v, KEYS, K_HEADS),
                                         .o = heads(t->o, TOKENS, Q_HEADS)};
  tigon_ref_attention_fwd(NULL, &p);
  return grad_dot(t->o, t->d_o, NQ);
}

static void backward(state *t) {
  const tigon_attention_bwd_problem p = {FIELDS_OF(t),
                                         .q = heads(t->q, TOKENS, Q_HEADS),
                                         .k = heads(t->k, KEYS, K_HEADS),
                                         .v = heads(t->v, KEYS, K_HEADS),
                                         .o = heads(t->o, TOKENS, Q_HEADS),
                                         .d_o = heads(t->d_o, TOKENS, Q_HEADS),
                                         .dq = heads(t->dq, TOKENS, Q_HEADS),
                                         .dk = heads(t->dk, KEYS, K_HEADS),
                                         .dv = heads(t->dv, KEYS, K_HEADS),
                                         .dsinks = {t->has_sinks ? t->dsinks : NULL, GRAD_F64}};
  tigon_ref_attention_bwd(NULL, &p);
}

static void fill(state *t) {
  grad_fill(t->q, NQ, 1);
  grad_fill(t->k, NK, 2);
  grad_fill(t->v, NK, 3);
  grad_fill(t->d_o, NQ, 4);
  grad_fill(t->sinks, Q_HEADS, 5);
}

/* lse passes from forward to backward in f32, which changes every p of a query by up to 6e-8 |lse|; |lse| is below 2 here. */
static void compare(state t) {
  fill(&t);
  loss(&t);
  backward(&t);
  grad_expect("dq", loss, &t, t.q, t.dq, NQ, 1e-6);
  grad_expect("dk", loss, &t, t.k, t.dk, NK, 1e-6);
  grad_expect("dv", loss, &t, t.v, t.dv, NK, 1e-6);
  if (t.has_sinks) grad_expect("dsinks", loss, &t, t.sinks, t.dsinks, Q_HEADS, 1e-6);
}

#define TEST(name, ...) \
  static void name(void **s) { (void)s, compare((state){__VA_ARGS__}); }
TEST(test_full, .scale = 0.6f)
TEST(test_causal, .causal = true, .scale = 0.6f)
TEST(test_window, .window = 2, .scale = -0.5f)
TEST(test_causal_window, .causal = true, .window = 3, .scale = 0.6f)
TEST(test_softcap, .causal = true, .scale = 0.6f, .softcap = 0.5f)
TEST(test_sinks, .window = 3, .scale = 0.6f, .has_sinks = true)
TEST(test_segments, .causal = true, .scale = 0.6f, .segments = 3)
TEST(test_dilation, .window = 2, .scale = 0.6f, .dilation = 2)
TEST(test_all, .causal = true, .window = 2, .scale = 0.6f, .softcap = 0.7f, .has_sinks = true, .segments = 3,
     .dilation = 2)

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
          cmocka_unit_test(test_causal_window), cmocka_unit_test(test_softcap), cmocka_unit_test(test_sinks),
          cmocka_unit_test(test_segments), cmocka_unit_test(test_dilation), cmocka_unit_test(test_all),
          cmocka_unit_test(test_constant_v))
