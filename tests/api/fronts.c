/* What fronts refuse besides: shapes too large for a workspace, views that no kernel takes, and what only one direction has. Most
 * calls are a legal one with a change. Also sizes of workspaces that are asked for one at a time. */
#include "core/context.h"
#include "rules.h"

static void test_rules(void **state) {
  RULE(attention_bwd, a->cu_seqlens_q = spare(TIGON_I32, 2), "cu_seqlens_k is absent, must be given with cu_seqlens_q");
  RULE(divergence_fwd, (a->options.by_temperature_squared = 1, a->options.temperature = 1e-30),
       "options.temperature is 1e-30, must have a square that is a normal f32");
  RULE(fused_linear_divergence_fwd, (a->by_temperature_squared = 1, a->temperature = 1e-30),
       "weight_soft times the square of temperature is 1e-60, must be a normal f32");
  RULE(fused_linear_divergence_fwd, a->teacher_weight.ndim = 1, "teacher_weight.ndim is 1, must be 2");
  RULE(fused_linear_divergence_fwd, (a->teacher_weight.shape[0] = 0, absent(&a->teacher_bias)),
       "teacher_weight.shape[0] is 0, must be 1 or more");
  RULE(fused_moe_fwd, (a->gate_up.shape[1] = 7, absent(&a->gate_up_bias), absent(&a->pre)),
       "gate_up.shape[1] is 7, must be 2 * 3 (down.shape[2])");
  RULE(preference_loss_fwd,
       (a->options.kind = TIGON_PREFERENCE_BCO_PAIR, a->shift = spare(TIGON_F32, 1),
        a->shift = shaped(&a->shift, 2, 1, 1, 0, 0)),
       "shift.ndim is 2, must be 1");
  RULE(fused_linear_preference_fwd, a->segments.shape[0] = 0, "segments.shape[0] is 0, must be >= 1");
  RULE(multi_token_attention_bwd, a->weight.ndim = 3, "weight.ndim is 3, must be 4");
#define PACKED absent(&a->up), a->gate.shape[0] = a->gate_bias.shape[0] = a->up_bias.shape[0] = 150
  RULE(mlp_fwd, (PACKED), "up_bias is there, must be absent without up");
  RULE(mlp_bwd, (PACKED, absent(&a->dgate), absent(&a->dgate_bias), absent(&a->dup), absent(&a->dup_bias)),
       "up_bias is there, must be absent without up");
  RULE(mlp_bwd,
       (PACKED, absent(&a->dgate), absent(&a->dgate_bias), absent(&a->up_bias), absent(&a->dup),
        a->dup_bias.shape[0] = 150),
       "dup_bias is there, must be absent without up");
#define PLANE(t) t = shaped(&t, 4, 2, 6, 2, 3)
#define CUT(t) t.strides[0] = 60, t.strides[1] = 10, t.strides[2] = 4, t.strides[3] = 1
  RULE(group_norm_bwd, (PLANE(a->dy), PLANE(a->x), PLANE(a->dx), CUT(a->x)),
       "x.strides[2] is 4, must be 3 (a contiguous run)");
  RULE(group_norm_bwd, (PLANE(a->dy), PLANE(a->x), PLANE(a->dx), a->dx.data = memory + ARENA - 4096, CUT(a->dx)),
       "dx.strides[2] is 4, must be 3 (a contiguous run)");
}

/* A cache has the dtype of the logits, which are bf16 or f32 here. */
static void test_cache(void **state) {
  for (int in_f32 = 0; in_f32 < 2; ++in_f32) {
    const char *sentence =
        in_f32 ? "cache.dtype is bf16, must be f32 (logits_in_f32)" : "cache.dtype is f32, must be bf16 (hidden.dtype)";
    call c;
    tigon_linear_logprob_fwd_args *f = make(&c, "linear_logprob_fwd", TIGON_BF16, "error", "");
    f->logits_in_f32 = in_f32, f->cache.dtype = in_f32 ? TIGON_BF16 : TIGON_F32;
    refused(*state, &c, TIGON_ERROR_INVALID, sentence);
    tigon_linear_logprob_bwd_args *b = make(&c, "linear_logprob_bwd", TIGON_BF16, "error", "");
    b->logits_in_f32 = in_f32, b->cache.dtype = in_f32 ? TIGON_BF16 : TIGON_F32;
    refused(*state, &c, TIGON_ERROR_INVALID, sentence);
  }
}

