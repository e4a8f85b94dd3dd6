/* cross_entropy: what a reduction asks for; fewer outputs; labels out of range with and without the error tensor; rows and
 * columns that are not there. */
#include "api.h"

enum { ROWS = 3, V = 8, N = ROWS * V };

typedef struct data {
  float logits[N + 4], dlogits[N], weight[V], token_scale[ROWS], dloss[ROWS];
  float loss, apart, token_loss[ROWS], lse[ROWS + 1], z_loss[ROWS + 1], entropy[ROWS + 1];
  int64_t labels[ROWS], argmax[ROWS], correct, more[2];
  int32_t error, most;
  _Alignas(64) char workspace[256];
} data;

static data *made(void) {
  static data d;
  memset(&d, 0x5a, sizeof d);
  api_fill(d.logits, N, 0.5f);
  for (int v = 0; v < V; ++v) d.weight[v] = 0.5f + 0.25f * (float)v;
  for (int r = 0; r < ROWS; ++r) d.token_scale[r] = 1 + (float)r, d.dloss[r] = 2 - (float)r, d.labels[r] = 3 * r;
  for (int r = 0; r < ROWS; ++r) d.lse[r] = 2.5f;
  return &d;
}

static tigon_cross_entropy_fwd_args fwd_args(data *d) {
  return (tigon_cross_entropy_fwd_args){
      .logits = tigon_tensor_2d(d->logits, TIGON_F32, ROWS, V),
      .labels = tigon_tensor_1d(d->labels, TIGON_I64, ROWS),
      .options = {.weight = tigon_tensor_1d(d->weight, TIGON_F32, V),
                  .token_scale = tigon_tensor_1d(d->token_scale, TIGON_F32, ROWS)},
      .out = {.loss = tigon_tensor_1d(&d->loss, TIGON_F32, 1),
              .token_loss = tigon_tensor_1d(d->token_loss, TIGON_F32, ROWS),
              .lse = tigon_tensor_1d(d->lse, TIGON_F32, ROWS),
              .z_loss = tigon_tensor_1d(d->z_loss, TIGON_F32, ROWS),
              .entropy = tigon_tensor_1d(d->entropy, TIGON_F32, ROWS),
              .argmax = tigon_tensor_1d(d->argmax, TIGON_I64, ROWS),
              .correct = tigon_tensor_1d(&d->correct, TIGON_I64, 1)},
      .dlogits = tigon_tensor_2d(d->dlogits, TIGON_F32, ROWS, V),
      .dloss = tigon_tensor_1d(d->dloss, TIGON_F32, 1),
      .workspace = d->workspace,
      .workspace_bytes = sizeof d->workspace,
  };
}

static tigon_cross_entropy_bwd_args bwd_args(data *d) {
  return (tigon_cross_entropy_bwd_args){
      .logits = tigon_tensor_2d(d->logits, TIGON_F32, ROWS, V),
      .labels = tigon_tensor_1d(d->labels, TIGON_I64, ROWS),
      .lse = tigon_tensor_1d(d->lse, TIGON_F32, ROWS),
      .dlogits = tigon_tensor_2d(d->dlogits, TIGON_F32, ROWS, V),
      .workspace = d->workspace,
      .workspace_bytes = sizeof d->workspace,
  };
}

/* dloss of reduction none. */
static void none(tigon_cross_entropy_fwd_args *a) {
  a->options.reduction = TIGON_REDUCTION_NONE;
  memset(&a->out.loss, 0, sizeof a->out.loss);
  a->dloss.shape[0] = ROWS;
}

static void absent(tigon_tensor *t) { memset(t, 0, sizeof *t); }

/* What its description cannot say. */
static void test_refuses(void **state) {
  API_REFUSES(cross_entropy_fwd, fwd_args, absent(&a.out.loss), INVALID,
              "out.loss is absent, must be there but with options.reduction none");
  API_REFUSES(cross_entropy_fwd, fwd_args, a.options.reduction = TIGON_REDUCTION_NONE, INVALID,
              "out.loss is there, must be absent with options.reduction none");
  API_REFUSES(cross_entropy_fwd, fwd_args, none(&a);
              absent(&a.out.token_loss), INVALID,
              "out.token_loss is absent, must be there with options.reduction none");
  API_REFUSES(cross_entropy_fwd, fwd_args, a.dloss.shape[0] = 3, INVALID,
              "dloss.shape[0] is 3, must be 1 (unless options.reduction is none)");
  API_REFUSES(cross_entropy_fwd, fwd_args, none(&a);
              a.dloss.shape[0] = 1, INVALID, "dloss.shape[0] is 1, must be 3 (rows of logits)");
  API_REFUSES(cross_entropy_fwd, fwd_args, d->labels[1] = -1; a.options.has_ignore_index = 1;
              a.options.ignore_index = -100, INVALID,
              "labels[1] is -1, must be 0 to 7 (logits.shape[1] - 1) or ignore_index");
}

