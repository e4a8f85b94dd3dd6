/* fused_moe in the simulator beside the oracle, for calls of which the check has no case. These are extents of 0, more experts, slots
 * and columns than a part has room for at once, slots of no expert alone, and inputs with a NaN.
 * ctest: slow */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tigon/tigon.h>

enum {
  INTERLEAVED = 1,
  BEFORE = 2,
  TURNED = 4,
  BIASES = 8,
  CLAMP = 16,
  ACCUMULATE = 32,
  KEEP = 64,
  GELU = 128,
  FORMS = 256
};
typedef enum choice { SPREAD, NONE, TWICE, LAST } choice;

typedef struct shape {
  int64_t tokens, hidden, inner, experts, top_k;
  choice choice;
} shape;

enum { X, W, GATE_UP, GATE_UP_BIAS, DOWN, DOWN_BIAS, DY, INPUTS };
enum { Y, PRE, DX, DW, DGATE_UP, DGATE_UP_BIAS, DDOWN, DDOWN_BIAS, RESULTS };

typedef struct call {
  shape of;
  int forms;
  float *in[INPUTS];
  int64_t *idx;
} call;

static float *numbers(int64_t count, double step, double scale) {
  float *x = malloc((size_t)(count + 1) * sizeof *x);
  assert_non_null(x);
  for (int64_t i = 0; i < count; ++i) x[i] = (float)(scale * sin(step * (double)(i + 1)));
  return x;
}

static int64_t expert_of(const shape *s, int64_t slot) {
  switch (s->choice) {
    case SPREAD: return slot * 7919 % (s->experts + 2) - 1;
    case NONE: return slot % 2 ? -1 - slot : s->experts + slot;
    case TWICE: return slot / 2 % (s->experts + 1);
    case LAST: return s->experts - 1;
  }
  return -1;
}

/* Tokens lie 3 elements apart. */
static int64_t pitch_of(const shape *s) { return s->hidden + 3; }

static call make_call(const shape *s, int forms) {
  const int64_t slots = s->tokens * s->top_k, matrix = s->experts * s->hidden * s->inner;
  call c = {.of = *s, .forms = forms};
  c.in[X] = numbers(s->tokens * pitch_of(s), 1.7, 2);
  c.in[W] = numbers(slots, 0.9, 1);
  c.in[GATE_UP] = numbers(2 * matrix, 0.37, 1);
  c.in[GATE_UP_BIAS] = numbers(s->experts * 2 * s->inner, 0.7, 1);
  c.in[DOWN] = numbers(matrix, 1.1, 1);
  c.in[DOWN_BIAS] = numbers(s->experts * s->hidden, 0.21, 1);
  c.in[DY] = numbers(s->tokens * pitch_of(s), 0.53, 1);
  c.idx = malloc((size_t)(slots + 1) * sizeof *c.idx);
  assert_non_null(c.idx);
  for (int64_t i = 0; i < slots; ++i) c.idx[i] = expert_of(s, i);
  return c;
}
static void free_call(const call *c) {
  for (int i = 0; i < INPUTS; ++i) free(c->in[i]);
  free(c->idx);
}

static int64_t count_of(const shape *s, int result) {
  const int64_t rows = s->tokens * pitch_of(s), slots = s->tokens * s->top_k,
                matrix = s->experts * s->hidden * s->inner;
  const int64_t counts[RESULTS] = {rows,       slots * 2 * s->inner,      rows,   slots,
                                   2 * matrix, s->experts * 2 * s->inner, matrix, s->experts * s->hidden};
  return counts[result];
}

/* ---- tensors ---- */

static tigon_tensor rows_of(void *data, const shape *s) {
  tigon_tensor t = tigon_tensor_2d(data, TIGON_F32, s->tokens, s->hidden);
  t.strides[0] = pitch_of(s);
  return t;
}
/* With strides as if no extent were 0. */
static tigon_tensor dense(tigon_tensor t) {
  int64_t stride = 1;
  for (int d = t.ndim - 1; d >= 0; --d) {
    t.strides[d] = stride;
    stride *= t.shape[d] > 0 ? t.shape[d] : 1;
  }
  return t;
}
static tigon_tensor matrix_of(void *data, int64_t e, int64_t n, int64_t k, bool turned) {
  tigon_tensor t = dense(tigon_tensor_3d(data, TIGON_F32, e, turned ? k : n, turned ? n : k));
  if (!turned) return t;
  t.shape[1] = n, t.shape[2] = k;
  t.strides[2] = t.strides[1], t.strides[1] = 1;
  return t;
}
static tigon_tensor list_of(void *data, int64_t n, int64_t k) { return dense(tigon_tensor_2d(data, TIGON_F32, n, k)); }