/* Pairs that 32 bits do not count. Nobody touches the tensors, whose addresses are none. */
static void test_rope_pairs(void **state) {
  const int64_t width = INT64_C(1) << 33;
  const tigon_tensor q = tigon_tensor_4d((void *)(INT64_C(1) << 40), TIGON_F32, 1, 1, 1, width); /* NOLINT */
  const tigon_tensor table = tigon_tensor_2d((void *)(INT64_C(1) << 41), TIGON_F32, 1, width);   /* NOLINT */
  tigon_rope_args a = {.q = q, .q_out = q, .cos = table, .sin = table, .section_t = 1};
  a.q_out.data = (void *)(INT64_C(1) << 42); /* NOLINT */
  api_expect(*state, tigon_rope_fwd(*state, &a), TIGON_ERROR_INVALID,
             "rope_fwd: rotary_dim is 8589934592, must be below 2^32 with sections");
}

/* A call without heads writes nothing, and one without heads of q still turns k. */
static void test_no_heads(void **state) {
  call c;
  tigon_attention_bwd_args *a = legal(&c, "attention_bwd");
  a->q.shape[2] = a->o.shape[2] = a->d_o.shape[2] = a->dq.shape[2] = a->lse.shape[1] = 0;
  a->k.shape[2] = a->v.shape[2] = a->dk.shape[2] = a->dv.shape[2] = a->sinks.shape[0] = a->dsinks.shape[0] = 0;
  memcpy(before, memory, sizeof memory);
  run(*state, &c);
  assert_memory_equal(memory, before, sizeof memory);
  tigon_rope_args *r = legal(&c, "rope_fwd");
  r->q.shape[2] = r->q_out.shape[2] = 0;
  memset(r->k_out.data, 0x11, (size_t)(count_of(&r->k_out) * size_of(&r->k_out)));
  run(*state, &c);
  for (int64_t i = 0; i < count_of(&r->k_out); ++i) assert_int_not_equal(((uint32_t *)r->k_out.data)[i], 0x11111111);
  r->k.shape[2] = r->k_out.shape[2] = 0;
  memcpy(before, memory, sizeof memory);
  run(*state, &c);
  assert_memory_equal(memory, before, sizeof memory);
}

/* One tensor whose leading dimensions do not merge, with `leading` of them in '*': four are more than a kernel walks. */
static void test_levels(void **state) {
  static const struct {
    const char *entry, *field;
    int leading;
  } each[] = {{"mhc_post_res_fwd", "o", 3},
              {"mhc_post_res_bwd", "g", 3},
              {"mhc_coeffs_fwd", "y", 4},
              {"modulated_rms_norm_bwd", "scale", 4}};
  for (size_t k = 0; k < sizeof each / sizeof *each; ++k) {
    call c;
    call_choices how = usual(TIGON_F32, each[k].leading);
    how.extents['b'] = how.extents['s'] = how.extents['a'] = 2, how.extents['c'] = 5;
    const int entry = call_entry(each[k].entry);
    memset(memory, 0x3f, sizeof memory);
    assert_true(call_make(&c, entry, tigon_schema_at(entry), &how, memory, ARENA) > 0);
    tigon_tensor *x = call_tensor(&c, call_find(&c, each[k].field), 0);
    x->data = memory + ARENA;
    if (strcmp(each[k].field, "scale") == 0) {
      tigon_modulated_rms_norm_bwd_args *a = (void *)c.args;
      absent(&a->dscale), absent(&a->dshift);
      *x = (tigon_tensor){x->data, TIGON_F32, 5, {2, 2, 2, how.extents['t'], 5}, {0}};
    }
    x->strides[x->ndim - 1] = 1;
    for (int d = x->ndim - 2; d >= 0; --d) x->strides[d] = x->strides[d + 1] * x->shape[d + 1] + 1;
    refused(*state, &c, TIGON_ERROR_INVALID,
            "the leading dimensions collapse to 4 strides, must collapse to 3 or fewer");
  }
}

