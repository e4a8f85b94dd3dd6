/* linear_logprob against its parts: linear, cross_entropy and linear's backward with all logits in memory. It runs on the oracle
 * and on the CPU with the built-in GEMM, for workspaces and caches of every size. What belongs to a token has the bits of the
 * parts; sums over tokens have those of a call without a cache, of the same workspace. Shards of the vocabulary have the bits of
 * vocab_parallel_cross_entropy's parts, and merged they are nearly the whole. */
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

enum { ROWS = 43, WIDTH = 24, VOCAB = 57, IGNORE = -100, WORKSPACE = 1 << 17, MOST_CACHED = ROWS + 3 };

/* Buffers hold up to 4 bytes an element; 16-bit dtypes use half of them. */
typedef struct results {
  float logprob[ROWS], lse[ROWS], entropy[ROWS], unit[ROWS * WIDTH], dhidden[ROWS * WIDTH], dweight[VOCAB * WIDTH],
      dbias[VOCAB];
  int64_t argmax[ROWS], correct[1];
} results;

typedef struct problem {
  tigon_dtype dtype, sum_dtype; /* sum_dtype: of dweight and dbias */
  int kept;
  float hidden[ROWS * WIDTH], weight[VOCAB * WIDTH], bias[VOCAB], dlogprob[ROWS], minus[ROWS], dentropy[ROWS];
  int64_t labels[ROWS];
  double softcap, temperature;
  bool softcap_first, wide; /* wide: logits in f32 */
} problem;

static _Alignas(64) char workspace[WORKSPACE];

static float uniform(unsigned *seed) {
  *seed = *seed * 1664525u + 1013904223u;
  return (float)(*seed >> 8) * 0x1p-23f - 1;
}

static void fill(void *data, tigon_dtype dtype, int count, unsigned *seed) {
  for (int i = 0; i < count; ++i) tigon_store_f64(data, i, dtype, (double)uniform(seed));
}

static problem *made(tigon_dtype dtype, tigon_dtype sum_dtype, bool ignores, double softcap) {
  static problem p;
  memset(&p, 0, sizeof p);
  unsigned seed = 7;
  p.dtype = dtype;
  p.sum_dtype = sum_dtype;
  p.softcap = softcap;
  p.temperature = softcap > 0 ? 0.7 : 0;
  p.softcap_first = softcap > 0;
  fill(p.hidden, dtype, ROWS * WIDTH, &seed);
  fill(p.weight, dtype, VOCAB * WIDTH, &seed);
  fill(p.bias, dtype, VOCAB, &seed);
  fill(p.dlogprob, TIGON_F32, ROWS, &seed);
  fill(p.dentropy, TIGON_F32, ROWS, &seed);
  for (int r = 0; r < ROWS; ++r) {
    p.minus[r] = -p.dlogprob[r];
    p.labels[r] = ignores && r % 5 == 2 ? IGNORE : r * 7919 % VOCAB;
    p.kept += p.labels[r] != IGNORE;
  }
  return &p;
}

static tigon_tensor matrix(const void *data, tigon_dtype dtype, int rows, int cols) {
  return tigon_tensor_2d((void *)data, dtype, rows, cols);
}
static tigon_tensor words(const float *data) { return tigon_tensor_1d((void *)data, TIGON_F32, ROWS); }
static tigon_tensor labels_of(const problem *p) { return tigon_tensor_1d((void *)p->labels, TIGON_I64, ROWS); }

static tigon_dtype logits_dtype(const problem *p) { return p->wide ? TIGON_F32 : p->dtype; }

/* dlogits as products take them. */
static tigon_tensor rounded(const problem *p, const float *dlogits) {
  static float narrow[ROWS * VOCAB];
  if (logits_dtype(p) == p->dtype) return matrix(dlogits, p->dtype, ROWS, VOCAB);
  for (int i = 0; i < ROWS * VOCAB; ++i) tigon_store_f64(narrow, i, p->dtype, (double)dlogits[i]);
  return matrix(narrow, p->dtype, ROWS, VOCAB);
}

