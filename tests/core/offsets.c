/* Offsets beyond 2^31 elements and 2^32 bytes: rows lie PITCH elements apart in a sparse mapping, of which only the rows'
 * own pages are ever touched. Every op must give the bits that it gives for the same rows packed together. */
#include <sys/mman.h>

#include "../api/api.h"

enum { ROWS = 3, COLS = 64 };
#define PITCH ((INT64_C(1) << 31) + 192)
#define SPAN ((size_t)(ROWS * PITCH) * sizeof(float))

/* NULL where the system grants no such address space. */
static float *far_rows(void) {
  void *map = mmap(NULL, SPAN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return map == MAP_FAILED ? NULL : map;
}

static float *far[4];

static int setup(void **state) {
  for (int i = 0; i < 4; ++i) far[i] = far_rows();
  return api_setup(state);
}

static int teardown(void **state) {
  for (int i = 0; i < 4; ++i)
    if (far[i]) munmap(far[i], SPAN);
  return api_teardown(state);
}

static tigon_tensor apart(float *data, int64_t cols) {
  return (tigon_tensor){data, TIGON_F32, 2, {ROWS, cols}, {PITCH, 1}};
}
static tigon_tensor packed(float *data, int64_t cols) { return tigon_tensor_2d(data, TIGON_F32, ROWS, cols); }

/* The same numbers packed and apart. */
static void give(float *dense, float *sparse, float scale) {
  api_fill(dense, ROWS * COLS, scale);
  for (int r = 0; r < ROWS; ++r) memcpy(sparse + r * PITCH, dense + r * COLS, COLS * sizeof *dense);
}

static void expect(const float *dense, const float *sparse) {
  for (int r = 0; r < ROWS; ++r) assert_memory_equal(sparse + r * PITCH, dense + r * COLS, COLS * sizeof *dense);
}

static float a[ROWS * COLS], b[ROWS * COLS], out[ROWS * COLS], other[ROWS * COLS];

#define RUN(call)                                                \
  do {                                                           \
    if ((call) != TIGON_OK) fail_msg("%s", tigon_last_error(c)); \
  } while (0)

static bool start(void) {
  for (int i = 0; i < 4; ++i)
    if (!far[i]) return print_message("skipped: no address space for %zu bytes\n", SPAN), false;
  give(a, far[0], 0.5f);
  give(b, far[1], -0.25f);
  return true;
}

static void test_norms(void **state) {
  tigon_context *c = *state;
  if (!start()) skip();
  tigon_rms_norm_fwd_args n = {.x = packed(a, COLS), .y = packed(out, COLS), .eps = 1e-6};
  RUN(tigon_rms_norm_fwd(c, &n));
  n.x = apart(far[0], COLS), n.y = apart(far[2], COLS);
  RUN(tigon_rms_norm_fwd(c, &n));
  expect(out, far[2]);
  tigon_fused_add_rms_norm_fwd_args f = {
      .x = packed(a, COLS), .residual = packed(b, COLS), .s = packed(other, COLS), .y = packed(out, COLS)};
  RUN(tigon_fused_add_rms_norm_fwd(c, &f));
  f.x = apart(far[0], COLS), f.residual = apart(far[1], COLS), f.s = apart(far[3], COLS), f.y = apart(far[2], COLS);
  RUN(tigon_fused_add_rms_norm_fwd(c, &f));
  expect(out, far[2]);
  expect(other, far[3]);
  float rstd[ROWS] = {0.5f, 1, 2};
  tigon_rms_norm_bwd_args g = {.dy = packed(a, COLS),
                               .x = packed(b, COLS),
                               .dx = packed(out, COLS),
                               .rstd = tigon_tensor_1d(rstd, TIGON_F32, ROWS)};
  RUN(tigon_rms_norm_bwd(c, &g));
  g.dy = apart(far[0], COLS), g.x = apart(far[1], COLS), g.dx = apart(far[2], COLS);
  RUN(tigon_rms_norm_bwd(c, &g));
  expect(out, far[2]);
}

static void test_swiglu(void **state) {
  tigon_context *c = *state;
  if (!start()) skip();
  tigon_swiglu_fwd_args f = {.a = packed(a, COLS), .b = packed(b, COLS), .c = packed(out, COLS)};
  RUN(tigon_swiglu_fwd(c, &f));
  f.a = apart(far[0], COLS), f.b = apart(far[1], COLS), f.c = apart(far[2], COLS);
  RUN(tigon_swiglu_fwd(c, &f));
  expect(out, far[2]);
  tigon_swiglu_bwd_args g = {.dc = packed(a, COLS),
                             .a = packed(a, COLS),
                             .b = packed(b, COLS),
                             .da = packed(out, COLS),
                             .db = packed(other, COLS)};
  RUN(tigon_swiglu_bwd(c, &g));
  g.dc = g.a = apart(far[0], COLS), g.b = apart(far[1], COLS), g.da = apart(far[2], COLS), g.db = apart(far[3], COLS);
  RUN(tigon_swiglu_bwd(c, &g));
  expect(out, far[2]);
  expect(other, far[3]);
}

static void test_softmax(void **state) {
  tigon_context *c = *state;
  if (!start()) skip();
  tigon_softmax_fwd_args f = {.x = packed(a, COLS), .y = packed(out, COLS), .causal = 1};
  RUN(tigon_softmax_fwd(c, &f));
  f.x = apart(far[0], COLS), f.y = apart(far[2], COLS);
  RUN(tigon_softmax_fwd(c, &f));
  expect(out, far[2]);
}

static void test_cross_entropy(void **state) {
  tigon_context *c = *state;
  if (!start()) skip();
  int64_t labels[ROWS] = {0, COLS - 1, 7};
  float loss[2];
  _Alignas(64) char workspace[4096];
  tigon_cross_entropy_fwd_args f = {.logits = packed(a, COLS),
                                    .labels = tigon_tensor_1d(labels, TIGON_I64, ROWS),
                                    .dlogits = packed(out, COLS),
                                    .workspace = workspace,
                                    .workspace_bytes = sizeof workspace};
  f.out.loss = tigon_tensor_1d(&loss[0], TIGON_F32, 1);
  RUN(tigon_cross_entropy_fwd(c, &f));
  f.logits = apart(far[0], COLS), f.dlogits = apart(far[2], COLS);
  f.out.loss = tigon_tensor_1d(&loss[1], TIGON_F32, 1);
  RUN(tigon_cross_entropy_fwd(c, &f));
  expect(out, far[2]);
  assert_true(loss[0] == loss[1]);
}

/* The table's rows are apart: index 2 is 2^32 elements in. */
static void test_embedding(void **state) {
  tigon_context *c = *state;
  if (!start()) skip();
  int32_t idx[ROWS] = {2, 0, 1};
  tigon_embedding_fwd_args f = {
      .table = packed(a, COLS), .idx = tigon_tensor_1d(idx, TIGON_I32, ROWS), .y = packed(out, COLS)};
  RUN(tigon_embedding_fwd(c, &f));
  f.table = apart(far[0], COLS), f.y = apart(far[2], COLS);
  RUN(tigon_embedding_fwd(c, &f));
  expect(out, far[2]);
}

/* Tokens are apart: [1, ROWS, 2, COLS / 2]. */
static tigon_tensor heads(float *data, int64_t pitch) {
  return (tigon_tensor){data, TIGON_F32, 4, {1, ROWS, 2, COLS / 2}, {ROWS * pitch, pitch, COLS / 2, 1}};
}

static void test_rope(void **state) {
  tigon_context *c = *state;
  if (!start()) skip();
  float cosine[ROWS * COLS / 4], sine[ROWS * COLS / 4];
  api_fill(cosine, ROWS * COLS / 4, 0.1f);
  api_fill(sine, ROWS * COLS / 4, -0.1f);
  tigon_rope_args r = {.q = heads(a, COLS),
                       .cos = tigon_tensor_2d(cosine, TIGON_F32, ROWS, COLS / 4),
                       .sin = tigon_tensor_2d(sine, TIGON_F32, ROWS, COLS / 4),
                       .q_out = heads(out, COLS)};
  RUN(tigon_rope_fwd(c, &r));
  r.q = heads(far[0], PITCH), r.q_out = heads(far[2], PITCH);
  RUN(tigon_rope_fwd(c, &r));
  expect(out, far[2]);
}

static void test_attention(void **state) {
  tigon_context *c = *state;
  if (!start()) skip();
  tigon_attention_fwd_args f = {
      .q = heads(a, COLS), .k = heads(b, COLS), .v = heads(b, COLS), .o = heads(out, COLS), .causal = 1};
  RUN(tigon_attention_fwd(c, &f));
  f.q = heads(far[0], PITCH), f.k = heads(far[1], PITCH), f.v = heads(far[1], PITCH), f.o = heads(far[2], PITCH);
  RUN(tigon_attention_fwd(c, &f));
  expect(out, far[2]);
}

static void test_linear(void **state) {
  tigon_context *c = *state;
  if (!start()) skip();
  /* y [ROWS, ROWS] = a [ROWS, COLS] b^T; x and w are apart. */
  float y[2][ROWS * ROWS];
  tigon_linear_fwd_args f = {
      .x = packed(a, COLS), .w = packed(b, COLS), .y = tigon_tensor_2d(y[0], TIGON_F32, ROWS, ROWS)};
  RUN(tigon_linear_fwd(c, &f));
  f.x = apart(far[0], COLS), f.w = apart(far[1], COLS), f.y.data = y[1];
  RUN(tigon_linear_fwd(c, &f));
  assert_memory_equal(y[0], y[1], sizeof y[0]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_norms),         cmocka_unit_test(test_swiglu),    cmocka_unit_test(test_softmax),
      cmocka_unit_test(test_cross_entropy), cmocka_unit_test(test_embedding), cmocka_unit_test(test_rope),
      cmocka_unit_test(test_attention),     cmocka_unit_test(test_linear),
  };
  setenv("TIGON_GEMM", "builtin", 1); /* a library with 32-bit sizes may refuse such a pitch and fall back */
  return cmocka_run_group_tests(tests, setup, teardown);
}