static void test_workspace(void **state) {
  tigon_context *c = *state;
  data *d = made();
  tigon_cross_entropy_fwd_args f = fwd_args(d);
  f.logits.data = f.dlogits.data = f.labels.data = f.workspace = NULL; /* not looked at */
  size_t bytes;
  assert_int_equal(tigon_cross_entropy_fwd_workspace(c, &f, &bytes), TIGON_OK);
  assert_int_equal(bytes, 64);
  absent(&f.out.token_loss);
  assert_int_equal(tigon_cross_entropy_fwd_workspace(c, &f, &bytes), TIGON_OK);
  assert_int_equal(bytes, 128);
  absent(&f.out.argmax); /* correct still asks for it */
  assert_int_equal(tigon_cross_entropy_fwd_workspace(c, &f, &bytes), TIGON_OK);
  assert_int_equal(bytes, 192);
  tigon_cross_entropy_bwd_args b = bwd_args(d);
  assert_int_equal(tigon_cross_entropy_bwd_workspace(c, &b, &bytes), TIGON_OK);
  assert_int_equal(bytes, 64);

  const int64_t many = INT64_MAX / 15; /* of one and the same row */
  f = (tigon_cross_entropy_fwd_args){.logits = {NULL, TIGON_F32, 2, {many, V}, {0, 1}},
                                     .labels = tigon_tensor_1d(NULL, TIGON_I32, many),
                                     .out = {.loss = tigon_tensor_1d(&d->loss, TIGON_F32, 1)}};
  api_expect(c, tigon_cross_entropy_fwd_workspace(c, &f, &bytes), TIGON_ERROR_INVALID,
             "cross_entropy_fwd: logits has more rows than a workspace can hold numbers for");
}

/* Forward alone, token_loss and argmax in the workspace, and i32 labels give the bits of the full call. */
static void test_fewer_outputs(void **state) {
  tigon_context *c = *state;
  data *d = made();
  tigon_cross_entropy_fwd_args f = fwd_args(d);
  assert_int_equal(tigon_cross_entropy_fwd(c, &f), TIGON_OK);
  const float loss = d->loss;
  const int64_t correct = d->correct;
  const int32_t labels[ROWS] = {0, 3, 6};
  f.labels = tigon_tensor_1d((void *)labels, TIGON_I32, ROWS);
  tigon_tensor *each[] = {&f.dlogits,    &f.dloss,       &f.out.token_loss, &f.out.lse,
                          &f.out.z_loss, &f.out.entropy, &f.out.argmax};
  for (size_t i = 0; i < sizeof each / sizeof *each; ++i) absent(each[i]);
  assert_int_equal(tigon_cross_entropy_fwd(c, &f), TIGON_OK);
  assert_memory_equal(&d->loss, &loss, sizeof loss);
  assert_int_equal(d->correct, correct);
}

/* With `error`, a label out of range counts as ignored and raises the flag, which is left alone otherwise. */
static void test_labels(void **state) {
  tigon_context *c = *state;
  data *d = made();
  tigon_cross_entropy_fwd_args f = fwd_args(d);
  f.out.error = tigon_tensor_1d(&d->error, TIGON_I32, 1);
  f.options.has_ignore_index = 1;
  f.options.ignore_index = 5;
  d->error = 7;
  assert_int_equal(tigon_cross_entropy_fwd(c, &f), TIGON_OK);
  assert_int_equal(d->error, 7);
  static data ignored;
  d->labels[1] = 5;
  assert_int_equal(tigon_cross_entropy_fwd(c, &f), TIGON_OK);
  assert_int_equal(d->error, 7);
  assert_true(d->token_loss[1] == 0 && d->z_loss[1] == 0 && d->entropy[1] == 0 && d->argmax[1] == -1);
  assert_true(d->lse[1] > 0 && d->loss > 0);
  for (int v = 0; v < V; ++v) assert_true(d->dlogits[V + v] == 0 && d->dlogits[v] != 0);
  ignored = *d;
  const int64_t wild[] = {-1, V, INT64_MIN, INT64_MAX};
  for (int i = 0; i < 4; ++i) {
    d->error = 0;
    d->labels[1] = wild[i];
    assert_int_equal(tigon_cross_entropy_fwd(c, &f), TIGON_OK);
    assert_int_equal(d->error, 1);
    assert_memory_equal(d->dlogits, ignored.dlogits, sizeof d->dlogits);
    assert_memory_equal(&d->loss, &ignored.loss, offsetof(data, labels) - offsetof(data, loss));
    assert_memory_equal(d->argmax, ignored.argmax, sizeof d->argmax);
    tigon_cross_entropy_bwd_args b = bwd_args(d);
    b.error = f.out.error;
    d->error = 0;
    assert_int_equal(tigon_cross_entropy_bwd(c, &b), TIGON_OK);
    assert_int_equal(d->error, 1);
    for (int v = 0; v < V; ++v) assert_true(d->dlogits[V + v] == 0);
  }
}

