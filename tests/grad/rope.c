#include "grad.h"

enum { BATCH = 2, TOKENS = 3, HEADS = 2, DIM = 6, ROWS = 5, N = BATCH * TOKENS * HEADS * DIM };

typedef struct state {
  double q[N], out[N], dout[N], dq[N], cosine[BATCH * ROWS * DIM], sine[BATCH * ROWS * DIM];
  int64_t positions[TIGON_ROPE_AXES * BATCH * TOKENS];
  tigon_rope_layout layout;
  int64_t rotary_dim;
  bool own_tables; /* a table per sequence */
  int axes;
} state;

static tigon_heads heads(double *data) { return (tigon_heads){data, HEADS, TOKENS * HEADS * DIM, HEADS * DIM, DIM}; }

static tigon_rope_problem problem(state *t, double *in, double *out) {
  return (tigon_rope_problem){.batch = BATCH,
                              .tokens = TOKENS,
                              .head_dim = DIM,
                              .rotary_dim = t->rotary_dim,
                              .dtype = GRAD_F64,
                              .table_dtype = GRAD_F64,
                              .position_dtype = TIGON_I64,
                              .q = heads(in),
                              .q_out = heads(out),
                              .cos = t->cosine,
                              .sin = t->sine,
                              .table_step = 1,
                              .table_batch_pitch = t->own_tables ? ROWS * DIM : 0,
                              .table_pitch = DIM,
                              .table_rows = ROWS,
                              .positions = t->positions,
                              .position_axis_pitch = BATCH * TOKENS,
                              .position_pitch = TOKENS,
                              .layout = t->layout,
                              .axes = t->axes,
                              .pairs_of = {{0}, {1, 2, 1}, {2, 3, 1}}};
}

static double loss(void *argument) {
  state *t = argument;
  const tigon_rope_problem p = problem(t, t->q, t->out);
  tigon_ref_rope_fwd(NULL, &p);
  return grad_dot(t->out, t->dout, N);
}

static void compare(tigon_rope_layout layout, int64_t rotary_dim, bool own_tables, int axes) {
  state t = {.layout = layout, .rotary_dim = rotary_dim, .own_tables = own_tables, .axes = axes};
  grad_fill(t.q, N, 1);
  grad_fill(t.dout, N, 2);
  for (int i = 0; i < BATCH * ROWS * DIM; ++i) {
    t.cosine[i] = cos(0.3 * i);
    t.sine[i] = sin(0.3 * i);
  }
  for (int i = 0; i < TIGON_ROPE_AXES * BATCH * TOKENS; ++i) t.positions[i] = (3 * i + 1) % ROWS;
  const tigon_rope_problem p = problem(&t, t.dout, t.dq);
  tigon_ref_rope_bwd(NULL, &p);
  grad_expect("dq", loss, &t, t.q, t.dq, N, 1e-6);
}

static void test_half(void **s) { (void)s, compare(TIGON_ROPE_HALF, DIM, false, 1); }
static void test_interleaved(void **s) { (void)s, compare(TIGON_ROPE_INTERLEAVED, DIM, false, 1); }
static void test_partial(void **s) {
  (void)s;
  compare(TIGON_ROPE_HALF, 4, true, 1);
  compare(TIGON_ROPE_INTERLEAVED, 2, true, 1);
}
static void test_axes(void **s) { (void)s, compare(TIGON_ROPE_HALF, DIM, true, TIGON_ROPE_AXES); }

GRAD_MAIN(cmocka_unit_test(test_half), cmocka_unit_test(test_interleaved), cmocka_unit_test(test_partial),
          cmocka_unit_test(test_axes))