/* All logits in memory. */
static void by_parts(tigon_context *c, const problem *p, results *out) {
  static float logits[ROWS * VOCAB], dlogits[ROWS * VOCAB];
  const tigon_tensor hidden = matrix(p->hidden, p->dtype, ROWS, WIDTH),
                     x = matrix(logits, logits_dtype(p), ROWS, VOCAB),
                     weight = matrix(p->weight, p->dtype, VOCAB, WIDTH), dx = matrix(dlogits, x.dtype, ROWS, VOCAB);
  memset(out, 0, sizeof *out);
  const tigon_linear_fwd_args product = {
      .x = hidden, .w = weight, .b = tigon_tensor_1d((void *)p->bias, p->dtype, VOCAB), .y = x};
  assert_int_equal(tigon_linear_fwd(c, &product), TIGON_OK);
  tigon_cross_entropy_fwd_args loss = {.logits = x,
                                       .labels = labels_of(p),
                                       .options = {.has_ignore_index = 1,
                                                   .ignore_index = IGNORE,
                                                   .softcap = p->softcap,
                                                   .temperature = p->temperature,
                                                   .softcap_first = p->softcap_first,
                                                   .reduction = TIGON_REDUCTION_NONE},
                                       .out = {.token_loss = words(out->logprob),
                                               .lse = words(out->lse),
                                               .entropy = words(out->entropy),
                                               .argmax = tigon_tensor_1d(out->argmax, TIGON_I64, ROWS),
                                               .correct = tigon_tensor_1d(out->correct, TIGON_I64, 1)},
                                       .dlogits = dx,
                                       .grad_scale = -1,
                                       .workspace = workspace,
                                       .workspace_bytes = WORKSPACE};
  assert_int_equal(tigon_cross_entropy_fwd(c, &loss), TIGON_OK);
  tigon_linear_bwd_args back = {
      .dy = rounded(p, dlogits), .x = hidden, .w = weight, .dx = matrix(out->unit, p->dtype, ROWS, WIDTH)};
  assert_int_equal(tigon_linear_bwd(c, &back), TIGON_OK);
  const tigon_cross_entropy_bwd_args backward = {.logits = x,
                                                 .labels = loss.labels,
                                                 .lse = loss.out.lse,
                                                 .entropy = loss.out.entropy,
                                                 .options = loss.options,
                                                 .dloss = words(p->minus),
                                                 .dentropy = words(p->dentropy),
                                                 .dlogits = dx,
                                                 .workspace = workspace,
                                                 .workspace_bytes = WORKSPACE};
  assert_int_equal(tigon_cross_entropy_bwd(c, &backward), TIGON_OK);
  back.dy = rounded(p, dlogits);
  back.dx = matrix(out->dhidden, p->dtype, ROWS, WIDTH);
  back.dw = matrix(out->dweight, p->sum_dtype, VOCAB, WIDTH);
  back.db = tigon_tensor_1d(out->dbias, p->sum_dtype, VOCAB);
  assert_int_equal(tigon_linear_bwd(c, &back), TIGON_OK);
  for (int r = 0; r < ROWS; ++r) {
    out->logprob[r] = 0 - out->logprob[r];
    if (p->labels[r] == IGNORE) out->lse[r] = 0; /* such a row is skipped */
  }
}

/* room: 0 is the least workspace, 8 the one recommended. */
static size_t bytes_of(size_t least, size_t good, int room) {
  assert_in_range(good, least, WORKSPACE);
  memset(workspace, 0x7f, WORKSPACE);
  return least + (good - least) * (size_t)room / 8;
}

/* The arguments that all classes and a shard of them have alike. */
static tigon_linear_logprob_fwd_args forward_args(const problem *p, tigon_tensor weight, tigon_tensor bias) {
  return (tigon_linear_logprob_fwd_args){.hidden = matrix(p->hidden, p->dtype, ROWS, WIDTH),
                                         .weight = weight,
                                         .bias = bias,
                                         .labels = labels_of(p),
                                         .has_ignore_index = 1,
                                         .ignore_index = IGNORE,
                                         .softcap = p->softcap,
                                         .temperature = p->temperature,
                                         .softcap_first = p->softcap_first,
                                         .logits_in_f32 = p->wide,
                                         .workspace = workspace};
}

static void run_forward(tigon_context *c, tigon_linear_logprob_fwd_args *a, int room) {
  size_t least, good;
  assert_int_equal(tigon_linear_logprob_fwd_workspace(c, a, &least, &good), TIGON_OK);
  a->workspace_bytes = bytes_of(least, good, room);
  assert_int_equal(tigon_linear_logprob_fwd(c, a), TIGON_OK);
  for (size_t i = a->workspace_bytes; i < WORKSPACE; ++i) assert_int_equal(workspace[i], 0x7f);
}

