/* Numbers that no case of `tigon check` has, on every variant of every device at hand. */
#include "api.h"
#include "core/context.h"

/* Calls `test` on each context whose device has the entry for f32. */
static void everywhere(const char *op, const char *entry, void (*test)(tigon_context *context)) {
  int tried = 0;
  const tigon_backend *backend;
  for (int i = 0; (backend = tigon_backend_at(i)); ++i) {
    tigon_context *any, *context;
    if (tigon_context_create(&(tigon_context_desc){.device = backend->name}, &any) != TIGON_OK) continue;
    for (const tigon_kernels *const *v = backend->variants(); *v; ++v) {
      const tigon_context_desc desc = {.device = backend->name, .variant = (*v)->variant};
      if (!tigon_queue_runs(&any->queue, *v) || tigon_context_create(&desc, &context) != TIGON_OK) continue;
      if (tigon_supports(context, op, entry, TIGON_F32)) test(context), ++tried;
      tigon_context_destroy(context);
    }
    tigon_context_destroy(any);
  }
  assert_true(tried >= 2);
}

/* The device's memory of a call: tensors at multiples of a line. */
enum { LINE = 1024, LINES = 9 };

static char *lines(tigon_context *context) {
  char *memory;
  assert_int_equal(tigon_alloc(context, LINES * LINE, (void **)&memory), TIGON_OK);
  return memory;
}
static char *line(tigon_context *context, char *memory, int i, const void *from, size_t bytes) {
  if (from) assert_int_equal(tigon_copy(context, memory + i * LINE, from, bytes), TIGON_OK);
  return memory + i * LINE;
}
static void fetch(tigon_context *context, void *to, const char *memory, int i, size_t bytes) {
  assert_int_equal(tigon_copy(context, to, memory + i * LINE, bytes), TIGON_OK);
}

/* ---- rms_norm in 8 bits ---- */

enum { COLS = 9 };

static const struct tie_case {
  tigon_dtype dtype;
  float w[COLS];
  uint8_t codes[COLS];
} ties[] = {
    {TIGON_F8E4M3,
     {448, 1.0625f, 1.1875f, -1.0625f, -1.1875f, 0x1p-10f, 3 * 0x1p-10f, 0x1.1p-6f, 232},
     {0x7e, 0x38, 0x3a, 0xb8, 0xba, 0, 2, 8, 0x76}},
    {TIGON_I8, {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 125.5f, 126.5f}, {127, 0, 2, 2, 0, 0xfe, 0xfe, 126, 126}},
};

/* Where y / scale is just between two codes the even one is right. A check allows both, because its y is next to such a place. Here y is
 * exact: all x are 1 or -1, and eps is too small to show, so that y = +-w. The largest w makes the scale 1. */
static void expect_even(tigon_context *context, const struct tie_case *c) {
  float x[COLS], scale = 0;
  uint8_t q[COLS];
  for (int i = 0; i < COLS; ++i) x[i] = i % 2 ? -1 : 1;
  char *memory = lines(context);
  const tigon_rms_norm_quantised_args args = {
      .x = tigon_tensor_2d(line(context, memory, 0, x, sizeof x), TIGON_F32, 1, COLS),
      .w = tigon_tensor_1d(line(context, memory, 1, c->w, sizeof c->w), TIGON_F32, COLS),
      .q = tigon_tensor_2d(line(context, memory, 2, NULL, 0), c->dtype, 1, COLS),
      .scale = tigon_tensor_1d(line(context, memory, 3, NULL, 0), TIGON_F32, 1),
      .eps = 1e-30};
  if (tigon_rms_norm_quantised(context, &args) != TIGON_OK) fail_msg("%s", tigon_last_error(context));
  fetch(context, q, memory, 2, sizeof q);
  fetch(context, &scale, memory, 3, sizeof scale);
  tigon_free(context, memory);
  assert_true(scale == 1);
  for (int i = 0; i < COLS; ++i) {
    const uint8_t code = c->codes[i], negative = (uint8_t)(c->dtype == TIGON_I8 ? -code : code ^ 0x80);
    if (q[i] != (x[i] < 0 ? negative : code))
      fail_msg("%s, %s: %g becomes %#x, must be %#x", tigon_last_variant(context), tigon_dtype_name(c->dtype),
               (double)(c->w[i] * x[i]), q[i], x[i] < 0 ? negative : code);
  }
}
static void even(tigon_context *context) {
  for (size_t i = 0; i < sizeof ties / sizeof *ties; ++i) expect_even(context, &ties[i]);
}
static void test_ties(void **state) {
  (void)state;
  everywhere("rms_norm", "quantised", even);
}

