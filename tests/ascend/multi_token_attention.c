/* multi_token_attention in the simulator beside the CPU, for calls of which the check has no case. These are several chunks of
 * queries, rows of several panels, the most taps, and weights and scores that are no finite numbers.
 * ctest: slow */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tigon/tigon.h>

typedef struct shape {
  const char *part;
  int64_t in, groups, tokens, taps_h, taps_w, stride, padding_h, padding_w;
} shape;

enum { O, STAT, DSCORES, DWEIGHT, DBIAS, RESULTS };

typedef struct call {
  int64_t scores, weights, outs, stats;
  int64_t of_scores[4], of_weight[4], of_o[4], of_stat[3];
  float *s, *weight, *d_o;
} call;

static float *numbers(int64_t count, double step, double scale) {
  float *x = malloc((size_t)count * sizeof *x);
  assert_non_null(x);
  for (int64_t i = 0; i < count; ++i) x[i] = (float)(scale * sin(step * (double)(i + 1)));
  return x;
}
static int64_t product(const int64_t *of, int count) {
  int64_t all = 1;
  for (int i = 0; i < count; ++i) all *= of[i];
  return all;
}
static int64_t places(int64_t tokens, int64_t taps, int64_t stride, int64_t padding) {
  return (tokens + 2 * padding - taps) / stride + 1;
}
static tigon_tensor tensor(void *data, const int64_t of[4]) {
  return tigon_tensor_4d(data, TIGON_F32, of[0], of[1], of[2], of[3]);
}

static call make_call(const shape *x, bool pre) {
  const int64_t rows = places(x->tokens, x->taps_h, x->stride, x->padding_h),
                cols = places(x->tokens, x->taps_w, x->stride, x->padding_w);
  call c = {.of_scores = {1, x->in, x->tokens, x->tokens},
            .of_weight = {x->in, x->in / x->groups, x->taps_h, x->taps_w},
            .of_o = {1, x->in, rows, cols},
            .of_stat = {1, x->in, pre ? rows : x->tokens}};
  c.scores = product(c.of_scores, 4), c.weights = product(c.of_weight, 4);
  c.outs = product(c.of_o, 4), c.stats = product(c.of_stat, 3);
  c.s = numbers(c.scores, 1.7, 2);
  c.weight = numbers(c.weights, 0.9, 0.25);
  c.d_o = numbers(c.outs, 0.37, 1);
  return c;
}
static void free_call(const call *c) { free(c->s), free(c->weight), free(c->d_o); }

static void succeeds(const tigon_context *context, tigon_status status) {
  if (status != TIGON_OK) fail_msg("%s", tigon_last_error(context));
}

/* Backward takes `stat`, so that both devices have the same one. */
static void run(const char *device, const shape *x, const call *c, bool pre, bool sparse, float *of[RESULTS],
                float *stat) {
  tigon_context *context;
  const int64_t counts[RESULTS] = {c->outs, c->stats, c->scores, c->weights, x->in};
  succeeds(NULL, tigon_context_create(&(tigon_context_desc){.device = device}, &context));
  for (int i = 0; i < RESULTS; ++i) of[i] = numbers(counts[i], 0, 0);
  tigon_multi_token_attention_fwd_args fwd = {.scores = tensor(c->s, c->of_scores),
                                              .weight = tensor(c->weight, c->of_weight),
                                              .o = tensor(of[O], c->of_o),
                                              .stat = tigon_tensor_3d(of[STAT], TIGON_F32, 1, x->in, c->of_stat[2]),
                                              .place = pre ? TIGON_MTA_PRE : TIGON_MTA_POST,
                                              .sparse = sparse,
                                              .groups = x->groups,
                                              .stride_h = x->stride,
                                              .stride_w = x->stride,
                                              .padding_h = x->padding_h,
                                              .padding_w = x->padding_w};
  succeeds(context, tigon_multi_token_attention_fwd_workspace(context, &fwd, &fwd.workspace_bytes));
  succeeds(context, tigon_alloc(context, fwd.workspace_bytes, &fwd.workspace));
  succeeds(context, tigon_multi_token_attention_fwd(context, &fwd));
  tigon_free(context, fwd.workspace);
  tigon_multi_token_attention_bwd_args bwd = {
      .d_o = tensor(c->d_o, c->of_o),
      .scores = fwd.scores,
      .weight = fwd.weight,
      .stat = tigon_tensor_3d(stat ? stat : of[STAT], TIGON_F32, 1, x->in, c->of_stat[2]),
      .dscores = tensor(of[DSCORES], c->of_scores),
      .dweight = tensor(of[DWEIGHT], c->of_weight),
      .place = fwd.place,
      .sparse = sparse,
      .groups = x->groups,
      .stride_h = x->stride,
      .stride_w = x->stride,
      .padding_h = x->padding_h,
      .padding_w = x->padding_w};
  if (!pre) bwd.dbias = tigon_tensor_1d(of[DBIAS], TIGON_F32, x->in);
  succeeds(context, tigon_multi_token_attention_bwd_workspace(context, &bwd, &bwd.workspace_bytes));
  succeeds(context, tigon_alloc(context, bwd.workspace_bytes, &bwd.workspace));
  succeeds(context, tigon_multi_token_attention_bwd(context, &bwd));
  tigon_free(context, bwd.workspace);
  tigon_context_destroy(context);
}