/* Numbers of rows for which no workspace has room. */
static void test_huge(void **state) {
  size_t least = 5, good = 5;
  const tigon_tensor one = tigon_tensor_1d(NULL, TIGON_F32, 1);
#define HUGE(call, sentence)                               \
  api_expect(*state, call, TIGON_ERROR_INVALID, sentence); \
  assert_true(least == 5 && good == 5)
  const int64_t tokens = INT64_C(1) << 58;
  tigon_fused_linear_policy_fwd_args p = {.hidden = tigon_tensor_3d(NULL, TIGON_BF16, 1, tokens, 1),
                                          .weight = tigon_tensor_2d(NULL, TIGON_BF16, 1, 1),
                                          .labels = tigon_tensor_1d(NULL, TIGON_I32, tokens),
                                          .advantage = one,
                                          .loss = one,
                                          .logprob = tigon_tensor_1d(NULL, TIGON_F32, tokens)};
#define ROWS "fused_linear_policy_fwd: hidden has more rows than a workspace can hold numbers for"
  HUGE(tigon_fused_linear_policy_fwd_workspace(*state, &p, &least, &good), ROWS);
  p.hidden = tigon_tensor_2d(NULL, TIGON_BF16, 1, 1);
  p.labels.shape[0] = p.logprob.shape[0] = 1;
  p.segments = tigon_tensor_1d(NULL, TIGON_I32, tokens + 1);
  p.advantage.shape[0] = tokens;
  HUGE(tigon_fused_linear_policy_fwd_workspace(*state, &p, &least, &good), ROWS);
  /* rows, slots per row, width, experts: overflow; more than 2^55 elements; more than 2^55 experts */
  static const int64_t moe[][4] = {
      {INT64_C(1) << 31, 1 << 29, 1 << 20, 1}, {1 << 30, 1, 1 << 26, 1}, {1, 1, 1, INT64_C(1) << 56}};
  for (int i = 0; i < 3; ++i) {
    const int64_t rows = moe[i][0], slots = moe[i][1], width = moe[i][2], experts = moe[i][3];
    const tigon_tensor x = {NULL, TIGON_F32, 2, {rows, width}, {0, 1}};
    const tigon_fused_moe_fwd_args a = {.x = x,
                                        .idx = tigon_tensor_2d(NULL, TIGON_I32, rows, slots),
                                        .w = tigon_tensor_2d(NULL, TIGON_F32, rows, slots),
                                        .gate_up = tigon_tensor_3d(NULL, TIGON_F32, experts, 2, width),
                                        .down = tigon_tensor_3d(NULL, TIGON_F32, experts, width, 1),
                                        .y = x};
    HUGE(tigon_fused_moe_fwd_workspace(*state, &a, &least, &good),
         "fused_moe_fwd: x and idx have more slots than a workspace can hold rows for");
  }
  const int64_t batch = INT64_C(1) << 50;
  const tigon_tensor scores = {NULL, TIGON_F32, 4, {batch, 1, 8, 8}, {0, 0, 8, 1}};
  const tigon_tensor tap = tigon_tensor_4d(NULL, TIGON_F32, 1, 1, 1, 1);
  const tigon_multi_token_attention_fwd_args f = {.scores = scores, .weight = tap, .o = scores};
  const tigon_multi_token_attention_bwd_args b = {.scores = scores,
                                                  .weight = tap,
                                                  .d_o = scores,
                                                  .dscores = scores,
                                                  .stat = tigon_tensor_3d(NULL, TIGON_F32, batch, 1, 8)};
  HUGE(tigon_multi_token_attention_fwd_workspace(*state, &f, &least),
       "multi_token_attention_fwd: scores has more elements than a workspace can hold numbers for");
  HUGE(tigon_multi_token_attention_bwd_workspace(*state, &b, &least),
       "multi_token_attention_bwd: scores has more elements than a workspace can hold numbers for");
}

