/* attention on an NPU over a library of operators of ours (fake/opapi_attention.c): what `tigon check` does not call. Queries that
 * see no key, parts of a call, what is refused with its sentence and nothing written, and each call's failure. */
#include "ascend/fake_npu.h"

#include <math.h>

enum { Q, K, V, O, LSE, D_O, DQ, DK, DV, TENSORS };

typedef struct sizes {
  int64_t batch, tokens, keys, q_heads, k_heads, head_dim;
} sizes;

/* A call of each direction, and its tensors in the context's memory. */
typedef struct calls {
  tigon_attention_fwd_args fwd;
  tigon_attention_bwd_args bwd;
  tigon_tensor t[TENSORS];
  size_t bytes[TENSORS];
} calls;

static float some(int64_t i) { return (float)(i * 7919 % 257 - 128) / 128; }

static calls make_calls(tigon_context *context, sizes s) {
  calls c = {0};
  const int64_t of_queries[] = {s.batch, s.tokens, s.q_heads, s.head_dim},
                of_keys[] = {s.batch, s.keys, s.k_heads, s.head_dim};
  for (int i = 0; i < TENSORS; ++i) {
    const int64_t *n = i == K || i == V || i == DK || i == DV ? of_keys : of_queries;
    const int64_t count = i == LSE ? n[0] * n[1] * n[2] : n[0] * n[1] * n[2] * n[3];
    c.bytes[i] = (size_t)count * 4;
    float *values = malloc(c.bytes[i] + 4);
    for (int64_t e = 0; e < count; ++e) values[e] = some(e * 3 + i * 101);
    void *there = to_device(context, values, c.bytes[i]);
    c.t[i] = i == LSE ? tigon_tensor_3d(there, TIGON_F32, n[0], n[2], n[1])
                      : tigon_tensor_4d(there, TIGON_F32, n[0], n[1], n[2], n[3]);
    free(values);
  }
  c.t[LSE].strides[1] = s.tokens > 0 ? s.tokens : 1; /* dense, whatever is 0 */
  c.t[LSE].strides[0] = c.t[LSE].strides[1] * (s.q_heads > 0 ? s.q_heads : 1);
  c.fwd = (tigon_attention_fwd_args){.q = c.t[Q], .k = c.t[K], .v = c.t[V], .o = c.t[O], .lse = c.t[LSE]};
  c.bwd = (tigon_attention_bwd_args){.d_o = c.t[D_O],
                                     .q = c.t[Q],
                                     .k = c.t[K],
                                     .v = c.t[V],
                                     .o = c.t[O],
                                     .lse = c.t[LSE],
                                     .dq = c.t[DQ],
                                     .dk = c.t[DK],
                                     .dv = c.t[DV]};
  return c;
}

static void free_calls(tigon_context *context, calls *c) {
  for (int i = 0; i < TENSORS; ++i) tigon_free(context, c->t[i].data);
}

static float *copied(tigon_context *context, const calls *c, int which) {
  float *values = malloc(c->bytes[which] + 4);
  assert_int_equal(tigon_copy(context, values, c->t[which].data, c->bytes[which]), TIGON_OK);
  return values;
}

/* Forward, then backward with what it gave; o, lse and the gradients into `out`. */
static void run(const char *device, sizes s, int causal, int64_t window, float *out[TENSORS]) {
  tigon_context *context = open_npu(device);
  calls c = make_calls(context, s);
  c.fwd.causal = c.bwd.causal = causal;
  c.fwd.window = c.bwd.window = window;
  if (tigon_attention_fwd(context, &c.fwd) != TIGON_OK) fail_msg("%s", tigon_last_error(context));
  size_t bytes = 0;
  assert_int_equal(tigon_attention_bwd_workspace(context, &c.bwd, &bytes), TIGON_OK);
  assert_int_equal(tigon_alloc(context, bytes, &c.bwd.workspace), TIGON_OK);
  c.bwd.workspace_bytes = bytes;
  if (tigon_attention_bwd(context, &c.bwd) != TIGON_OK) fail_msg("%s", tigon_last_error(context));
  assert_int_equal(tigon_context_sync(context), TIGON_OK);
  for (int i = 0; i < TENSORS; ++i) out[i] = copied(context, &c, i);
  tigon_free(context, c.bwd.workspace);
  free_calls(context, &c);
  tigon_context_destroy(context);
}