/* No rows: the loss is 0 and so is the count. No columns: no label can count. */
static void test_empty(void **state) {
  tigon_context *c = *state;
  data *d = made();
  tigon_cross_entropy_fwd_args f = fwd_args(d);
  tigon_tensor *each[] = {&f.logits,  &f.dlogits,    &f.labels,      &f.options.token_scale, &f.out.token_loss,
                          &f.out.lse, &f.out.z_loss, &f.out.entropy, &f.out.argmax};
  for (size_t i = 0; i < sizeof each / sizeof *each; ++i) each[i]->shape[0] = 0, each[i]->data = NULL;
  for (int reduction = TIGON_REDUCTION_MEAN; reduction <= TIGON_REDUCTION_SUM; ++reduction) {
    d->loss = 3;
    f.options.reduction = (tigon_reduction)reduction;
    assert_int_equal(tigon_cross_entropy_fwd(c, &f), TIGON_OK);
    assert_true(d->loss == 0 && d->correct == 0);
  }
  f.logits.shape[1] = f.dlogits.shape[1] = 0; /* neither rows nor columns */
  absent(&f.options.weight);
  assert_int_equal(tigon_cross_entropy_fwd(c, &f), TIGON_OK);
  tigon_cross_entropy_bwd_args b = bwd_args(d);
  b.logits.shape[0] = b.dlogits.shape[0] = b.labels.shape[0] = b.lse.shape[0] = 0;
  assert_int_equal(tigon_cross_entropy_bwd(c, &b), TIGON_OK);

  d = made();
  f = fwd_args(d);
  absent(&f.options.weight);
  f.logits.shape[1] = f.dlogits.shape[1] = 0;
  f.logits.data = f.dlogits.data = NULL;
  f.out.error = tigon_tensor_1d(&d->error, TIGON_I32, 1);
  assert_int_equal(tigon_cross_entropy_fwd(c, &f), TIGON_OK);
  assert_true(d->error == 1 && d->loss == 0 && d->correct == 0 && d->lse[0] == -INFINITY && d->argmax[2] == -1);
  b = bwd_args(d);
  b.logits.shape[1] = b.dlogits.shape[1] = 0;
  b.logits.data = b.dlogits.data = NULL;
  b.error = f.out.error;
  d->error = 0;
  assert_int_equal(tigon_cross_entropy_bwd(c, &b), TIGON_OK);
  assert_int_equal(d->error, 1);
}

/* A padded vocabulary by stride does not count; leading dimensions need not collapse. */
static void test_strided(void **state) {
  tigon_context *c = *state;
  enum { B = 2, H = 3, T = 2, COLS = 5, PITCH = 8, ALL = B * T * H };
  float x[ALL * PITCH], flat[ALL * COLS], loss[ALL], wanted[ALL];
  int64_t labels[ALL];
  _Alignas(64) char workspace[64];
  for (int r = 0; r < ALL; ++r) {
    /* row (b, h, t) of [B, H, T] is row (b, t, h) of memory */
    const int b = r / (H * T), h = r / T % H, t = r % T, at = (b * T + t) * H + h;
    labels[r] = r % COLS;
    for (int v = 0; v < PITCH; ++v)
      x[at * PITCH + v] = v < COLS ? (float)(r * 7 % 11) * 0.25f - (float)(v * v) * 0.125f : 99;
    for (int v = 0; v < COLS; ++v) flat[r * COLS + v] = x[at * PITCH + v];
  }
  tigon_cross_entropy_fwd_args a = {.logits = tigon_tensor_2d(flat, TIGON_F32, ALL, COLS),
                                    .labels = tigon_tensor_1d(labels, TIGON_I64, ALL),
                                    .options = {.reduction = TIGON_REDUCTION_NONE},
                                    .out = {.token_loss = tigon_tensor_1d(wanted, TIGON_F32, ALL)},
                                    .workspace = workspace,
                                    .workspace_bytes = sizeof workspace};
  assert_int_equal(tigon_cross_entropy_fwd(c, &a), TIGON_OK);
  a.logits = (tigon_tensor){x, TIGON_F32, 4, {B, H, T, COLS}, {T * H * PITCH, PITCH, H * PITCH, 1}};
  a.labels = tigon_tensor_3d(labels, TIGON_I64, B, H, T);
  a.out.token_loss = tigon_tensor_3d(loss, TIGON_F32, B, H, T);
  assert_int_equal(tigon_cross_entropy_fwd(c, &a), TIGON_OK);
  assert_memory_equal(loss, wanted, sizeof loss);
  a.dlogits = a.logits;
  assert_int_equal(tigon_cross_entropy_fwd(c, &a), TIGON_OK);
  for (int i = 0; i < ALL * PITCH; ++i) assert_true(i % PITCH < COLS ? fabsf(x[i]) <= 1 : x[i] == 99);
}