/* Backward of `a`, from lse and entropy. */
static void run_backward(tigon_context *c, const problem *p, const tigon_linear_logprob_fwd_args *a, const float *lse,
                         const float *entropy, float *dhidden, float *dweight, float *dbias, int room) {
  const int classes = (int)a->weight.shape[0];
  tigon_linear_logprob_bwd_args b = {.hidden = a->hidden,
                                     .weight = a->weight,
                                     .bias = a->bias,
                                     .labels = a->labels,
                                     .lse = words(lse),
                                     .entropy = words(entropy),
                                     .cache = a->cache,
                                     .dlogprob = words(p->dlogprob),
                                     .dentropy = words(p->dentropy),
                                     .dhidden = matrix(dhidden, p->dtype, ROWS, WIDTH),
                                     .dweight = matrix(dweight, p->sum_dtype, classes, WIDTH),
                                     .dbias = tigon_tensor_1d(dbias, p->sum_dtype, classes),
                                     .has_ignore_index = a->has_ignore_index,
                                     .ignore_index = a->ignore_index,
                                     .softcap = a->softcap,
                                     .temperature = a->temperature,
                                     .softcap_first = a->softcap_first,
                                     .logits_in_f32 = a->logits_in_f32,
                                     .vocab = a->vocab,
                                     .vocab_begin = a->vocab_begin,
                                     .workspace = workspace};
  size_t least, good;
  assert_int_equal(tigon_linear_logprob_bwd_workspace(c, &b, &least, &good), TIGON_OK);
  b.workspace_bytes = bytes_of(least, good, room);
  assert_int_equal(tigon_linear_logprob_bwd(c, &b), TIGON_OK);
  for (size_t i = b.workspace_bytes; i < WORKSPACE; ++i) assert_int_equal(workspace[i], 0x7f);
}

static void run(tigon_context *c, const problem *p, int cached, int room, results *out) {
  enum { PITCH = VOCAB + 3 };
  static float cache[MOST_CACHED * PITCH];
  const size_t size = tigon_dtype_size(logits_dtype(p));
  memset(out, 0, sizeof *out);
  memset(cache, 0x11, sizeof cache);
  tigon_linear_logprob_fwd_args a =
      forward_args(p, matrix(p->weight, p->dtype, VOCAB, WIDTH), tigon_tensor_1d((void *)p->bias, p->dtype, VOCAB));
  a.logprob = words(out->logprob);
  a.lse = words(out->lse);
  a.entropy = words(out->entropy);
  a.argmax = tigon_tensor_1d(out->argmax, TIGON_I64, ROWS);
  a.correct = tigon_tensor_1d(out->correct, TIGON_I64, 1);
  a.unit = matrix(out->unit, p->dtype, ROWS, WIDTH);
  if (cached) a.cache = matrix(cache, logits_dtype(p), cached, VOCAB);
  if (cached) a.cache.strides[0] = PITCH;
  run_forward(c, &a, room);
  const size_t used = (size_t)(cached < p->kept ? cached : p->kept) * PITCH * size; /* and nothing behind them */
  for (size_t i = used; i < sizeof cache; ++i) assert_int_equal(((const char *)cache)[i], 0x11);

  static float kept[MOST_CACHED * PITCH];
  memcpy(kept, cache, sizeof kept);
  run_backward(c, p, &a, out->lse, out->entropy, out->dhidden, out->dweight, out->dbias, room);
  assert_memory_equal(cache, kept, sizeof kept); /* for a second backward */
}

static void expect_sums(const problem *p, const float *got, const float *expected, int count) {
  const double ulp = p->sum_dtype == TIGON_F32 ? 0 : p->sum_dtype == TIGON_BF16 ? 0x1p-7 : 0x1p-10;
  const double flip = p->dtype == TIGON_F32 ? 0 : p->dtype == TIGON_BF16 ? 0x1p-11 : 0x1p-14;
  double largest = 0;
  for (int i = 0; i < count; ++i) largest = fmax(largest, fabs(tigon_load_f64(expected, i, p->sum_dtype)));
  for (int i = 0; i < count; ++i) {
    const double g = tigon_load_f64(got, i, p->sum_dtype), e = tigon_load_f64(expected, i, p->sum_dtype);
    assert_true(fabs(g - e) <= ulp * fabs(e) + (4e-6 + flip) * largest);
  }
}

