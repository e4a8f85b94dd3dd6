/* attention: packed sequences and dilations have the bits of calls of their own; sinks and segments at their edges; what is
 * refused. */
#include "api.h"

enum { T = 150, S = 170, HQ = 4, HK = 2, D = 12, NQ = T * HQ * D, NK = S * HK * D };

typedef struct memory {
  float q[NQ], k[NK], v[NK], o[NQ], d_o[NQ], dq[NQ], dk[NK], dv[NK], lse[HQ * T], sinks[HQ], dsinks[HQ];
  _Alignas(64) char workspace[1 << 16];
} memory;

static memory whole, parts;

typedef struct options {
  int causal;
  int64_t window, dilation;
  double softcap;
  const float *sinks;
  tigon_tensor cu_q, cu_k;
} options;

/* Rows first, first + step, .. of one side. */
typedef struct rows {
  int64_t first, count, step;
} rows;

static tigon_tensor view(float *data, rows r, int64_t heads) {
  return (tigon_tensor){
      data + r.first * heads * D, TIGON_F32, 4, {1, r.count, heads, D}, {T * S * D, r.step * heads * D, D, 1}};
}

/* Forward and backward of these rows; dsinks is added to what there is. */
static void run(tigon_context *context, memory *m, rows q, rows k, const options *o) {
  float lse[HQ * T], dsinks[HQ];
  const int64_t pitch = q.count > 0 ? q.count : 1;
  const tigon_tensor stats = {lse, TIGON_F32, 3, {1, HQ, q.count}, {HQ * pitch, pitch, 1}};
  const tigon_tensor sinks = o->sinks ? tigon_tensor_1d((void *)o->sinks, TIGON_F32, HQ) : (tigon_tensor){0};
  const tigon_attention_fwd_args f = {.q = view(m->q, q, HQ),
                                      .k = view(m->k, k, HK),
                                      .v = view(m->v, k, HK),
                                      .o = view(m->o, q, HQ),
                                      .lse = stats,
                                      .sinks = sinks,
                                      .cu_seqlens_q = o->cu_q,
                                      .cu_seqlens_k = o->cu_k,
                                      .causal = o->causal,
                                      .window = o->window,
                                      .softcap = o->softcap,
                                      .dilation = o->dilation};
  const tigon_attention_bwd_args b = {
      .d_o = view(m->d_o, q, HQ),
      .q = f.q,
      .k = f.k,
      .v = f.v,
      .o = f.o,
      .lse = stats,
      .dq = view(m->dq, q, HQ),
      .dk = view(m->dk, k, HK),
      .dv = view(m->dv, k, HK),
      .sinks = sinks,
      .cu_seqlens_q = o->cu_q,
      .cu_seqlens_k = o->cu_k,
      .dsinks = o->sinks ? tigon_tensor_1d(dsinks, TIGON_F32, HQ) : (tigon_tensor){0},
      .causal = o->causal,
      .window = o->window,
      .softcap = o->softcap,
      .dilation = o->dilation,
      .workspace = m->workspace,
      .workspace_bytes = sizeof m->workspace,
  };
  if (tigon_attention_fwd(context, &f) != TIGON_OK) fail_msg("%s", tigon_last_error(context));
  if (tigon_attention_bwd(context, &b) != TIGON_OK) fail_msg("%s", tigon_last_error(context));
  for (int64_t h = 0; h < HQ; ++h) {
    for (int64_t t = 0; t < q.count; ++t) m->lse[h * T + q.first + t * q.step] = lse[h * q.count + t];
    if (o->sinks) m->dsinks[h] += dsinks[h];
  }
}

static void fill(memory *m) {
  memset(m, 0, sizeof *m);
  api_fill(m->q, NQ, 0.3f);
  api_fill(m->k, NK, 0.21f);
  api_fill(m->v, NK, 0.17f);
  api_fill(m->d_o, NQ, 0.4f);
  for (int i = 0; i < NQ; ++i) m->o[i] = m->dq[i] = NAN;
  for (int i = 0; i < NK; ++i) m->dk[i] = m->dv[i] = NAN;
  for (int i = 0; i < HQ * T; ++i) m->lse[i] = NAN;
}