static void free_all(float *out[TENSORS]) {
  for (int i = 0; i < TENSORS; ++i) free(out[i]);
}

static const int written[] = {O, LSE, DQ, DK, DV};

static int64_t count_of(sizes s, int which) {
  if (which == LSE) return s.batch * s.tokens * s.q_heads;
  return s.batch * s.head_dim * (which == DK || which == DV ? s.keys * s.k_heads : s.tokens * s.q_heads);
}

/* ---- queries that see no key ---- */

static void test_blind_queries(void **state) {
  (void)state;
  static const struct {
    sizes s;
    int causal;
    int64_t window;
  } cases[] = {{{2, 9, 5, 4, 2, 6}, 1, 0}, {{2, 9, 4, 2, 2, 6}, 1, 3}, {{1, 11, 3, 2, 1, 4}, 0, 2},
               {{2, 3, 0, 2, 1, 4}, 0, 0}, {{2, 0, 3, 2, 1, 4}, 1, 0}, {{2, 3, 4, 0, 2, 4}, 0, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    float *npu[TENSORS], *ref[TENSORS];
    run("npu", cases[i].s, cases[i].causal, cases[i].window, npu);
    run("ref", cases[i].s, cases[i].causal, cases[i].window, ref);
    for (int k = 0; k < 5; ++k)
      for (int64_t e = 0; e < count_of(cases[i].s, written[k]); ++e) {
        const float a = npu[written[k]][e], b = ref[written[k]][e];
        if (a != b && !(fabsf(a - b) <= 1e-5f))
          fail_msg("case %zu, tensor %d, %d: %g, %g", i, written[k], (int)e, a, b);
      }
    free_all(npu), free_all(ref);
  }
}

/* ---- parts ---- */

/* A call whose workspace would be too large goes by batches and by heads, and has the bits of the whole. */
static void test_parts(void **state) {
  (void)state;
  const sizes s = {3, 5, 7, 6, 3, 8};
  float *whole[TENSORS], *parts[TENSORS];
  int calls = fake.attention_calls();
  run("npu", s, 1, 0, whole);
  assert_int_equal(fake.attention_calls() - calls, 2);
  static const struct {
    uint64_t mib;
    int calls;
  } cases[] = {{20, 4}, {30, 6}, {60, 12}, {70, 18}}; /* two batches, one, two key heads of one, one */
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    fake.workspace_of_heads(cases[i].mib << 20);
    calls = fake.attention_calls();
    run("npu", s, 1, 0, parts);
    fake.workspace_of_heads(0);
    assert_int_equal(fake.attention_calls() - calls, cases[i].calls);
    for (int k = 0; k < 5; ++k)
      assert_memory_equal(whole[written[k]], parts[written[k]], (size_t)count_of(s, written[k]) * 4);
    free_all(parts);
  }
  free_all(whole);
}

/* As many queries as their statistics have room for: a batch is a part. */
static void test_many_queries(void **state) {
  (void)state;
  const sizes s = {2, 1 << 19, 1, 1, 1, 1};
  float *out[TENSORS];
  const int calls = fake.attention_calls();
  run("npu", s, 0, 0, out);
  assert_int_equal(fake.attention_calls() - calls, 4);
  const int64_t count = count_of(s, O);
  for (int64_t e = 0; e < count; ++e) {
    const float v = out[V][e >> 19], z = out[Q][e] * out[K][e >> 19];
    if (out[O][e] != v || fabsf(out[LSE][e] - z) > 1e-6f || out[DQ][e] != 0) fail_msg("query %d", (int)e);
  }
  free_all(out);
}

/* ---- refusals and failures ---- */