static void succeeds(const tigon_context *context, tigon_status status) {
  if (status != TIGON_OK) fail_msg("%s", tigon_last_error(context));
}

#define GIVEN(c, s)                                                                                                \
  .x = rows_of((c)->in[X], s), .idx = dense(tigon_tensor_2d((c)->idx, TIGON_I64, (s)->tokens, (s)->top_k)),        \
  .w = list_of((c)->in[W], (s)->tokens, (s)->top_k),                                                               \
  .gate_up = matrix_of((c)->in[GATE_UP], (s)->experts, 2 * (s)->inner, (s)->hidden, (c)->forms & TURNED),          \
  .down = matrix_of((c)->in[DOWN], (s)->experts, (s)->hidden, (s)->inner, (c)->forms & TURNED),                    \
  .act = (c)->forms & GELU ? TIGON_MOE_GELU_TANH : TIGON_MOE_SILU, .interleaved = ((c)->forms & INTERLEAVED) != 0, \
  .weight_before_down = ((c)->forms & BEFORE) != 0, .clamp = (c)->forms & CLAMP ? 0.75 : 0,                        \
  .up_offset = (c)->forms & CLAMP ? 1 : 0, .gate_mult = (c)->forms & CLAMP ? 1.702 : 0

/* Backward takes `pre`, so that both devices have the same one. */
static void run(const char *device, const call *c, float *of[RESULTS], float *pre) {
  const shape *s = &c->of;
  tigon_context *context;
  succeeds(NULL, tigon_context_create(&(tigon_context_desc){.device = device}, &context));
  for (int i = 0; i < RESULTS; ++i) of[i] = numbers(count_of(s, i), 0.1, 1);
  const bool biases = c->forms & BIASES, keeps = c->forms & KEEP;
  tigon_fused_moe_fwd_args fwd = {GIVEN(c, s), .y = rows_of(of[Y], s)};
  tigon_fused_moe_bwd_args bwd = {GIVEN(c, s), .dy = rows_of(c->in[DY], s), .dx = rows_of(of[DX], s),
                                  .dw = list_of(of[DW], s->tokens, s->top_k),
                                  .accumulate_dgate_up = (c->forms & ACCUMULATE) != 0};
  bwd.dgate_up = matrix_of(of[DGATE_UP], s->experts, 2 * s->inner, s->hidden, c->forms & TURNED);
  bwd.ddown = matrix_of(of[DDOWN], s->experts, s->hidden, s->inner, c->forms & TURNED);
  bwd.dgate_up_bias = list_of(of[DGATE_UP_BIAS], s->experts, 2 * s->inner);
  bwd.ddown_bias = list_of(of[DDOWN_BIAS], s->experts, s->hidden);
  if (biases) fwd.gate_up_bias = bwd.gate_up_bias = list_of(c->in[GATE_UP_BIAS], s->experts, 2 * s->inner);
  if (biases) fwd.down_bias = bwd.down_bias = list_of(c->in[DOWN_BIAS], s->experts, s->hidden);
  if (keeps) fwd.pre = dense(tigon_tensor_3d(of[PRE], TIGON_F32, s->tokens, s->top_k, 2 * s->inner));
  if (keeps) bwd.pre = dense(tigon_tensor_3d(pre ? pre : of[PRE], TIGON_F32, s->tokens, s->top_k, 2 * s->inner));
  succeeds(context, tigon_fused_moe_fwd_workspace(context, &fwd, &fwd.workspace_bytes, NULL));
  succeeds(context, tigon_alloc(context, fwd.workspace_bytes + 1, &fwd.workspace));
  succeeds(context, tigon_fused_moe_fwd(context, &fwd));
  tigon_free(context, fwd.workspace);
  succeeds(context, tigon_fused_moe_bwd_workspace(context, &bwd, &bwd.workspace_bytes, NULL));
  succeeds(context, tigon_alloc(context, bwd.workspace_bytes + 1, &bwd.workspace));
  succeeds(context, tigon_fused_moe_bwd(context, &bwd));
  tigon_free(context, bwd.workspace);
  tigon_context_destroy(context);
}