static void expect_same(const char *what) {
  const struct {
    const char *name;
    const float *a, *b;
    size_t bytes;
  } of[] = {{"o", whole.o, parts.o, sizeof whole.o},
            {"lse", whole.lse, parts.lse, sizeof whole.lse},
            {"dq", whole.dq, parts.dq, sizeof whole.dq},
            {"dk", whole.dk, parts.dk, sizeof whole.dk},
            {"dv", whole.dv, parts.dv, sizeof whole.dv}};
  for (size_t i = 0; i < sizeof of / sizeof *of; ++i)
    if (memcmp(of[i].a, of[i].b, of[i].bytes) != 0) fail_msg("%s: %s has other bits", what, of[i].name);
  for (int h = 0; h < HQ; ++h)
    if (!(fabsf(whole.dsinks[h] - parts.dsinks[h]) <= 1e-3f))
      fail_msg("%s: dsinks[%d] is %g, must be %g", what, h, (double)whole.dsinks[h], (double)parts.dsinks[h]);
}

static const rows all_queries = {0, T, 1}, all_keys = {0, S, 1};
static const float sinks[HQ] = {0.5f, -1, 2, 0};

/* Without sinks, softcap and cu_seqlens; with all. */
static const options plain[] = {
    {.causal = 1}, {.window = 9}, {.causal = 1, .window = 200, .softcap = 3, .sinks = sinks}};
enum { PLAIN = sizeof plain / sizeof *plain };

static const int threads[] = {1, 3};

static tigon_context *open_with(int count) {
  tigon_context *context;
  const tigon_context_desc desc = {.threads = count};
  assert_int_equal(tigon_context_create(&desc, &context), TIGON_OK);
  return context;
}

/* ---- segments ---- */

/* The first two queries and the last key are in none. */
static int32_t cu_q[] = {2, 2, 3, 70, 137, 137, T};
static int64_t cu_k[] = {0, 1, 4, 71, 160, 165, S - 1};
enum { SEGMENTS = sizeof cu_q / sizeof *cu_q - 1 };

static void test_segments(void **state) {
  (void)state;
  for (int i = 0; i < 2 * PLAIN; ++i) {
    options o = plain[i / 2];
    tigon_context *context = open_with(threads[i % 2]);
    fill(&whole), fill(&parts);
    for (int s = 0; s < SEGMENTS; ++s)
      run(context, &parts, (rows){cu_q[s], cu_q[s + 1] - cu_q[s], 1}, (rows){cu_k[s], cu_k[s + 1] - cu_k[s], 1}, &o);
    run(context, &parts, (rows){0, cu_q[0], 1}, (rows){0, 0, 1}, &o);
    run(context, &parts, (rows){0, 0, 1}, (rows){S - 1, 1, 1}, &o);
    o.cu_q = tigon_tensor_1d(cu_q, TIGON_I32, SEGMENTS + 1), o.cu_k = tigon_tensor_1d(cu_k, TIGON_I64, SEGMENTS + 1);
    run(context, &whole, all_queries, all_keys, &o);
    expect_same("segments");
    for (int h = 0; h < HQ; ++h) /* a query of no segment */
      assert_true(whole.o[h * D] == 0 && whole.dq[h * D] == 0 && whole.lse[h * T] == (o.sinks ? sinks[h] : -INFINITY));
    for (int d = 0; d < HK * D; ++d) assert_true(whole.dk[NK - 1 - d] == 0 && whole.dv[NK - 1 - d] == 0);
    tigon_context_destroy(context);
  }
}