/* What has one element per row has logits' leading shape, or is flat. As many elements in another shape are refused: [V, T] of
 * torch's layout, and a transposed one. */
static void test_shapes_of_labels(void **state) {
  tigon_context *c = *state;
  enum { A = 2, B = 3 };
  float logits[A * B * A] = {0}, loss[2] = {7, 7}, token_loss[A * B], flat[A * B];
  int64_t labels[A * B] = {0, 1, 1, 0, 0, 1};
  _Alignas(64) char workspace[512];
  api_fill(logits, A * B * A, 0.5f);
  tigon_cross_entropy_fwd_args a = {
      .logits = tigon_tensor_3d(logits, TIGON_F32, A, B, A),
      .labels = tigon_tensor_1d(labels, TIGON_I64, A * B),
      .out = {.loss = tigon_tensor_1d(loss, TIGON_F32, 1), .token_loss = tigon_tensor_1d(flat, TIGON_F32, A * B)},
      .workspace = workspace,
      .workspace_bytes = sizeof workspace};
  assert_int_equal(tigon_cross_entropy_fwd(c, &a), TIGON_OK);
  a.labels = tigon_tensor_2d(labels, TIGON_I64, A, B);
  a.out.token_loss = tigon_tensor_2d(token_loss, TIGON_F32, A, B);
  a.out.loss.data = loss + 1;
  assert_int_equal(tigon_cross_entropy_fwd(c, &a), TIGON_OK);
  assert_memory_equal(token_loss, flat, sizeof flat);
  assert_memory_equal(&loss[0], &loss[1], sizeof *loss);

  const tigon_cross_entropy_fwd_args good = a;
  tigon_cross_entropy_bwd_args b = {.logits = good.logits,
                                    .labels = good.labels,
                                    .lse = tigon_tensor_2d(flat, TIGON_F32, B, A),
                                    .dlogits = good.logits,
                                    .workspace = workspace,
                                    .workspace_bytes = sizeof workspace};
  b.lse = tigon_tensor_2d(flat, TIGON_F32, A, B);
  b.options.reduction = TIGON_REDUCTION_NONE;
  b.dloss = tigon_tensor_2d(token_loss, TIGON_F32, B, A);
  api_expect(c, tigon_cross_entropy_bwd(c, &b), TIGON_ERROR_INVALID,
             "cross_entropy_bwd: dloss.shape[0] is 3, must be 2 (logits.shape[0])");
}

/* What the header says of rows that hold a NaN or nothing but -Inf, and of the first of equal logits. */
static void test_special_rows(void **state) {
  tigon_context *c = *state;
  data *d = made();
  tigon_cross_entropy_fwd_args f = fwd_args(d);
  for (int v = 0; v < V; ++v) d->logits[v] = -INFINITY;
  d->logits[V + 6] = NAN;
  for (int v = 0; v < V; ++v) d->logits[2 * V + v] = v == 2 || v == 5 ? 4 : -INFINITY;
  d->labels[2] = 2;
  assert_int_equal(tigon_cross_entropy_fwd(c, &f), TIGON_OK);
  assert_true(d->lse[0] == -INFINITY && isnan(d->token_loss[0]) && isnan(d->entropy[0]) && d->argmax[0] == 0);
  assert_true(isnan(d->lse[1]) && isnan(d->token_loss[1]) && isnan(d->entropy[1]) && d->argmax[1] == 6);
  for (int v = 0; v < 2 * V; ++v) assert_true(isnan(d->dlogits[v]));
  assert_true(d->argmax[2] == 2 && fabsf(d->entropy[2] - logf(2)) < 1e-6f && isnan(d->loss));
  assert_true(d->dlogits[2 * V] == 0 && d->dlogits[2 * V + 5] > 0 && d->dlogits[2 * V + 2] == -d->dlogits[2 * V + 5]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_refuses),       cmocka_unit_test(test_workspace),
                                     cmocka_unit_test(test_fewer_outputs), cmocka_unit_test(test_labels),
                                     cmocka_unit_test(test_empty),         cmocka_unit_test(test_strided),
                                     cmocka_unit_test(test_special_rows),  cmocka_unit_test(test_shapes_of_labels)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