static void compare(const problem *p) {
  static results expected, without, got;
  static problem inputs;
  const char *devices[] = {"ref", "cpu"};
  const int caches[] = {0, 1, ROWS / 2, ROWS, MOST_CACHED};
  inputs = *p;
  setenv("TIGON_GEMM", "builtin", 1);
  for (int d = 0; d < 2; ++d) {
    const tigon_context_desc desc = {.device = devices[d], .threads = 2};
    tigon_context *c;
    assert_int_equal(tigon_context_create(&desc, &c), TIGON_OK);
    by_parts(c, p, &expected);
    for (int room = 0; room <= 8; room += 2)
      for (int i = 0; i < 5; ++i) {
        run(c, p, caches[i], room, &got);
        if (i == 0) without = got;
        assert_memory_equal(&got, &without, sizeof got);
        assert_memory_equal(&got, &expected, offsetof(results, dweight));
        assert_memory_equal(got.argmax, expected.argmax, sizeof got.argmax);
        assert_memory_equal(got.correct, expected.correct, sizeof got.correct);
        expect_sums(p, got.dweight, expected.dweight, VOCAB * WIDTH);
        expect_sums(p, got.dbias, expected.dbias, VOCAB);
      }
    tigon_context_destroy(c);
  }
  assert_memory_equal(p, &inputs, sizeof inputs);
}

/* ---- shards of the vocabulary ---- */

enum { SHARDS = 4 };
static const int begins[SHARDS + 1] = {0, 0, 20, 21, VOCAB}; /* the first has no class */

typedef struct shard_results {
  float stats[ROWS * TIGON_VOCAB_STATS], dhidden[ROWS * WIDTH], dweight[VOCAB * WIDTH], dbias[VOCAB];
} shard_results;

typedef struct merged {
  float stats[SHARDS][ROWS * TIGON_VOCAB_STATS], loss[ROWS], lse[ROWS], entropy[ROWS];
} merged;

/* Classes [begin, begin + count). */
typedef struct shard {
  int begin, count;
  tigon_tensor weight, bias;
} shard;

static shard shard_of(const problem *p, int k) {
  const int begin = begins[k], count = begins[k + 1] - begin;
  char *weight = (char *)(uintptr_t)p->weight, *bias = (char *)(uintptr_t)p->bias;
  const size_t size = tigon_dtype_size(p->dtype);
  return (shard){begin, count, matrix(weight + (size_t)(begin * WIDTH) * size, p->dtype, count, WIDTH),
                 tigon_tensor_1d(bias + (size_t)begin * size, p->dtype, count)};
}

/* All of the shard's logits in memory. */
static void shard_by_parts(tigon_context *c, const problem *p, int k, const merged *m, shard_results *out) {
  static float logits[ROWS * VOCAB], dlogits[ROWS * VOCAB], narrow[ROWS * VOCAB];
  const shard s = shard_of(p, k);
  const tigon_tensor hidden = matrix(p->hidden, p->dtype, ROWS, WIDTH);
  const tigon_tensor x = matrix(logits, logits_dtype(p), ROWS, s.count), dx = matrix(dlogits, x.dtype, ROWS, s.count);
  memset(out, 0, sizeof *out);
  const tigon_linear_fwd_args product = {.x = hidden, .w = s.weight, .b = s.bias, .y = x};
  assert_int_equal(tigon_linear_fwd(c, &product), TIGON_OK);
  const tigon_vocab_parallel_cross_entropy_stats_args stats = {
      .logits = x,
      .labels = labels_of(p),
      .stats = matrix(out->stats, TIGON_F32, ROWS, TIGON_VOCAB_STATS),
      .vocab = VOCAB,
      .vocab_begin = s.begin,
      .has_ignore_index = 1,
      .ignore_index = IGNORE,
      .softcap = p->softcap,
      .temperature = p->temperature,
      .softcap_first = p->softcap_first,
      .with_entropy = 1};
  assert_int_equal(tigon_vocab_parallel_cross_entropy_stats(c, &stats), TIGON_OK);
  for (int r = 0; r < ROWS; ++r)
    if (p->labels[r] == IGNORE) { /* such a row is skipped */
      memset(&out->stats[r * TIGON_VOCAB_STATS], 0, TIGON_VOCAB_STATS * sizeof(float));
      out->stats[r * TIGON_VOCAB_STATS] = -INFINITY;
    }
  if (!m) return;
  const tigon_vocab_parallel_cross_entropy_bwd_args loss = {
      .logits = x,
      .labels = labels_of(p),
      .lse = words(m->lse),
      .entropy = words(m->entropy),
      .options = {.vocab = VOCAB, .has_ignore_index = 1, .ignore_index = IGNORE, .reduction = TIGON_REDUCTION_NONE},
      .vocab_begin = s.begin,
      .softcap = p->softcap,
      .temperature = p->temperature,
      .softcap_first = p->softcap_first,
      .dloss = words(p->minus),
      .dentropy = words(p->dentropy),
      .dlogits = dx,
      .workspace = workspace,
      .workspace_bytes = WORKSPACE};
  assert_int_equal(tigon_vocab_parallel_cross_entropy_bwd(c, &loss), TIGON_OK);
  tigon_tensor dy = dx;
  if (dx.dtype != p->dtype) dy = matrix(narrow, p->dtype, ROWS, s.count);
  for (int i = 0; dx.dtype != p->dtype && i < ROWS * s.count; ++i)
    tigon_store_f64(narrow, i, p->dtype, (double)dlogits[i]);
  const tigon_linear_bwd_args back = {.dy = dy,
                                      .x = hidden,
                                      .w = s.weight,
                                      .dx = matrix(out->dhidden, p->dtype, ROWS, WIDTH),
                                      .dw = matrix(out->dweight, p->sum_dtype, s.count, WIDTH),
                                      .db = tigon_tensor_1d(out->dbias, p->sum_dtype, s.count)};
  assert_int_equal(tigon_linear_bwd(c, &back), TIGON_OK);
}