/* Tokens that see themselves alone. */
static void test_single_tokens(void **state) {
  int32_t each[T + 1];
  const tigon_tensor cu = tigon_tensor_1d(each, TIGON_I32, T + 1);
  const options o = {.window = 5, .cu_q = cu, .cu_k = cu};
  for (int i = 0; i <= T; ++i) each[i] = i;
  fill(&whole), fill(&parts);
  run(*state, &whole, all_queries, (rows){0, T, 1}, &o);
  run(*state, &parts, all_queries, (rows){0, T, 1}, &(options){.dilation = 1000});
  expect_same("dilation beyond all rows");
  for (int t = 0; t < T; ++t)
    for (int h = 0; h < HQ; ++h)
      for (int d = 0; d < D; ++d)
        assert_true(whole.o[(t * HQ + h) * D + d] == whole.v[(t * HK + h / (HQ / HK)) * D + d]);
}

/* ---- dilation ---- */

static void test_dilation(void **state) {
  (void)state;
  for (int i = 0; i < 2 * PLAIN; ++i)
    for (int64_t step = 2; step < 90; step += 29) {
      options o = plain[i / 2];
      tigon_context *context = open_with(threads[i % 2]);
      fill(&whole), fill(&parts);
      for (int64_t r = 0; r < step; ++r) {
        const int64_t t0 = ((r - (S - T)) % step + step) % step; /* query t stands at key t + S - T */
        run(context, &parts, (rows){t0, (T - t0 + step - 1) / step, step}, (rows){r, (S - r + step - 1) / step, step},
            &o);
      }
      o.dilation = step;
      run(context, &whole, all_queries, all_keys, &o);
      expect_same("dilation");
      tigon_context_destroy(context);
    }
}

/* A neighbourhood of 2 * 3 + 1 keys that are 4 apart. */
static void test_neighbourhood(void **state) {
  fill(&whole);
  run(*state, &whole, all_queries, (rows){0, T, 1}, &(options){.window = 4, .dilation = 4});
  for (int t = 0; t < T; ++t)
    for (int h = 0; h < HQ; ++h) {
      double sum = 0, o[D] = {0};
      for (int j = t - 12; j <= t + 12; j += 4) {
        if (j < 0 || j >= T) continue;
        double z = 0;
        const float *k = &whole.k[(j * HK + h / 2) * D], *v = &whole.v[(j * HK + h / 2) * D];
        for (int d = 0; d < D; ++d) z += (double)(whole.q[(t * HQ + h) * D + d] * k[d]);
        sum += exp(z / sqrt(D));
        for (int d = 0; d < D; ++d) o[d] += exp(z / sqrt(D)) * (double)v[d];
      }
      for (int d = 0; d < D; ++d) assert_true(fabs((double)whole.o[(t * HQ + h) * D + d] - o[d] / sum) < 1e-5);
    }
}

/* ---- sinks ---- */

static void test_sinks(void **state) {
  const float edges[HQ] = {-INFINITY, INFINITY, 12, -INFINITY};
  fill(&whole), fill(&parts);
  run(*state, &whole, all_queries, all_keys, &(options){.causal = 1, .sinks = edges});
  run(*state, &parts, all_queries, all_keys, &(options){.causal = 1});
  for (int t = 0; t < T; ++t)
    for (int h = 0; h < HQ; ++h)
      for (int d = 0; d < D; ++d) {
        const int at = (t * HQ + h) * D + d;
        if (h == 1)
          assert_true(whole.o[at] == 0 && whole.dq[at] == 0 && whole.lse[h * T + t] == INFINITY);
        else if (h == 2)
          assert_true(fabsf(whole.o[at]) < fabsf(parts.o[at]) && whole.lse[h * T + t] > parts.lse[h * T + t]);
        else
          assert_true(whole.o[at] == parts.o[at] && whole.dq[at] == parts.dq[at]);
      }
  assert_true(whole.dsinks[0] == 0 && whole.dsinks[1] == 0 && whole.dsinks[2] != 0 && whole.dsinks[3] == 0);
  run(*state, &whole, all_queries, (rows){0, 0, 1}, &(options){.sinks = sinks}); /* no key */
  for (int i = 0; i < HQ * T; ++i) assert_true(whole.lse[i] == sinks[i / T]);
  for (int i = 0; i < NQ; ++i) assert_true(whole.o[i] == 0 && whole.dq[i] == 0);
}