/* f32 beside f64: within 2^-14 of the largest. What is no number is none on both. */
static void compare(const char *device, const call *c) {
  static const char *const names[] = {"y", "pre", "dx", "dw", "dgate_up", "dgate_up_bias", "ddown", "ddown_bias"};
  const shape *s = &c->of;
  float *wanted[RESULTS], *found[RESULTS];
  run("ref", c, wanted, NULL);
  run(device, c, found, wanted[PRE]);
  for (int k = 0; k < RESULTS; ++k) {
    float most = 0;
    for (int64_t i = 0; i < count_of(s, k); ++i)
      if (isfinite(wanted[k][i])) most = fmaxf(most, fabsf(wanted[k][i]));
    for (int64_t i = 0; i < count_of(s, k); ++i) {
      const float w = wanted[k][i], f = found[k][i];
      if (isnan(w) ? !isnan(f) : w != f && !(fabsf(w - f) <= 0x1p-14f * most))
        fail_msg("%s, %lldx%lldx%lldx%lldx%lld, forms %d: %s[%lld] is %g, must be %g", device, (long long)s->tokens,
                 (long long)s->hidden, (long long)s->inner, (long long)s->experts, (long long)s->top_k, c->forms,
                 names[k], (long long)i, (double)f, (double)w);
    }
  }
  for (int k = 0; k < RESULTS; ++k) free(wanted[k]), free(found[k]);
}

static void compare_forms(const char *device, const shape *s, int step) {
  for (int forms = 0; forms < FORMS; forms += step) {
    const call c = make_call(s, forms);
    compare(device, &c);
    free_call(&c);
  }
}

/* ---- tests ---- */

static void small_ones(void **state) {
  static const shape shapes[] = {{5, 7, 5, 1, 1, LAST},     {6, 7, 5, 3, 2, TWICE}, {3, 4, 3, 2, 5, SPREAD},
                                 {4, 3, 2, 3, 3, NONE},     {9, 16, 8, 4, 2, LAST}, {2, 1, 1, 9, 2, SPREAD},
                                 {40, 33, 17, 5, 2, SPREAD}};
  (void)state;
  for (int i = 0; i < (int)(sizeof shapes / sizeof *shapes); ++i) {
    compare_forms("ascend-sim:910B4", &shapes[i], 5);
    compare_forms("ascend-sim:tiny", &shapes[i], 7);
  }
}

static void extents_of_0(void **state) {
  (void)state;
  for (int extent = 0; extent < 5; ++extent) {
    int64_t of[] = {3, 5, 4, 2, 2};
    of[extent] = 0;
    const shape s = {of[0], of[1], of[2], of[3], of[4], SPREAD};
    compare_forms("ascend-sim:910B4", &s, 3);
  }
}

/* Experts of several panels; indices of several loads; choices of several, too; rows of several chunks; the most rows of a sum. */
static void large_ones(void **state) {
  static const shape shapes[] = {{40, 2, 1, 9000, 3, SPREAD}, {700, 3, 2, 5, 4, SPREAD}, {5, 9, 4, 7, 300, SPREAD},
                                 {3, 2300, 5, 2, 2, SPREAD},  {3, 5, 900, 2, 2, SPREAD}, {1500, 4, 3, 2, 3, TWICE}};
  (void)state;
  for (int i = 0; i < (int)(sizeof shapes / sizeof *shapes); ++i) compare_forms("ascend-sim:tiny", &shapes[i], 29);
}

/* A NaN stays with its token and its experts, whichever input has it. */
static void a_nan(void **state) {
  static const shape s = {12, 7, 5, 4, 2, SPREAD};
  (void)state;
  for (int input = 0; input < INPUTS; ++input)
    for (int forms = 0; forms < FORMS; forms += 51) {
      const call c = make_call(&s, forms);
      c.in[input][3] = NAN;
      compare("ascend-sim:910B4", &c);
      free_call(&c);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(small_ones),
      cmocka_unit_test(extents_of_0),
      cmocka_unit_test(large_ones),
      cmocka_unit_test(a_nan),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