/* Without m forward, with it backward. */
static void run_shard(tigon_context *c, const problem *p, int k, int cached, int room, const merged *m,
                      shard_results *out) {
  static float cache[MOST_CACHED * VOCAB];
  const shard s = shard_of(p, k);
  memset(out, 0, sizeof *out);
  tigon_linear_logprob_fwd_args a = forward_args(p, s.weight, s.bias);
  a.stats = matrix(out->stats, TIGON_F32, ROWS, TIGON_VOCAB_STATS);
  a.vocab = VOCAB;
  a.vocab_begin = s.begin;
  if (cached) a.cache = matrix(cache, logits_dtype(p), cached, s.count);
  run_forward(c, &a, room);
  if (m) run_backward(c, p, &a, m->lse, m->entropy, out->dhidden, out->dweight, out->dbias, room);
}

static void merge(tigon_context *c, const problem *p, merged *m) {
  const tigon_vocab_parallel_cross_entropy_merge_args a = {
      .stats = tigon_tensor_3d(m->stats, TIGON_F32, SHARDS, ROWS, TIGON_VOCAB_STATS),
      .labels = labels_of(p),
      .options = {.vocab = VOCAB, .has_ignore_index = 1, .ignore_index = IGNORE, .reduction = TIGON_REDUCTION_NONE},
      .out = {.token_loss = words(m->loss), .lse = words(m->lse), .entropy = words(m->entropy)},
      .workspace = workspace,
      .workspace_bytes = WORKSPACE};
  assert_int_equal(tigon_vocab_parallel_cross_entropy_merge(c, &a), TIGON_OK);
}

static void expect_near(const float *got, const float *expected, int count, tigon_dtype dtype, double off) {
  for (int i = 0; i < count; ++i) {
    const double g = tigon_load_f64(got, i, dtype), e = tigon_load_f64(expected, i, dtype);
    assert_true(fabs(g - e) <= off * (1 + fabs(e)));
  }
}

/* What a sum of SHARDS roundings may be off by. */
static double off_of(tigon_dtype dtype) {
  return dtype == TIGON_F32 ? 2e-6 : SHARDS * (dtype == TIGON_BF16 ? 0x1p-8 : 0x1p-11);
}