/* ---- preference_loss ---- */

/* The sum of nll_counts may be beyond 64 bits: loss = log 2 - (-3 - 5) / 2^64. */
static void huge_counts(tigon_context *context) {
  const float logps[] = {0, 0}, nll[] = {-3, -5};
  const int64_t counts[] = {INT64_MAX, INT64_MAX};
  float loss, dnll[2];
  char *memory = lines(context);
  const tigon_preference_loss_fwd_args args = {
      .logps = tigon_tensor_1d(line(context, memory, 0, logps, sizeof logps), TIGON_F32, 2),
      .nll_logps = tigon_tensor_1d(line(context, memory, 1, nll, sizeof nll), TIGON_F32, 2),
      .nll_counts = tigon_tensor_1d(line(context, memory, 2, counts, sizeof counts), TIGON_I64, 2),
      .loss = tigon_tensor_1d(line(context, memory, 3, NULL, 0), TIGON_F32, 1),
      .dnll_logps = tigon_tensor_1d(line(context, memory, 4, NULL, 0), TIGON_F32, 2),
      .options = {.beta = 1, .nll_weight = 1}};
  if (tigon_preference_loss_fwd(context, &args) != TIGON_OK) fail_msg("%s", tigon_last_error(context));
  fetch(context, &loss, memory, 3, sizeof loss);
  fetch(context, dnll, memory, 4, sizeof dnll);
  tigon_free(context, memory);
  assert_float_equal(loss, 0.6931472f, 1e-6);
  for (int i = 0; i < 2; ++i)
    if (fabsf(dnll[i] * 0x1p64f + 1) > 1e-6f)
      fail_msg("%s: dnll_logps[%d] is %g, must be %g", tigon_last_variant(context), i, (double)dnll[i], -0x1p-64);
}
static void test_counts(void **state) {
  (void)state;
  everywhere("preference_loss", "fwd", huge_counts);
}

/* ---- cross_entropy ---- */

/* As many rows as columns; a CPU with OpenCL adds up to 64 columns at a time. */
enum { CLASSES = 131 };

/* argmax of rows whose first largest number, or first NaN, is at each column in turn. After it there are others as large, and around it
 * numbers that are no larger than `near`. */
static void expect_argmax(tigon_context *context, float largest, float near) {
  static float logits[CLASSES][CLASSES];
  static const int32_t labels[CLASSES];
  int64_t argmax[CLASSES];
  for (int r = 0; r < CLASSES; ++r)
    for (int c = 0; c < CLASSES; ++c)
      logits[r][c] = c == r || (c > r && (c - r) % 16 <= 1) ? largest : near - (float)(c % 5);
  const size_t bytes[] = {sizeof logits, sizeof labels, sizeof(float), sizeof argmax};
  const void *from[] = {logits, labels, NULL, NULL};
  void *memory[4], *workspace = NULL;
  for (int i = 0; i < 4; ++i) {
    assert_int_equal(tigon_alloc(context, bytes[i], &memory[i]), TIGON_OK);
    if (from[i]) assert_int_equal(tigon_copy(context, memory[i], from[i], bytes[i]), TIGON_OK);
  }
  tigon_cross_entropy_fwd_args args = {.logits = tigon_tensor_2d(memory[0], TIGON_F32, CLASSES, CLASSES),
                                       .labels = tigon_tensor_1d(memory[1], TIGON_I32, CLASSES),
                                       .out.loss = tigon_tensor_1d(memory[2], TIGON_F32, 1),
                                       .out.argmax = tigon_tensor_1d(memory[3], TIGON_I64, CLASSES)};
  if (tigon_cross_entropy_fwd_workspace(context, &args, &args.workspace_bytes) != TIGON_OK ||
      (args.workspace_bytes && tigon_alloc(context, args.workspace_bytes, &workspace) != TIGON_OK))
    fail_msg("%s", tigon_last_error(context));
  args.workspace = workspace;
  if (tigon_cross_entropy_fwd(context, &args) != TIGON_OK) fail_msg("%s", tigon_last_error(context));
  assert_int_equal(tigon_copy(context, argmax, memory[3], sizeof argmax), TIGON_OK);
  for (int i = 0; i < 4; ++i) tigon_free(context, memory[i]);
  if (workspace) tigon_free(context, workspace);
  for (int r = 0; r < CLASSES; ++r)
    if (argmax[r] != r)
      fail_msg("%s: argmax of %g at column %d is %d", tigon_last_variant(context), (double)largest, r, (int)argmax[r]);
}
static void first_largest(tigon_context *context) {
  expect_argmax(context, 7, 6);
  expect_argmax(context, NAN, 6);
  expect_argmax(context, 0, -1);
}
static void test_argmax(void **state) {
  (void)state;
  everywhere("cross_entropy", "fwd", first_largest);
}

