/* cross_entropy: rows and columns that are not there, and rows that hold a NaN or nothing but -Inf. */
#include "api.h"

enum { ROWS = 3, V = 8 };

typedef struct data {
  float logits[ROWS * V], dlogits[ROWS * V], loss, token_loss[ROWS], lse[ROWS], entropy[ROWS];
  int64_t labels[ROWS], argmax[ROWS], correct;
  int32_t error;
} data;

static tigon_cross_entropy_fwd_args fwd_args(data *d, int64_t cols) {
  api_fill(d->logits, ROWS * V, 0.5f);
  for (int r = 0; r < ROWS; ++r) d->labels[r] = 3 * r;
  return (tigon_cross_entropy_fwd_args){.logits = tigon_tensor_2d(cols ? d->logits : NULL, TIGON_F32, ROWS, cols),
                                        .labels = tigon_tensor_1d(d->labels, TIGON_I64, ROWS),
                                        .out = {.loss = tigon_tensor_1d(&d->loss, TIGON_F32, 1),
                                                .token_loss = tigon_tensor_1d(d->token_loss, TIGON_F32, ROWS),
                                                .lse = tigon_tensor_1d(d->lse, TIGON_F32, ROWS),
                                                .entropy = tigon_tensor_1d(d->entropy, TIGON_F32, ROWS),
                                                .argmax = tigon_tensor_1d(d->argmax, TIGON_I64, ROWS),
                                                .correct = tigon_tensor_1d(&d->correct, TIGON_I64, 1)},
                                        .dlogits = tigon_tensor_2d(cols ? d->dlogits : NULL, TIGON_F32, ROWS, cols)};
}

static void run(tigon_context *c, data *d, tigon_cross_entropy_fwd_args *f) {
  _Alignas(64) static char workspace[256];
  memset(d->dlogits, 0x5a, sizeof d->dlogits);
  f->workspace = workspace;
  f->workspace_bytes = sizeof workspace;
  assert_int_equal(tigon_cross_entropy_fwd(c, f), TIGON_OK);
}

/* Without columns no label can count. */
static void test_no_columns(void **state) {
  data d = {.loss = 3, .correct = 3};
  tigon_cross_entropy_fwd_args f = fwd_args(&d, 0);
  f.out.error = tigon_tensor_1d(&d.error, TIGON_I32, 1);
  run(*state, &d, &f);
  assert_true(d.error == 1 && d.loss == 0 && d.correct == 0);
  for (int r = 0; r < ROWS; ++r) assert_true(d.lse[r] == -INFINITY && d.argmax[r] == -1);
}

/* What the header says of rows that hold a NaN or nothing but -Inf, and of the first of equal logits. */
static void test_special_rows(void **state) {
  data values, *d = &values;
  tigon_cross_entropy_fwd_args f = fwd_args(d, V);
  for (int v = 0; v < V; ++v) d->logits[v] = -INFINITY;
  d->logits[V + 6] = NAN;
  for (int v = 0; v < V; ++v) d->logits[2 * V + v] = v == 2 || v == 5 ? 4 : -INFINITY;
  d->labels[2] = 2;
  run(*state, d, &f);
  assert_true(d->lse[0] == -INFINITY && isnan(d->token_loss[0]) && isnan(d->entropy[0]) && d->argmax[0] == 0);
  assert_true(isnan(d->lse[1]) && isnan(d->token_loss[1]) && isnan(d->entropy[1]) && d->argmax[1] == 6);
  for (int v = 0; v < 2 * V; ++v) assert_true(isnan(d->dlogits[v]));
  assert_true(d->argmax[2] == 2 && fabsf(d->entropy[2] - logf(2)) < 1e-6f && isnan(d->loss));
  assert_true(d->dlogits[2 * V] == 0 && d->dlogits[2 * V + 5] > 0 && d->dlogits[2 * V + 2] == -d->dlogits[2 * V + 5]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_columns), cmocka_unit_test(test_special_rows)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