/* ---- refusals ---- */

static void test_refusals(void **state) {
  int32_t of_queries[] = {0, 5, T}, of_keys[] = {0, 5, S};
  const tigon_attention_fwd_args f = {.q = view(whole.q, all_queries, HQ),
                                      .k = view(whole.k, all_keys, HK),
                                      .v = view(whole.v, all_keys, HK),
                                      .o = view(whole.o, all_queries, HQ),
                                      .cu_seqlens_q = tigon_tensor_1d(of_queries, TIGON_I32, 3),
                                      .cu_seqlens_k = tigon_tensor_1d(of_keys, TIGON_I32, 3)};
#define REFUSED(change, sentence)                                                                         \
  do {                                                                                                    \
    tigon_attention_fwd_args a = f;                                                                       \
    change;                                                                                               \
    api_expect(*state, tigon_attention_fwd(*state, &a), TIGON_ERROR_INVALID, "attention_fwd: " sentence); \
  } while (0)
  REFUSED(a.cu_seqlens_k = (tigon_tensor){0}, "cu_seqlens_k is absent, must be given with cu_seqlens_q");
  REFUSED(a.cu_seqlens_q = (tigon_tensor){0}, "cu_seqlens_q is absent, must be given with cu_seqlens_k");
  REFUSED(a.cu_seqlens_k.shape[0] = 2, "cu_seqlens_k.shape[0] is 2, must be 3 (cu_seqlens_q.shape[0])");
  REFUSED(a.cu_seqlens_q.shape[0] = a.cu_seqlens_k.shape[0] = 0, "cu_seqlens_q.shape[0] is 0, must be >= 1");
  REFUSED(of_queries[1] = -1, "cu_seqlens_q[1] is -1, must be 0 to 150 (q.shape[1])");
  REFUSED(of_queries[1] = T + 1, "cu_seqlens_q[1] is 151, must be 0 to 150 (q.shape[1])");
  REFUSED((of_queries[1] = 7, of_queries[2] = 6), "cu_seqlens_q[2] is 6, must be 7 to 150 (q.shape[1])");
  of_queries[2] = T;
  REFUSED(of_keys[2] = S + 1, "cu_seqlens_k[2] is 171, must be 5 to 170 (k.shape[1])");
  REFUSED((a.q.shape[0] = a.o.shape[0] = a.k.shape[0] = a.v.shape[0] = 2,
           a.q.strides[0] = a.k.strides[0] = a.v.strides[0] = 0, a.o.data = parts.q, a.o.strides[0] = NQ),
          "q.shape[0] is 2, must be 1 with cu_seqlens_q");
  REFUSED(a.dilation = -1, "dilation is -1, must be >= 0");
  const tigon_attention_bwd_args b = {.dsinks = tigon_tensor_1d(whole.dsinks, TIGON_F32, HQ),
                                      .d_o = f.o,
                                      .q = f.q,
                                      .k = f.k,
                                      .v = f.v,
                                      .o = f.q,
                                      .lse = tigon_tensor_3d(whole.lse, TIGON_F32, 1, HQ, T),
                                      .dq = view(whole.dq, all_queries, HQ),
                                      .dk = view(whole.dk, all_keys, HK),
                                      .dv = view(whole.dv, all_keys, HK)};
  api_expect(*state, tigon_attention_bwd(*state, &b), TIGON_ERROR_INVALID,
             "attention_bwd: sinks is absent, must be given with dsinks");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_segments), cmocka_unit_test(test_single_tokens),
                                     cmocka_unit_test(test_dilation), cmocka_unit_test(test_neighbourhood),
                                     cmocka_unit_test(test_sinks),    cmocka_unit_test(test_refusals)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