/* ---- attention ---- */

/* Heads enough for a CPU to make dq, dk and dv in one pass. */
enum { TOKENS = 5, HEADS = 2, WIDTH = 24, NUMBERS = TOKENS * HEADS * WIDTH, SEEN = (TOKENS - 1) * HEADS * WIDTH };

/* dq where the last token's keys are `last`. */
static void find_dq(tigon_context *context, float last, float dq[NUMBERS]) {
  float filled[NUMBERS], keys[NUMBERS];
  api_fill(filled, NUMBERS, 0.1f);
  for (int i = 0; i < NUMBERS; ++i) keys[i] = i < SEEN ? filled[NUMBERS - 1 - i] : last;
  char *memory = lines(context);
  enum { Q, K, V, O, D_O, DQ, DK, DV, LSE };
  tigon_tensor t[LSE];
  for (int i = Q; i < LSE; ++i)
    t[i] = tigon_tensor_4d(line(context, memory, i, i == K ? keys : filled, sizeof filled), TIGON_F32, 1, TOKENS, HEADS,
                           WIDTH);
  const tigon_tensor lse = tigon_tensor_3d(line(context, memory, LSE, NULL, 0), TIGON_F32, 1, HEADS, TOKENS);
  const tigon_attention_fwd_args fwd = {.q = t[Q], .k = t[K], .v = t[V], .o = t[O], .lse = lse, .causal = 1};
  tigon_attention_bwd_args bwd = {.d_o = t[D_O],
                                  .q = t[Q],
                                  .k = t[K],
                                  .v = t[V],
                                  .o = t[O],
                                  .lse = lse,
                                  .dq = t[DQ],
                                  .dk = t[DK],
                                  .dv = t[DV],
                                  .causal = 1};
  if (tigon_attention_fwd(context, &fwd) != TIGON_OK ||
      tigon_attention_bwd_workspace(context, &bwd, &bwd.workspace_bytes) != TIGON_OK ||
      tigon_alloc(context, bwd.workspace_bytes, &bwd.workspace) != TIGON_OK ||
      tigon_attention_bwd(context, &bwd) != TIGON_OK)
    fail_msg("%s", tigon_last_error(context));
  fetch(context, dq, memory, DQ, sizeof filled);
  tigon_free(context, bwd.workspace);
  tigon_free(context, memory);
}

/* A key that is no number reaches the queries that see it, in every column, and no other. */
static void unseen_key(tigon_context *context) {
  float dq[NUMBERS], other[NUMBERS];
  find_dq(context, 0.5f, dq);
  find_dq(context, NAN, other);
  for (int i = 0; i < SEEN; ++i)
    if (dq[i] != other[i]) fail_msg("%s: a key reaches an earlier query", tigon_last_variant(context));
  for (int i = SEEN; i < NUMBERS; ++i) assert_true(isnan(other[i]));
}
static void test_unseen(void **state) {
  (void)state;
  everywhere("attention", "bwd", unseen_key);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_ties), cmocka_unit_test(test_counts),
                                     cmocka_unit_test(test_argmax), cmocka_unit_test(test_unseen)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