static void refuses(tigon_context *context, const calls *c, tigon_status status, const char *sentence) {
  char expected[256];
  float *before[TENSORS];
  tigon_attention_bwd_args bwd = c->bwd;
  bwd.softcap = c->fwd.softcap, bwd.sinks = c->fwd.sinks, bwd.dilation = c->fwd.dilation;
  bwd.cu_seqlens_q = c->fwd.cu_seqlens_q, bwd.cu_seqlens_k = c->fwd.cu_seqlens_k;
  for (int k = 0; k < 5; ++k) before[k] = copied(context, c, written[k]);
  snprintf(expected, sizeof expected, "attention_fwd: %s", sentence);
  assert_int_equal(tigon_attention_fwd(context, &c->fwd), status);
  assert_string_equal(tigon_last_error(context), expected);
  assert_int_equal(tigon_attention_bwd_workspace(context, &bwd, &bwd.workspace_bytes), TIGON_OK);
  assert_int_equal(tigon_alloc(context, bwd.workspace_bytes, &bwd.workspace), TIGON_OK);
  snprintf(expected, sizeof expected, "attention_bwd: %s", sentence);
  assert_int_equal(tigon_attention_bwd(context, &bwd), status);
  assert_string_equal(tigon_last_error(context), expected);
  tigon_free(context, bwd.workspace);
  for (int k = 0; k < 5; ++k) {
    float *after = copied(context, c, written[k]);
    assert_memory_equal(before[k], after, c->bytes[written[k]]);
    free(before[k]), free(after);
  }
}

static void test_refusals(void **state) {
  (void)state;
  const int32_t ends[] = {0, 6};
  tigon_context *context = open_npu("npu");
  calls c = make_calls(context, (sizes){1, 6, 6, 2, 1, 4});
  void *lengths = to_device(context, ends, sizeof ends);
  c.fwd.softcap = 2;
  refuses(context, &c, TIGON_ERROR_UNSUPPORTED, "softcap is above 0, must be 0 on npu");
  c.fwd.softcap = 0, c.fwd.sinks = tigon_tensor_1d(c.t[Q].data, TIGON_F32, 2);
  refuses(context, &c, TIGON_ERROR_UNSUPPORTED, "sinks is given, must be absent on npu");
  c.fwd.sinks = (tigon_tensor){0}, c.fwd.dilation = 2;
  refuses(context, &c, TIGON_ERROR_UNSUPPORTED, "dilation is above 1, must be 0 or 1 on npu");
  c.fwd.dilation = 1, c.fwd.cu_seqlens_q = c.fwd.cu_seqlens_k = tigon_tensor_1d(lengths, TIGON_I32, 2);
  refuses(context, &c, TIGON_ERROR_UNSUPPORTED, "cu_seqlens_q is given, must be absent on npu");
  free_calls(context, &c);
  c = make_calls(context, (sizes){1, 2, 2, 1, 1, 513});
  refuses(context, &c, TIGON_ERROR_UNSUPPORTED, "q.shape[3] is 513, must be at most 512 on npu");
  free_calls(context, &c);
  c = make_calls(context, (sizes){1, 1, 1, 514, 2, 1});
  refuses(context, &c, TIGON_ERROR_UNSUPPORTED, "q.shape[2] / k.shape[2] is 257, must be at most 256 on npu");
  free_calls(context, &c);
  c = make_calls(context, (sizes){1, (1 << 18) + 1, 1, 2, 1, 1});
  refuses(context, &c, TIGON_ERROR_SCRATCH, "q.shape[1] is 262145, must be at most 262144 on npu");
  free_calls(context, &c);
  c = make_calls(context, (sizes){2, 6, 6, 4, 2, 4});
  fake.workspace_of_heads(UINT64_C(300) << 20);
  assert_int_equal(tigon_attention_fwd(context, &c.fwd), TIGON_ERROR_OUT_OF_MEMORY);
  assert_string_equal(tigon_last_error(context),
                      "attention_fwd: the launch on npu failed: aclnnFlashAttentionScore wants 630194752 bytes of "
                      "workspace, must be at most 268435456");
  fake.workspace_of_heads(0);
  assert_int_equal(tigon_attention_fwd(context, &c.fwd), TIGON_OK);
  free_calls(context, &c);
  tigon_free(context, lengths);
  tigon_context_destroy(context);
  assert_int_equal(fake.alive(), 0);
}