/* Either size of a workspace may be asked for without the other one, also by a batch without sequences. */
static void test_queries(void **state) {
  const tigon_schema *schema;
  for (int entry = 0; (schema = tigon_schema_at(entry)); ++entry)
    for (int batch = 0; batch < 2; ++batch) {
      call_choices how = usual(TIGON_BF16, 2);
      how.extents['b'] = 2 * batch;
      call c;
      size_t least = 5, good = 5, same[2] = {7, 7};
      assert_true(call_make(&c, entry, schema, &how, memory, ARENA) > 0);
      if (tigon_schema_workspace(entry, *state, c.args, &least, &good) != TIGON_OK) continue;
      assert_int_equal(tigon_schema_workspace(entry, *state, c.args, &same[0], NULL), TIGON_OK);
      assert_int_equal(tigon_schema_workspace(entry, *state, c.args, NULL, &same[1]), TIGON_OK);
      assert_true(same[0] == least && same[1] == good);
      if (!call_find(&c, "workspace")) continue;
      assert_int_equal(tigon_schema_workspace(entry, *state, NULL, &same[0], &same[1]), TIGON_ERROR_INVALID);
      assert_non_null(strstr(tigon_last_error(*state), ": args is NULL"));
    }
  call c;
  size_t least = 5;
  tigon_fused_linear_cross_entropy_args *a = legal(&c, "fused_linear_cross_entropy_fwd");
  a->dloss.shape[0] = 3;
  api_expect(*state, tigon_fused_linear_cross_entropy_workspace(*state, a, &least, NULL), TIGON_ERROR_INVALID,
             "fused_linear_cross_entropy_fwd: dloss.shape[0] is 3, must be 1 (unless options.reduction is none)");
  assert_int_equal(least, 5);
}

/* A query refuses what the front itself refuses. */
static void test_refused_queries(void **state) {
  call c;
  size_t least = 5, good = 5;
#define QUERY(name, change, sentence)                                                                                 \
  do {                                                                                                                \
    tigon_##name##_args *a = legal(&c, #name);                                                                        \
    (void)(change);                                                                                                   \
    api_expect(*state, tigon_##name##_workspace(*state, a, &least, &good), TIGON_ERROR_INVALID, #name ": " sentence); \
    assert_true(least == 5 && good == 5);                                                                             \
  } while (0)
  QUERY(mlp_fwd, (PACKED), "up_bias is there, must be absent without up");
  QUERY(mlp_bwd, (PACKED, absent(&a->dgate), absent(&a->dgate_bias), absent(&a->dup), absent(&a->dup_bias)),
        "up_bias is there, must be absent without up");
  QUERY(fused_linear_divergence_fwd, (a->teacher_weight.shape[0] = 0, absent(&a->teacher_bias)),
        "teacher_weight.shape[0] is 0, must be 1 or more");
  QUERY(fused_linear_topk_divergence_fwd, (a->by_temperature_squared = 1, a->temperature = 1e-30),
        "weight_soft times the square of temperature is 1e-60, must be a normal f32");
  QUERY(linear_logprob_fwd, (a->vocab = 0, a->vocab_begin = 1), "vocab_begin is 1, must be 0 without vocab");
  QUERY(linear_logprob_bwd, (a->vocab = 0, a->vocab_begin = 1), "vocab_begin is 1, must be 0 without vocab");
}

/* Scale [1, 1, C] is one row for all. */
static void test_ones(void **state) {
  call c;
  tigon_modulated_rms_norm_fwd_args *a = legal(&c, "modulated_rms_norm_fwd");
  const int64_t rows = count_of(&a->x) / 75;
  a->scale = a->shift = shaped(&a->scale, 3, 1, 1, 75, 0);
  run(*state, &c);
  for (int64_t i = 75; i < 75 * rows; ++i) assert_true(((float *)a->y.data)[i] == ((float *)a->y.data)[i % 75]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_cache),    cmocka_unit_test(test_rules),           cmocka_unit_test(test_rope_pairs),
      cmocka_unit_test(test_no_heads), cmocka_unit_test(test_levels),          cmocka_unit_test(test_huge),
      cmocka_unit_test(test_queries),  cmocka_unit_test(test_refused_queries), cmocka_unit_test(test_ones)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