static void compare_shards(const problem *p) {
  static results whole;
  static shard_results expected, got;
  static merged m;
  static float dhidden[ROWS * WIDTH];
  const char *devices[] = {"ref", "cpu"};
  const int caches[] = {0, ROWS / 2, MOST_CACHED};
  setenv("TIGON_GEMM", "builtin", 1);
  for (int d = 0; d < 2; ++d) {
    const tigon_context_desc desc = {.device = devices[d], .threads = 2};
    tigon_context *c;
    assert_int_equal(tigon_context_create(&desc, &c), TIGON_OK);
    run(c, p, 0, 8, &whole);
    for (int k = 0; k < SHARDS; ++k) {
      shard_by_parts(c, p, k, NULL, &expected);
      for (int room = 0; room <= 8; room += 4) {
        run_shard(c, p, k, 0, room, NULL, &got);
        assert_memory_equal(got.stats, expected.stats, sizeof got.stats);
      }
      memcpy(m.stats[k], got.stats, sizeof got.stats);
    }
    merge(c, p, &m);
    for (int r = 0; r < ROWS; ++r) m.loss[r] = 0 - m.loss[r];
    for (int r = 0; r < ROWS; ++r) assert_true(p->labels[r] != IGNORE || m.lse[r] == -INFINITY);
    for (int r = 0; r < ROWS; ++r)
      if (p->labels[r] == IGNORE) m.lse[r] = 0; /* the whole's */
    expect_near(m.loss, whole.logprob, ROWS, TIGON_F32, 2e-6);
    expect_near(m.lse, whole.lse, ROWS, TIGON_F32, 2e-6);
    expect_near(m.entropy, whole.entropy, ROWS, TIGON_F32, 2e-6);
    memset(dhidden, 0, sizeof dhidden);
    for (int k = 0; k < SHARDS; ++k) {
      const int begin = begins[k], count = begins[k + 1] - begin;
      const size_t size = tigon_dtype_size(p->sum_dtype);
      shard_by_parts(c, p, k, &m, &expected);
      for (int room = 0; room <= 8; room += 2)
        for (int i = 0; i < 3; ++i) {
          run_shard(c, p, k, caches[i], room, &m, &got);
          assert_memory_equal(got.stats, expected.stats, sizeof got.stats);
          assert_memory_equal(got.dhidden, expected.dhidden, sizeof got.dhidden);
          expect_sums(p, got.dweight, expected.dweight, count * WIDTH);
          expect_sums(p, got.dbias, expected.dbias, count);
        }
      expect_near(got.dweight, (float *)(void *)((char *)whole.dweight + (size_t)(begin * WIDTH) * size), count * WIDTH,
                  p->sum_dtype, off_of(p->dtype));
      expect_near(got.dbias, (float *)(void *)((char *)whole.dbias + (size_t)begin * size), count, p->sum_dtype,
                  off_of(p->dtype));
      for (int i = 0; i < ROWS * WIDTH; ++i) dhidden[i] += (float)tigon_load_f64(got.dhidden, i, p->dtype);
    }
    for (int i = 0; i < ROWS * WIDTH; ++i) tigon_store_f64(dhidden, i, p->dtype, (double)dhidden[i]);
    expect_near(dhidden, whole.dhidden, ROWS * WIDTH, p->dtype, off_of(p->dtype));
    tigon_context_destroy(c);
  }
}

static void test_shards(void **s) {
  (void)s;
  compare_shards(made(TIGON_F32, TIGON_F32, false, 0));
  compare_shards(made(TIGON_F32, TIGON_F32, true, 3));
  compare_shards(made(TIGON_BF16, TIGON_BF16, true, 2));
  compare_shards(made(TIGON_F16, TIGON_F32, false, 0));
  problem *p = made(TIGON_BF16, TIGON_BF16, true, 3);
  p->wide = true;
  compare_shards(p);
}

static void test_f32(void **s) { (void)s, compare(made(TIGON_F32, TIGON_F32, false, 0)); }
static void test_f32_ignored(void **s) { (void)s, compare(made(TIGON_F32, TIGON_F32, true, 3)); }
static void test_bf16(void **s) { (void)s, compare(made(TIGON_BF16, TIGON_BF16, false, 2)); }
static void test_bf16_ignored(void **s) { (void)s, compare(made(TIGON_BF16, TIGON_F32, true, 0)); }
static void test_f16_ignored(void **s) { (void)s, compare(made(TIGON_F16, TIGON_F16, true, 0)); }

static void test_wide(void **s) {
  (void)s;
  const tigon_dtype dtypes[] = {TIGON_BF16, TIGON_F16, TIGON_F32};
  for (int i = 0; i < 3; ++i) {
    problem *p = made(dtypes[i], dtypes[i], i == 1, i == 0 ? 3 : 0);
    p->wide = true;
    compare(p);
    p->sum_dtype = TIGON_F32;
    compare(p);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_f32),          cmocka_unit_test(test_f32_ignored), cmocka_unit_test(test_bf16),
      cmocka_unit_test(test_bf16_ignored), cmocka_unit_test(test_f16_ignored), cmocka_unit_test(test_wide),
      cmocka_unit_test(test_shards),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
