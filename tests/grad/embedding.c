#include "grad.h"

enum { VOCAB = 5, COLS = 3, ROWS = 7, N = ROWS * COLS, TABLE = VOCAB * COLS };

static const int32_t idx[ROWS] = {4, 0, 4, 2, 4, 9, 0}; /* 9 is out of range */

typedef struct state {
  double table[TABLE], y[N], dy[N], dtable[TABLE];
} state;

static double loss(void *argument) {
  state *t = argument;
  int32_t flag = 0;
  const tigon_embedding_fwd_problem p = {.space = {ROWS, 1, ROWS},
                                         .cols = COLS,
                                         .vocab = VOCAB,
                                         .dtype = GRAD_F64,
                                         .idx_dtype = TIGON_I32,
                                         .table = t->table,
                                         .table_pitch = COLS,
                                         .idx = idx,
                                         .y = grad_rows(t->y, COLS),
                                         .error_flag = &flag};
  tigon_ref_embedding_fwd(NULL, &p);
  assert_int_equal(flag, 1);
  return grad_dot(t->y, t->dy, N);
}

static void backward(state *t, int64_t padding_idx, bool accumulate) {
  int32_t flag = 0;
  const tigon_embedding_bwd_problem p = {.space = {ROWS, 1, ROWS},
                                         .cols = COLS,
                                         .vocab = VOCAB,
                                         .dtype = GRAD_F64,
                                         .idx_dtype = TIGON_I32,
                                         .dtable_dtype = GRAD_F64,
                                         .dy = grad_rows(t->dy, COLS),
                                         .idx = idx,
                                         .dtable = t->dtable,
                                         .padding_idx = padding_idx,
                                         .error_flag = &flag,
                                         .accumulate = accumulate};
  tigon_ref_embedding_bwd(NULL, &p);
  assert_int_equal(flag, 1);
}

static void test_table(void **s) {
  (void)s;
  state t;
  grad_fill(t.table, TABLE, 1);
  grad_fill(t.dy, N, 2);
  backward(&t, -1, false);
  grad_expect("dtable", loss, &t, t.table, t.dtable, TABLE, 1e-6);
}

/* padding_idx: its row gets nothing, the others what they get without. */
static void test_padding(void **s) {
  (void)s;
  state t, without;
  grad_fill(t.dy, N, 2);
  grad_fill(without.dy, N, 2);
  backward(&without, -1, false);
  memset(t.dtable, 0, sizeof t.dtable);
  backward(&t, 4, true);
  for (int i = 0; i < TABLE; ++i) assert_true(t.dtable[i] == (i / COLS == 4 ? 0 : without.dtable[i]));
}

GRAD_MAIN(cmocka_unit_test(test_table), cmocka_unit_test(test_padding))
