/* What the tests of heads with a loss share: a small head, its loss by parts (linear_logprob, the loss, linear_logprob's backward), and
 * workspaces of every size. What belongs to a token or a sequence has the bits of the parts; sums over tokens have nearly those. */
#ifndef TIGON_TESTS_FUSED_HEAD_H
#define TIGON_TESTS_FUSED_HEAD_H

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

#include "core/half.h"

enum { SEQUENCES = 6, LENGTH = 7, ROWS = SEQUENCES * LENGTH, WIDTH = 24, VOCAB = 57, IGNORE = -100, ROOMS = 13 };
enum { WORKSPACE = 1 << 17 };

typedef struct head_results {
  float loss, logprob[ROWS], metrics[8], each[ROWS], dhidden[ROWS * WIDTH], dweight[VOCAB * WIDTH], dbias[VOCAB];
} head_results;

/* Buffers hold up to 4 bytes an element; 16-bit dtypes use half of them. */
typedef struct head_problem {
  tigon_dtype dtype, sum_dtype; /* sum_dtype: of dweight and dbias */
  bool packed, frozen;          /* frozen: no dweight and dbias */
  float hidden[ROWS * WIDTH], weight[VOCAB * WIDTH], bias[VOCAB], vectors[4][ROWS], dloss, entropy[ROWS];
  int64_t labels[ROWS], segments[SEQUENCES + 1];
} head_problem;

static _Alignas(64) char workspace[WORKSPACE];

static inline void fill(void *data, tigon_dtype dtype, int count, unsigned *seed) {
  for (int i = 0; i < count; ++i) {
    *seed = *seed * 1664525u + 1013904223u;
    tigon_store_f64(data, i, dtype, (double)((float)(*seed >> 8) * 0x1p-23f - 1));
  }
}

/* `ignores`: some labels, and all of a sequence. A packed batch has an empty sequence, and a long one. */
static inline head_problem *made(tigon_dtype dtype, tigon_dtype sum_dtype, bool packed, bool ignores) {
  static head_problem p;
  static const int64_t ends[SEQUENCES + 1] = {0, 3, 3, 9, 11, 40, ROWS};
  memset(&p, 0, sizeof p);
  unsigned seed = 7;
  p.dtype = dtype, p.sum_dtype = sum_dtype, p.packed = packed;
  fill(p.hidden, dtype, ROWS * WIDTH, &seed);
  fill(p.weight, dtype, VOCAB * WIDTH, &seed);
  fill(p.bias, dtype, VOCAB, &seed);
  for (int i = 0; i < 4; ++i) fill(p.vectors[i], TIGON_F32, ROWS, &seed);
  p.dloss = 2; /* with which no order of factors rounds otherwise */
  for (int s = 0; s <= SEQUENCES; ++s) p.segments[s] = packed ? ends[s] : s * LENGTH;
  for (int r = 0; r < ROWS; ++r)
    p.labels[r] = ignores && (r % 5 == 2 || (r >= p.segments[3] && r < p.segments[4])) ? IGNORE : r * 7919 % VOCAB;
  return &p;
}

static inline tigon_tensor matrix(const void *data, tigon_dtype dtype, int rows, int cols) {
  return tigon_tensor_2d((void *)data, dtype, rows, cols);
}
static inline tigon_tensor words(const float *data, int count) {
  return tigon_tensor_1d((void *)data, TIGON_F32, count);
}
static inline tigon_tensor batch(const head_problem *p, const float *data) {
  if (p->packed) return matrix(data, p->dtype, ROWS, WIDTH);
  tigon_tensor t = {.data = (void *)data, .dtype = p->dtype, .ndim = 3, .shape = {SEQUENCES, LENGTH, WIDTH}};
  t.strides[0] = LENGTH * WIDTH, t.strides[1] = WIDTH, t.strides[2] = 1;
  return t;
}
static inline tigon_tensor segments_of(const head_problem *p) {
  return tigon_tensor_1d((void *)p->segments, TIGON_I64, SEQUENCES + 1);
}