static void fails(tigon_context *context, tigon_status got, const char *entry, const char *reason) {
  char sentence[256];
  snprintf(sentence, sizeof sentence, "attention_%s: the launch on npu failed: %s", entry, reason);
  assert_string_equal(tigon_last_error(context), sentence);
  assert_int_equal(got, TIGON_ERROR_DEVICE);
}

static void test_failures(void **state) {
  (void)state;
  static const char *const kernels = "aclrtLaunchKernelWithHostArgs returned 507000 (ACL_ERROR_RT_INTERNAL_ERROR)";
  tigon_context *context = open_npu("npu:1");
  calls c = make_calls(context, (sizes){2, 6, 6, 4, 2, 4});
  c.fwd.causal = c.bwd.causal = 1;
  assert_int_equal(tigon_attention_bwd_workspace(context, &c.bwd, &c.bwd.workspace_bytes), TIGON_OK);
  assert_int_equal(tigon_alloc(context, c.bwd.workspace_bytes, &c.bwd.workspace), TIGON_OK);
  assert_int_equal(fake.set_device(0), 0);
  const int alive = fake.alive();
  for (int nth = 1; nth <= 2; ++nth) { /* the mask, lse */
    fake.fail_at("aclrtLaunchKernelWithHostArgs", nth, 507000);
    fails(context, tigon_attention_fwd(context, &c.fwd), "fwd", kernels);
  }
  for (int nth = 1; nth <= 7; ++nth) {
    fake.fail_at("aclCreateTensor", nth, 1);
    fails(context, tigon_attention_fwd(context, &c.fwd), "fwd", "aclCreateTensor returned none");
    assert_int_equal(fake.alive(), alive);
  }
  fake.fail_at("aclnnFlashAttentionScoreGetWorkspaceSize", 1, 561002);
  fails(context, tigon_attention_fwd(context, &c.fwd), "fwd",
        "aclnnFlashAttentionScoreGetWorkspaceSize returned 561002 (ACLNN_ERR_INNER_TILING_ERROR)");
  fake.fail_at("aclnnFlashAttentionScore", 1, 361001);
  fails(context, tigon_attention_fwd(context, &c.fwd), "fwd",
        "aclnnFlashAttentionScore returned 361001 (ACLNN_ERR_RUNTIME_ERROR)");
  assert_int_equal(tigon_attention_fwd(context, &c.fwd), TIGON_OK);
  fake.fail_at("aclrtLaunchKernelWithHostArgs", 1, 507000);
  fails(context, tigon_attention_bwd(context, &c.bwd), "bwd", kernels);
  for (int nth = 1; nth <= 11; ++nth) {
    fake.fail_at("aclCreateTensor", nth, 1);
    fails(context, tigon_attention_bwd(context, &c.bwd), "bwd", "aclCreateTensor returned none");
    assert_int_equal(fake.alive(), alive);
  }
  fake.fail_at("aclnnFlashAttentionScoreGradGetWorkspaceSize", 1, 161002);
  fails(context, tigon_attention_bwd(context, &c.bwd), "bwd",
        "aclnnFlashAttentionScoreGradGetWorkspaceSize returned 161002 (ACLNN_ERR_PARAM_INVALID)");
  fake.fail_at("aclnnFlashAttentionScoreGrad", 1, 361001);
  fails(context, tigon_attention_bwd(context, &c.bwd), "bwd",
        "aclnnFlashAttentionScoreGrad returned 361001 (ACLNN_ERR_RUNTIME_ERROR)");
  assert_int_equal(tigon_attention_bwd(context, &c.bwd), TIGON_OK);
  assert_int_equal(fake.alive(), alive);
  int32_t current = -1;
  fake.get_device(&current);
  assert_int_equal(current, 0);
  tigon_free(context, c.bwd.workspace);
  free_calls(context, &c);
  tigon_context_destroy(context);
  assert_int_equal(fake.alive(), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_blind_queries), cmocka_unit_test(test_parts),
                                     cmocka_unit_test(test_many_queries), cmocka_unit_test(test_refusals),
                                     cmocka_unit_test(test_failures)};
  return cmocka_run_group_tests(tests, setup, NULL);
}
