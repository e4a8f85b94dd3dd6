#include "grad.h"

enum { ROWS = 5, COLS = 4, INNER = 3, EXPERTS = 4, TOP_K = 3, SLOTS = ROWS * TOP_K, WIDE = 2 * INNER };

typedef struct state {
  double x[ROWS * COLS], w[SLOTS], gate_up[EXPERTS * WIDE * COLS], gate_up_bias[EXPERTS * WIDE];
  double down[EXPERTS * COLS * INNER], down_bias[EXPERTS * COLS], pre[SLOTS * WIDE], y[ROWS * COLS], dy[ROWS * COLS];
  double dx[ROWS * COLS], dw[SLOTS], dgate_up[EXPERTS * WIDE * COLS], dgate_up_bias[EXPERTS * WIDE];
  double ddown[EXPERTS * COLS * INNER], ddown_bias[EXPERTS * COLS];
  int32_t idx[SLOTS];
  bool turned, interleaved, before, keeps;
  tigon_moe_act act;
  float clamp;
} state;

/* [EXPERTS, n, k]; turned: stored as [EXPERTS, k, n]. */
static tigon_expert_weights weights(const state *t, double *data, int n, int k) {
  return (tigon_expert_weights){data, GRAD_F64, n * k, t->turned ? n : k, t->turned};
}

static tigon_fused_moe_problem problem(state *t, bool backward) {
  return (tigon_fused_moe_problem){
      GRAD_SHAPE,
      .inner = INNER,
      .experts = EXPERTS,
      .top_k = TOP_K,
      .idx_dtype = TIGON_I32,
      .idx = t->idx,
      .x = grad_rows(t->x, COLS),
      .y = grad_rows(backward ? t->dy : t->y, COLS),
      .dx = grad_rows(t->dx, COLS),
      .w = grad_vector(t->w),
      .dw = grad_vector(t->dw),
      .gate_up = weights(t, t->gate_up, WIDE, COLS),
      .dgate_up = weights(t, t->dgate_up, WIDE, COLS),
      .down = weights(t, t->down, COLS, INNER),
      .ddown = weights(t, t->ddown, COLS, INNER),
      .gate_up_bias = grad_vector(t->gate_up_bias),
      .dgate_up_bias = grad_vector(t->dgate_up_bias),
      .down_bias = grad_vector(t->down_bias),
      .ddown_bias = grad_vector(t->ddown_bias),
      .pre = t->keeps ? grad_vector(t->pre) : (tigon_vector){0},
      .act = t->act,
      .numbers = {.gate_mult = 1.5f, .down_mult = -0.75f, .clamp = t->clamp, .up_offset = 0.5f},
      .interleaved = t->interleaved,
      .weight_before_down = t->before,
  };
}

static double loss(void *argument) {
  state *t = argument;
  const tigon_fused_moe_problem p = problem(t, false);
  tigon_ref_fused_moe_fwd(NULL, &p);
  return grad_dot(t->y, t->dy, ROWS * COLS);
}

/* Expert 2 has no slot, and some slots have no expert. A token has one expert twice. */
static state made(int way) {
  static const int32_t idx[SLOTS] = {0, 1, 3, 3, 3, 0, -1, 1, 0, 4, 0, 1, 1, 3, 0};
  state t = {.turned = way & 1, .interleaved = way & 2, .before = way & 4, .keeps = way & 1};
  t.act = way & 2 ? TIGON_MOE_GELU_TANH : TIGON_MOE_SILU;
  t.clamp = way & 4 ? 0.4f : 0;
  for (int i = 0; i < SLOTS; ++i) t.idx[i] = idx[i];
  grad_fill(t.x, ROWS * COLS, 1);
  grad_fill(t.w, SLOTS, 2);
  grad_fill(t.gate_up, EXPERTS * WIDE * COLS, 3);
  grad_fill(t.gate_up_bias, EXPERTS * WIDE, 4);
  grad_fill(t.down, EXPERTS * COLS * INNER, 5);
  grad_fill(t.down_bias, EXPERTS * COLS, 6);
  grad_fill(t.dy, ROWS * COLS, 7);
  return t;
}

static void test_gradients(void **s) {
  (void)s;
  for (int way = 0; way < 8; ++way) {
    state t = made(way);
    loss(&t);
    const tigon_fused_moe_problem p = problem(&t, true);
    tigon_ref_fused_moe_bwd(NULL, &p);
    grad_expect("dx", loss, &t, t.x, t.dx, ROWS * COLS, 1e-6);
    grad_expect("dw", loss, &t, t.w, t.dw, SLOTS, 1e-6);
    grad_expect("dgate_up", loss, &t, t.gate_up, t.dgate_up, EXPERTS * WIDE * COLS, 1e-6);
    grad_expect("dgate_up_bias", loss, &t, t.gate_up_bias, t.dgate_up_bias, EXPERTS * WIDE, 1e-6);
    grad_expect("ddown", loss, &t, t.down, t.ddown, EXPERTS * COLS * INNER, 1e-6);
    grad_expect("ddown_bias", loss, &t, t.down_bias, t.ddown_bias, EXPERTS * COLS, 1e-6);
  }
}

/* Pre has its rows by expert, and zeros for slots without one. */
static void test_order(void **s) {
  (void)s;
  state t = made(1);
  loss(&t);
  const int first = 2 * WIDE * COLS; /* no slot is expert 2's, so that its matrices do not matter */
  for (int i = 0; i < WIDE * COLS; ++i) t.gate_up[first + i] = (double)NAN;
  state other = t;
  loss(&other);
  assert_memory_equal(t.pre, other.pre, sizeof t.pre);
  for (int i = (SLOTS - 2) * WIDE; i < SLOTS * WIDE; ++i) assert_true(t.pre[i] == 0);
  double sum = t.gate_up_bias[0]; /* slot 0 is the first one of expert 0 */
  for (int c = 0; c < COLS; ++c) sum += t.x[c] * t.gate_up[c * WIDE];
  assert_float_equal(t.pre[0], sum, 1e-12);
}

GRAD_MAIN(cmocka_unit_test(test_gradients), cmocka_unit_test(test_order))