/* A padded batch has none. */
static inline tigon_tensor given_segments(const head_problem *p) {
  return p->packed ? segments_of(p) : (tigon_tensor){0};
}

/* The first half by parts: log-probabilities, entropies and what backward reads. */
static inline tigon_linear_logprob_fwd_args logprob_by_parts(tigon_context *c, const head_problem *p, head_results *out,
                                                             float *lse, float *entropy) {
  static _Alignas(64) char large[1 << 20];
  const tigon_linear_logprob_fwd_args a = {.hidden = matrix(p->hidden, p->dtype, ROWS, WIDTH),
                                           .weight = matrix(p->weight, p->dtype, VOCAB, WIDTH),
                                           .bias = tigon_tensor_1d((void *)p->bias, p->dtype, VOCAB),
                                           .labels = tigon_tensor_1d((void *)p->labels, TIGON_I64, ROWS),
                                           .has_ignore_index = 1,
                                           .ignore_index = IGNORE,
                                           .temperature = 0.75,
                                           .softcap = 5,
                                           .logprob = words(out->logprob, ROWS),
                                           .lse = words(lse, ROWS),
                                           .entropy = words(entropy, ROWS),
                                           .workspace = large,
                                           .workspace_bytes = sizeof large};
  assert_int_equal(tigon_linear_logprob_fwd(c, &a), TIGON_OK);
  return a;
}

static inline void gradients_by_parts(tigon_context *c, const head_problem *p, const tigon_linear_logprob_fwd_args *a,
                                      const float *dlogprob, const float *dentropy, head_results *out) {
  tigon_linear_logprob_bwd_args b = {.hidden = a->hidden,
                                     .weight = a->weight,
                                     .bias = a->bias,
                                     .labels = a->labels,
                                     .lse = a->lse,
                                     .entropy = a->entropy,
                                     .dlogprob = words(dlogprob, ROWS),
                                     .dhidden = matrix(out->dhidden, p->dtype, ROWS, WIDTH),
                                     .has_ignore_index = 1,
                                     .ignore_index = IGNORE,
                                     .temperature = a->temperature,
                                     .softcap = a->softcap,
                                     .workspace = a->workspace,
                                     .workspace_bytes = a->workspace_bytes};
  if (dentropy) b.dentropy = words(dentropy, ROWS);
  if (!p->frozen) b.dweight = matrix(out->dweight, p->sum_dtype, VOCAB, WIDTH);
  if (!p->frozen) b.dbias = tigon_tensor_1d(out->dbias, p->sum_dtype, VOCAB);
  assert_int_equal(tigon_linear_logprob_bwd(c, &b), TIGON_OK);
}

/* What the arguments of both composites have alike. */
#define HEAD_FIELDS(p, out)                                                                                         \
  .hidden = batch(p, (p)->hidden), .weight = matrix((p)->weight, (p)->dtype, VOCAB, WIDTH),                         \
  .bias = tigon_tensor_1d((void *)(p)->bias, (p)->dtype, VOCAB),                                                    \
  .labels = tigon_tensor_1d((void *)(p)->labels, TIGON_I64, ROWS), .dloss = words(&(p)->dloss, 1),                  \
  .has_ignore_index = 1, .ignore_index = IGNORE, .temperature = 0.75, .softcap = 5, .loss = words(&(out)->loss, 1), \
  .logprob = words((out)->logprob, ROWS), .dhidden = batch(p, (out)->dhidden), .workspace = workspace,              \
  .segments = given_segments(p)