/* Sums of some thousand terms, in other orders: within 2^-14 of the largest. What is no number is none on both. */
static void compare(const shape *x, const call *c, bool pre, bool sparse) {
  static const char *const names[] = {"o", "stat", "dscores", "dweight", "dbias"};
  const int64_t counts[RESULTS] = {c->outs, c->stats, c->scores, c->weights, x->in};
  float *wanted[RESULTS], *found[RESULTS];
  run("cpu", x, c, pre, sparse, wanted, NULL);
  run(x->part, x, c, pre, sparse, found, wanted[STAT]);
  for (int k = 0; k < RESULTS; ++k) {
    float most = 0;
    for (int64_t i = 0; i < counts[k]; ++i)
      if (isfinite(wanted[k][i])) most = fmaxf(most, fabsf(wanted[k][i]));
    for (int64_t i = 0; i < counts[k]; ++i) {
      const float w = wanted[k][i], f = found[k][i];
      if (isnan(w) ? !isnan(f) : w != f && !(fabsf(w - f) <= 0x1p-14f * most))
        fail_msg("%s, %lld tokens, pre %d, sparse %d: %s[%lld] is %g, must be %g", x->part, (long long)x->tokens, pre,
                 sparse, names[k], (long long)i, (double)f, (double)w);
    }
  }
  for (int k = 0; k < RESULTS; ++k) free(wanted[k]), free(found[k]);
}

static void large_ones(void **state) {
  static const shape shapes[] = {{"ascend-sim:910B4", 2, 2, 1500, 3, 2, 1, 2, 1}, /* two chunks */
                                 {"ascend-sim:910B4", 2, 1, 1400, 2, 3, 2, 1, 1},
                                 {"ascend-sim:tiny", 1, 1, 5, 64, 64, 1, 63, 63}};
  (void)state;
  for (int i = 0; i < (int)(sizeof shapes / sizeof *shapes); ++i)
    for (int pre = 0; pre < 2; ++pre) {
      const call c = make_call(&shapes[i], pre);
      compare(&shapes[i], &c, pre, i % 2 == pre);
      free_call(&c);
    }
}

/* A chip of 32 KiB, on which the most taps do not fit. */
static void a_small_chip(void **state) {
  static const shape two_panels = {"ascend-sim:tiny", 1, 1, 1000, 1, 2, 1, 0, 1};
  float x[64 * 64] = {0}, o[4];
  const tigon_multi_token_attention_fwd_args args = {.scores = tigon_tensor_4d(x, TIGON_F32, 1, 1, 1, 1),
                                                     .weight = tigon_tensor_4d(x, TIGON_F32, 1, 1, 64, 64),
                                                     .o = tigon_tensor_4d(o, TIGON_F32, 1, 1, 2, 2),
                                                     .padding_h = 32,
                                                     .padding_w = 32};
  tigon_multi_token_attention_fwd_args again = args;
  tigon_context *context;
  (void)state;
  setenv("TIGON_ASCEND_UB_BYTES", "32768", 1);
  for (int sparse = 0; sparse < 2; ++sparse) {
    const call c = make_call(&two_panels, sparse);
    compare(&two_panels, &c, sparse, sparse);
    free_call(&c);
  }
  succeeds(NULL, tigon_context_create(&(tigon_context_desc){.device = "ascend-sim:tiny"}, &context));
  succeeds(context, tigon_multi_token_attention_fwd_workspace(context, &args, &again.workspace_bytes));
  succeeds(context, tigon_alloc(context, again.workspace_bytes, &again.workspace));
  assert_int_equal(tigon_multi_token_attention_fwd(context, &again), TIGON_ERROR_SCRATCH);
  assert_non_null(strstr(tigon_last_error(context), "a kernel of so many taps does not fit on chip"));
  tigon_free(context, again.workspace);
  tigon_context_destroy(context);
  unsetenv("TIGON_ASCEND_UB_BYTES");
}

static void numbers_that_are_not_finite(void **state) {
  static const shape shapes[] = {{"ascend-sim:910B4", 2, 2, 19, 3, 3, 1, 1, 1},
                                 {"ascend-sim:tiny", 2, 1, 23, 3, 2, 2, 2, 1}};
  static const float values[] = {NAN, INFINITY, -INFINITY};
  (void)state;
  for (int i = 0; i < 2; ++i)
    for (int way = 0; way < 4; ++way)
      for (int v = 0; v < 3; ++v)
        for (int of = 0; of < 3; ++of) {
          const call c = make_call(&shapes[i], way % 2);
          float *const x[] = {c.s, c.weight, c.d_o};
          const int64_t counts[] = {c.scores, c.weights, c.outs};
          x[of][of == 0 ? 9 * shapes[i].tokens + 4 : counts[of] / 2] = values[v];
          compare(&shapes[i], &c, way % 2, way / 2);
          free_call(&c);
        }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(large_ones),
      cmocka_unit_test(a_small_chip),
      cmocka_unit_test(numbers_that_are_not_finite),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