/* room: 0 is the least workspace, ROOMS - 1 the one recommended. */
#define CALL_IN_ROOM(op, c, p, a, out, room)                                                        \
  do {                                                                                              \
    size_t least, good;                                                                             \
    if (!(p)->frozen) (a)->dweight = matrix((out)->dweight, (p)->sum_dtype, VOCAB, WIDTH);          \
    if (!(p)->frozen) (a)->dbias = tigon_tensor_1d((out)->dbias, (p)->sum_dtype, VOCAB);            \
    assert_int_equal(tigon_##op##_fwd_workspace(c, a, &least, &good), TIGON_OK);                    \
    assert_in_range(good, least, WORKSPACE);                                                        \
    memset(workspace, 0x7f, WORKSPACE);                                                             \
    (a)->workspace_bytes = least + (good - least) * (size_t)(room) / (ROOMS - 1);                   \
    assert_int_equal(tigon_##op##_fwd(c, a), TIGON_OK);                                             \
    for (size_t i = (a)->workspace_bytes; i < WORKSPACE; ++i) assert_int_equal(workspace[i], 0x7f); \
  } while (0)

static inline void expect_sums(const head_problem *p, const float *got, const float *expected, int count) {
  const double ulp = p->sum_dtype == TIGON_F32 ? 0 : p->sum_dtype == TIGON_BF16 ? 0x1p-7 : 0x1p-10;
  const double least = p->sum_dtype == TIGON_F16 ? 0x1p-24 : 0; /* a unit of numbers below 2^-14 */
  const double flip = p->dtype == TIGON_F32 ? 0 : p->dtype == TIGON_BF16 ? 0x1p-11 : 0x1p-14;
  double largest = 0;
  for (int i = 0; i < count; ++i) largest = fmax(largest, fabs(tigon_load_f64(expected, i, p->sum_dtype)));
  for (int i = 0; i < count; ++i) {
    const double g = tigon_load_f64(got, i, p->sum_dtype), e = tigon_load_f64(expected, i, p->sum_dtype);
    assert_true(fabs(g - e) <= fmax(least, ulp * fabs(e)) + (4e-6 + flip) * largest);
  }
}

/* `run` fills the results of the composite in a workspace of a room, `parts` those of its parts. The oracle has the bits of the parts
 * where it rounds between them. */
static inline void compare(const head_problem *p, const void *options, bool oracle,
                           void (*parts)(tigon_context *, const head_problem *, const void *, head_results *),
                           void (*run)(tigon_context *, const head_problem *, const void *, int, head_results *)) {
  static head_results expected, got;
  static head_problem inputs;
  const char *devices[] = {"ref", "cpu"};
  inputs = *p;
  setenv("TIGON_GEMM", "builtin", 1);
  for (int d = oracle ? 0 : 1; d < 2; ++d) {
    const tigon_context_desc desc = {.device = devices[d], .threads = 2};
    tigon_context *c;
    assert_int_equal(tigon_context_create(&desc, &c), TIGON_OK);
    memset(&expected, 0, sizeof expected);
    parts(c, p, options, &expected);
    for (int room = 0; room < ROOMS; ++room) {
      memset(&got, 0, sizeof got);
      run(c, p, options, room, &got);
      assert_memory_equal(&got, &expected, offsetof(head_results, dweight));
      expect_sums(p, got.dweight, expected.dweight, VOCAB * WIDTH);
      expect_sums(p, got.dbias, expected.dbias, VOCAB);
    }
    tigon_context_destroy(c);
  }
  assert_memory_equal(p, &inputs, sizeof inputs);
}

/* Every batch, dtype and dtype of sums. */
static inline void compare_all(const void *options, bool oracle,
                               void (*parts)(tigon_context *, const head_problem *, const void *, head_results *),
                               void (*run)(tigon_context *, const head_problem *, const void *, int, head_results *)) {
  const tigon_dtype dtypes[] = {TIGON_F32, TIGON_BF16, TIGON_F16};
  for (int i = 0; i < 12; ++i) {
    head_problem *p = made(dtypes[i % 3], i < 6 ? dtypes[i % 3] : TIGON_F32, i % 2, i % 4 < 2);
    compare(p, options, oracle, parts, run);
    p->frozen = true;
    if (i < 4) compare(p, options, oracle, parts, run);
  }
}

#endif
