/* What an operator's header says and no description can: calls that it refuses, bytes of workspace, values that are no numbers,
 * and rows whose index is out of range. Calls are made from descriptions, and each rule changes one. */
#include <inttypes.h>

#include "rules.h"

/* ---- refusals ---- */

static void test_losses(void **state) {
  RULE(cross_entropy_fwd, absent(&a->out.loss), "out.loss is absent, must be there but with options.reduction none");
  RULE(cross_entropy_fwd, a->options.reduction = TIGON_REDUCTION_NONE,
       "out.loss is there, must be absent with options.reduction none");
  RULE(cross_entropy_fwd,
       (a->options.reduction = TIGON_REDUCTION_NONE, absent(&a->out.loss), absent(&a->out.token_loss)),
       "out.token_loss is absent, must be there with options.reduction none");
  RULE(cross_entropy_fwd, a->dloss.shape[0] = 3, "dloss.shape[0] is 3, must be 1 (unless options.reduction is none)");
  RULE(cross_entropy_fwd, (a->options.reduction = TIGON_REDUCTION_NONE, absent(&a->out.loss)),
       "dloss.shape[0] is 1, must be 6 (rows of logits)");
  RULE(cross_entropy_bwd, (a->options.reduction = TIGON_REDUCTION_NONE, a->dloss = shaped(&a->dloss, 2, 3, 2, 0, 0)),
       "dloss.shape[0] is 3, must be 2 (logits.shape[0])");
  RULE(cross_entropy_fwd,
       (((int32_t *)a->labels.data)[1] = -1, a->options.has_ignore_index = 1, a->options.ignore_index = -100),
       "labels[1] is -1, must be 0 to 36 (logits.shape[2] - 1) or ignore_index");
  RULE(cross_entropy_bwd, absent(&a->entropy), "entropy is absent, must be there with dentropy");
  RULE(cross_entropy_bwd, a->options.reduction = TIGON_REDUCTION_SUM,
       "options.denominator is there, must be absent but with options.reduction mean");
  RULE(linear_logprob_fwd, a->cache.dtype = TIGON_BF16, "cache.dtype is bf16, must be f32 (hidden.dtype)");
  RULE(linear_logprob_bwd, absent(&a->entropy), "entropy is absent, must be there with dentropy");
#define VOCAB(entry, change, sentence) RULE(vocab_parallel_cross_entropy_##entry, change, sentence)
  VOCAB(stats, a->vocab = 36, "logits.shape[2] is 37, must be at most 36 (vocab)");
  VOCAB(stats, a->vocab_begin = 39, "vocab_begin is 39, must be 0 to 38 (vocab - logits.shape[2])");
  VOCAB(stats, a->vocab_begin = INT64_MAX,
        "vocab_begin is 9223372036854775807, must be 0 to 38 (vocab - logits.shape[2])");
  VOCAB(merge, absent(&a->out.loss), "out.loss is absent, must be there but with options.reduction none");
  VOCAB(merge, (a->options.own_partition = 1, a->rank = 2), "rank is 2, must be 0 to 1 (stats.shape[0] - 1)");
  VOCAB(merge, ((int32_t *)a->labels.data)[1] = 75, "labels[1] is 75, must be 0 to 74 (options.vocab - 1)");
  VOCAB(bwd, a->options.vocab = 36, "logits.shape[2] is 37, must be at most 36 (options.vocab)");
  VOCAB(bwd, a->vocab_begin = 39, "vocab_begin is 39, must be 0 to 38 (options.vocab - logits.shape[2])");
  VOCAB(bwd, absent(&a->entropy), "entropy is absent, must be there with dentropy");
  VOCAB(bwd, a->dloss = shaped(&a->dloss, 1, 3, 0, 0, 0),
        "dloss.shape[0] is 3, must be 1 (unless options.reduction is none)");
  RULE(divergence_fwd, absent(&a->out.loss), "out.loss is absent, must be there but with options.reduction none");
  RULE(divergence_fwd, a->options.reduction = TIGON_REDUCTION_NONE,
       "out.loss is there, must be absent with options.reduction none");
  RULE(divergence_fwd, (a->options.reduction = TIGON_REDUCTION_NONE, absent(&a->out.loss)),
       "dloss.shape[0] is 1, must be 6 (rows of input)");
  RULE(divergence_fwd,
       (a->options.reduction = TIGON_REDUCTION_SUM, a->options.denominator = shaped(&a->dloss, 1, 1, 0, 0, 0)),
       "options.denominator is there, must be absent but with options.reduction mean");
  RULE(divergence_fwd, (a->options.by_temperature_squared = 1, a->options.temperature = 1e20),
       "options.temperature is 1e+20, must have a square that is a normal f32");
  RULE(divergence_bwd, a->dloss = shaped(&a->dloss, 1, 3, 0, 0, 0),
       "dloss.shape[0] is 3, must be 1 (unless options.reduction is none)");
#define FUSED(entry, change, sentence) \
  RULE_OF(INVALID, "fused_linear_cross_entropy_" #entry, fused_linear_cross_entropy, change, sentence)
  FUSED(fwd, absent(&a->out.loss), "out.loss is absent, must be there but with options.reduction none");
  FUSED(bwd, a->out.lse = spare(TIGON_F32, 6), "out.lse is there, must be absent");
  FUSED(bwd, a->out.correct = spare(TIGON_I64, 1), "out.correct is there, must be absent");
}

/* Tensors that only some kinds of preference_loss have. */
#define LENGTH(t, n) t = shaped(&t, 1, n, 0, 0, 0)
static void test_preferences(void **state) {
#define PREFERENCE(change, sentence) RULE(preference_loss_fwd, change, sentence)
#define KIND(name) a->options.kind = TIGON_PREFERENCE_##name
  PREFERENCE(a->labels = spare(TIGON_I32, 6), "labels is there, must be absent with an options.kind of pairs");
  PREFERENCE(KIND(KTO), "labels is absent, must be there with an options.kind of single sequences");
  PREFERENCE(KIND(ORPO), "ref is there, must be absent with options.kind ORPO");
  PREFERENCE(a->shift = spare(TIGON_F32, 1),
             "shift is there, must be absent but with options.kind BCO_PAIR, KTO or BCO");
  PREFERENCE((LENGTH(a->logps, 5), LENGTH(a->ref, 5), LENGTH(a->counts, 5), LENGTH(a->rewards, 5), absent(&a->dlogps)),
             "logps.shape[0] is 5, must be even with an options.kind of pairs");
  PREFERENCE(absent(&a->nll_logps), "nll_counts is there, must be given with nll_logps");
  PREFERENCE(absent(&a->nll_counts), "nll_counts is absent, must be given with nll_logps");
  PREFERENCE((absent(&a->nll_logps), absent(&a->nll_counts)), "dnll_logps is there, must be absent without nll_logps");
  PREFERENCE((KIND(BCO_PAIR), a->shift = spare(TIGON_F32, 2)), "shift.shape[0] is 2, must be 3 (pairs, or 1)");
  PREFERENCE(LENGTH(a->pair_loss, 4), "pair_loss.shape[0] is 4, must be 3 (half of logps.shape[0])");
  PREFERENCE((KIND(KTO), a->labels = spare(TIGON_I32, 6)), "pair_loss.shape[0] is 3, must be 6 (logps.shape[0])");
}

static void test_policies(void **state) {
#define POLICY(change, sentence) RULE(policy_loss_fwd, change, sentence)
#define SEGMENT(i, value) ((int32_t *)a->segments.data)[i] = value
  POLICY(a->segments = shaped(&a->segments, 2, 1, 3, 0, 0), "segments.ndim is 2, must be 1");
  POLICY(LENGTH(a->segments, 0), "segments.shape[0] is 0, must be >= 1");
  POLICY(LENGTH(a->segments, 2), "advantage.shape[0] is 2, must be 1 (segments.shape[0] - 1)");
  POLICY(a->options.token_advantage = 1, "advantage.shape[0] is 2, must be 6 (logprob.shape[0])");
  POLICY(LENGTH(a->ratio, 6), "ratio.shape[0] is 6, must be 2 (segments.shape[0] - 1)");
  POLICY(SEGMENT(0, 1), "segments[0] is 1, must be 0");
  POLICY(SEGMENT(1, -1), "segments[1] is -1, must be 0 to 6");
  POLICY(SEGMENT(1, 7), "segments[1] is 7, must be 0 to 6");
  POLICY(SEGMENT(2, 5), "segments[2] is 5, must be 6 (logprob.shape[0])");
}

/* Heads with these losses: 2 sequences of a policy, 6 of a preference, with 6 tokens. */
static void test_head_losses(void **state) {
#define HEAD_POLICY(change, sentence) RULE(fused_linear_policy_fwd, change, sentence)
  HEAD_POLICY(a->options.token_advantage = 1, "advantage.shape[0] is 2, must be 6 (rows of hidden)");
  HEAD_POLICY(LENGTH(a->ratio, 6), "ratio.shape[0] is 6, must be 2 (segments.shape[0] - 1)");
  HEAD_POLICY(SEGMENT(2, 5), "segments[2] is 5, must be 6 (rows of hidden)");
  HEAD_POLICY((absent(&a->segments), LENGTH(a->advantage, 3)), "advantage.shape[0] is 3, must be 2 (hidden.shape[0])");
#define HEAD_PREFERENCE(change, sentence) RULE(fused_linear_preference_fwd, change, sentence)
  HEAD_PREFERENCE(a->options.kind = TIGON_PREFERENCE_KTO,
                  "desirable is absent, must be there with an options.kind of single sequences");
  HEAD_PREFERENCE((a->options.kind = TIGON_PREFERENCE_KTO, a->desirable = spare(TIGON_I32, 6), a->nll = 1),
                  "nll is 1, must be 0 with an options.kind of single sequences");
  HEAD_PREFERENCE(LENGTH(a->segments, 6), "segments.shape[0] - 1 is 5, must be even with an options.kind of pairs");
  HEAD_PREFERENCE(LENGTH(a->ref, 5), "ref.shape[0] is 5, must be 6 (segments.shape[0] - 1)");
  HEAD_PREFERENCE(LENGTH(a->pair_loss, 6), "pair_loss.shape[0] is 6, must be 3 (pairs or sequences)");
  HEAD_PREFERENCE(((int32_t *)a->segments.data)[1] = 7, "segments[1] is 7, must be 0 to 6");
}

/* 8192 tokens of a head of 128256 x 8192 have 1 MiB, one of 128256 x 4096 is given 512 MiB. */
static void test_head_losses_workspace(void **state) {
  const int64_t tokens = 8192, vocab = 128256;
  const tigon_tensor words = tigon_tensor_1d(NULL, TIGON_F32, tokens), one = tigon_tensor_1d(NULL, TIGON_F32, 1);
  for (int i = 0; i < 2; ++i) {
    const int64_t width = i ? 4096 : 8192;
    const tigon_dtype sums = i ? TIGON_F32 : TIGON_BF16;
    const tigon_tensor hidden = tigon_tensor_3d(NULL, TIGON_BF16, 8, 1024, width);
    tigon_fused_linear_policy_fwd_args a = {.hidden = hidden,
                                            .weight = tigon_tensor_2d(NULL, TIGON_BF16, vocab, width),
                                            .labels = tigon_tensor_1d(NULL, TIGON_I64, tokens),
                                            .advantage = tigon_tensor_1d(NULL, TIGON_F32, 8),
                                            .options = {.sequence_level = 1, .entropy_weight = 1},
                                            .loss = one,
                                            .logprob = words,
                                            .dhidden = hidden,
                                            .dweight = tigon_tensor_2d(NULL, sums, vocab, width)};
    const tigon_fused_linear_preference_fwd_args b = {.hidden = a.hidden,
                                                      .weight = a.weight,
                                                      .labels = a.labels,
                                                      .loss = one,
                                                      .logprob = words,
                                                      .dhidden = a.dhidden,
                                                      .dweight = a.dweight};
    size_t least, good;
    assert_int_equal(tigon_fused_linear_policy_fwd_workspace(*state, &a, &least, &good), TIGON_OK);
    assert_true(least <= 1 << 20 && (i == 0 || good <= 512 << 20));
    assert_int_equal(tigon_fused_linear_preference_fwd_workspace(*state, &b, &least, &good), TIGON_OK);
    assert_true(least <= 1 << 20 && (i == 0 || good <= 512 << 20));
    a.hidden = tigon_tensor_2d(NULL, TIGON_BF16, tokens, width);
    a.dhidden = a.hidden;
    api_expect(*state, tigon_fused_linear_policy_fwd_workspace(*state, &a, &least, &good), TIGON_ERROR_INVALID,
               "fused_linear_policy_fwd: segments is absent, must be there unless hidden is [S, T, H]");
  }
}

static void test_matrices(void **state) {
  RULE(linear_bwd, absent(&a->x), "x is absent, must be there for dw");
  RULE(linear_bwd, absent(&a->w), "w is absent, must be there for dx");
  RULE(fused_moe_fwd, a->down.shape[2] = 4, "gate_up.shape[1] is 6, must be 2 * 4 (down.shape[2])");
  RULE(fused_moe_bwd, (a->down.shape[2] = 4, absent(&a->ddown)),
       "gate_up.shape[1] is 6, must be 2 * 4 (down.shape[2])");
  RULE(attention_fwd, a->q.shape[3] = a->k.shape[3] = a->v.shape[3] = a->o.shape[3] = 0,
       "q.shape[3] is 0, must be >= 1");
  RULE(attention_fwd, (a->q.shape[2] = a->o.shape[2] = 3, a->lse.shape[1] = 3, absent(&a->sinks)),
       "q.shape[2] is 3, must be a multiple of 2 (k.shape[2])");
  RULE(attention_bwd, a->k.shape[2] = a->v.shape[2] = a->dk.shape[2] = a->dv.shape[2] = 0,
       "q.shape[2] is 4, must be a multiple of 0 (k.shape[2])");
}

#define ROPE(change, sentence)                          \
  RULE_OF(INVALID, "rope_fwd", rope, change, sentence); \
  RULE_OF(INVALID, "rope_bwd", rope, change, sentence)
static void test_rope(void **state) {
  ROPE(absent(&a->k), "k is absent, must be given with k_out");
  ROPE(absent(&a->k_out), "k_out is absent, must be given with k");
  ROPE(a->cos = shaped(&a->cos, 1, 7, 0, 0, 0), "cos.ndim is 1, must be 2 or 3");
  ROPE(a->cos.shape[1] = 4, "cos.shape[1] is 4, must be 3 or 6 (rotary_dim)");
  ROPE(a->sin.shape[0] = 4, "sin.shape[0] is 4, must be 7 (cos.shape[0])");
  ROPE((a->cos.strides[0] = 16, a->cos.strides[1] = 1), "sin.strides[0] is 6, must be 16 (cos.strides[0])");
  ROPE(a->cos = shaped(&a->cos, 3, 3, 7, 6, 0), "cos.shape[0] is 3, must be 2 (q.shape[0])");
  ROPE((absent(&a->positions), a->cos.shape[0] = a->sin.shape[0] = 2),
       "cos.shape[0] is 2, must be 3 or more (q.shape[1])");
  ROPE(a->positions.shape[0] = 3, "positions.shape[0] is 3, must be 2 (q.shape[0])");
  ROPE(a->positions.shape[1] = 2, "positions.shape[1] is 2, must be 3 (q.shape[1])");
  ROPE(a->rotary_dim = 3, "rotary_dim is 3, must be even and 2 to 6 (q.shape[3])");
  ROPE(a->rotary_dim = 10, "rotary_dim is 10, must be even and 2 to 6 (q.shape[3])");
  ROPE(a->rotary_dim = -2, "rotary_dim is -2, must be even and 2 to 6 (q.shape[3])");
  ROPE(((int32_t *)a->positions.data)[4] = 7, "positions[4] is 7, must be 0 to 6 (cos.shape[0] - 1)");
  ROPE(((int32_t *)a->positions.data)[4] = -1, "positions[4] is -1, must be 0 to 6 (cos.shape[0] - 1)");
}

static void test_rows(void **state) {
  RULE(rms_norm_bwd, absent(&a->z), "dz is there, must be absent without z");
  RULE(embedding_bwd, (a->has_padding_idx = 1, a->padding_idx = 37),
       "padding_idx is 37, must be 0 to 36 (dtable.shape[0] - 1)");
  RULE(embedding_bwd, (a->has_padding_idx = 1, a->padding_idx = -1),
       "padding_idx is -1, must be 0 to 36 (dtable.shape[0] - 1)");
  RULE(group_norm_fwd, a->x = a->y = shaped(&a->x, 1, 36, 0, 0, 0), "x.ndim is 1, must be 2 or more");
  RULE(group_norm_fwd, a->x = ((tigon_tensor){a->x.data, TIGON_F32, 4, {2, 6, 2, 3}, {36, 6, 4, 1}}),
       "x.strides[2] is 4, must be 3 (a contiguous run)");
  RULE(softmax_fwd, a->mask.shape[0] = 2, "mask.shape[0] is 2, must be 3 (x.shape[1])");
  RULE(softmax_fwd, a->mask = shaped(&a->mask, 1, 4, 0, 0, 0), "mask.shape[0] is 4, must be 75 (x.shape[2])");
  RULE(softmax_fwd, a->mask = shaped(&a->mask, 4, 1, 1, 3, 75), "mask.ndim is 4, must be 3 (x.ndim)");
  RULE(softmax_fwd, a->mask = shaped(&a->mask, 3, 1, 3, 75, 0), "mask.shape[0] is 1, must be 2 (x.shape[0])");
#define ONE_ROW a->x = shaped(&a->x, 1, 75, 0, 0, 0), a->y = shaped(&a->y, 1, 75, 0, 0, 0)
  RULE(softmax_fwd, (ONE_ROW, a->mask.shape[0] = 2), "mask.shape[0] is 2, must be 1 (x has one row)");
  RULE(softmax_fwd, (ONE_ROW, a->mask = shaped(&a->mask, 2, 1, 8, 0, 0)),
       "mask.shape[1] is 8, must be 75 (x.shape[0])");
}

static void test_modulation(void **state) {
#define SCALE(ndim, p, q, r, s, sentence)                                                            \
  RULE(modulated_rms_norm_fwd, a->scale = a->shift = shaped(&a->scale, ndim, p, q, r, s), sentence); \
  RULE(modulated_rms_norm_bwd,                                                                       \
       (absent(&a->dscale), absent(&a->dshift), a->scale = shaped(&a->scale, ndim, p, q, r, s)), sentence)
#define MATRIX(t) t = shaped(&t, 2, 6, 75, 0, 0)
#define NO_DIVISOR(groups)                                                                                   \
  RULE(modulated_rms_norm_fwd, (MATRIX(a->x), MATRIX(a->y), a->scale.shape[0] = a->shift.shape[0] = groups), \
       "scale has " #groups " rows, must have a number that divides 6 (rows)");                              \
  RULE(modulated_rms_norm_bwd,                                                                               \
       (MATRIX(a->dy), MATRIX(a->x), MATRIX(a->dx),                                                          \
        a->scale.shape[0] = a->dscale.shape[0] = a->dshift.shape[0] = groups),                               \
       "scale has " #groups " rows, must have a number that divides 6 (rows)")
  NO_DIVISOR(0);
  NO_DIVISOR(4);
  SCALE(2, 3, 75, 0, 0, "scale.shape[0] is 3, must be 1 or a product of the first dimensions of x");
  SCALE(3, 1, 3, 75, 0, "scale.shape[1] is 3, must be 1 (as the dimension before it)");
  SCALE(3, 2, 2, 75, 0, "scale.shape[1] is 2, must be 3 (x.shape[1]) or 1");
  SCALE(4, 2, 1, 1, 75, "scale.ndim is 4, must be 3 (x.ndim) or less");
}

/* Overlaps across entries of a list. */
static void test_list(void **state) {
#define PARAM(i) ((tigon_adamw_param *)(void *)c.elements)[i]
#define STEP(change, sentence) \
  RULE_OF(ALIAS, "adamw_step", adamw_step, (a->eps = 1, change), sentence ", must be apart")
  STEP(PARAM(1).param = PARAM(0).param, "params[0].param overlaps params[1].param");
  STEP(PARAM(0).exp_avg_sq.data = (float *)PARAM(1).exp_avg.data + 1,
       "params[0].exp_avg_sq overlaps params[1].exp_avg");
  STEP(PARAM(0).master.data = PARAM(1).grad.data, "params[0].master overlaps params[1].grad");
  STEP(PARAM(0).master.data = (float *)PARAM(1).grad.data + 1, "params[0].master overlaps params[1].grad");
  call c;
  tigon_adamw_step_args *a = legal(&c, "adamw_step");
  a->eps = 1;
  PARAM(1).grad = PARAM(0).grad; /* inputs may be the same */
  run(*state, &c);
}

/* ---- workspaces ---- */

/* What the call of `entry` needs without these tensors, "dw db". One that needs nothing is made without a workspace. */
static size_t bytes_of(tigon_context *context, const char *entry, tigon_dtype dtype, const char *without) {
  call c;
  size_t bytes = 5;
  make(&c, entry, dtype, without, "");
  if (call_query(&c, context, &bytes) != TIGON_OK) fail_msg("%s", tigon_last_error(context));
  call_set_workspace(&c, NULL, 0);
  if (bytes == 0) run(context, &c);
  return bytes;
}

/* Sums over rows need a workspace, as much for one as for two, and nothing else does. */
static void test_workspace_of_norms(void **state) {
  tigon_context *c = *state;
  const size_t two = bytes_of(c, "layer_norm_bwd", TIGON_F32, "");
  assert_true(two > 0 && bytes_of(c, "rms_norm_bwd", TIGON_F32, "") > 0);
  assert_int_equal(bytes_of(c, "layer_norm_bwd", TIGON_F32, "dw"), two);
  assert_int_equal(bytes_of(c, "layer_norm_bwd", TIGON_F32, "dw db"), 0);
  assert_int_equal(bytes_of(c, "rms_norm_bwd", TIGON_F32, "dw"), 0);
  assert_int_equal(bytes_of(c, "fused_add_rms_norm_bwd", TIGON_F32, "dw"), 0);
  assert_int_equal(bytes_of(c, "modulated_rms_norm_bwd", TIGON_F32, "dw dscale dshift"), 0);
}

static void test_workspace(void **state) {
  tigon_context *c = *state;
  assert_int_equal(bytes_of(c, "cross_entropy_fwd", TIGON_F32, ""), 64);
  assert_int_equal(bytes_of(c, "cross_entropy_fwd", TIGON_F32, "out.token_loss"), 128);
  /* out.correct still asks for argmax */
  assert_int_equal(bytes_of(c, "cross_entropy_fwd", TIGON_F32, "out.token_loss out.argmax"), 192);
  assert_int_equal(bytes_of(c, "cross_entropy_bwd", TIGON_F32, ""), 64);
  assert_int_equal(bytes_of(c, "divergence_fwd", TIGON_F32, ""), 64);
  assert_int_equal(bytes_of(c, "divergence_fwd", TIGON_F32, "out.token_loss"), 128);
  assert_int_equal(bytes_of(c, "divergence_bwd", TIGON_F32, ""), 64);
  enum { LSE = 2 * 4 * 3, DQ = LSE * 6 };
  assert_int_equal(bytes_of(c, "attention_bwd", TIGON_F32, ""), 128); /* delta: LSE floats, rounded up */
  assert_int_equal(bytes_of(c, "attention_bwd", TIGON_BF16, ""), 128 + DQ * sizeof(float)); /* and sums of dq */
  size_t least, good;
  call fused;
  legal(&fused, "fused_linear_cross_entropy_fwd");
  assert_int_equal(tigon_schema_workspace(fused.entry, c, fused.args, &least, &good), TIGON_OK);
  assert_true(least <= good);
  assert_int_equal(tigon_schema_workspace(fused.entry, c, fused.args, NULL, NULL), TIGON_OK);
}

/* Strides of 0 reach nowhere, but what lies in a workspace would. */
static void test_huge_workspace(void **state) {
  const int64_t rows = INT64_MAX / 15, many = INT64_C(1) << 60;
  size_t bytes = 5;
  const tigon_cross_entropy_fwd_args loss = {.logits = {NULL, TIGON_F32, 2, {rows, 8}, {0, 1}},
                                             .labels = tigon_tensor_1d(NULL, TIGON_I32, rows),
                                             .out = {.loss = tigon_tensor_1d(memory, TIGON_F32, 1)}};
  api_expect(*state, tigon_cross_entropy_fwd_workspace(*state, &loss, &bytes), TIGON_ERROR_INVALID,
             "cross_entropy_fwd: logits has more rows than a workspace can hold numbers for");
  const tigon_divergence_fwd_args apart = {.input = loss.logits, .target = loss.logits, .out = {.loss = loss.out.loss}};
  api_expect(*state, tigon_divergence_fwd_workspace(*state, &apart, &bytes), TIGON_ERROR_INVALID,
             "divergence_fwd: input has more rows than a workspace can hold numbers for");
  const tigon_tensor q = {NULL, TIGON_F32, 4, {1, many, 1, 1}, {0, 0, 0, 1}};
  const tigon_tensor k = tigon_tensor_4d(NULL, TIGON_F32, 1, 1, 1, 1),
                     lse = tigon_tensor_3d(NULL, TIGON_F32, 1, 1, many);
  const tigon_attention_bwd_args heads = {
      .q = q, .o = q, .d_o = q, .dq = q, .k = k, .v = k, .dk = k, .dv = k, .lse = lse};
  api_expect(*state, tigon_attention_bwd_workspace(*state, &heads, &bytes), TIGON_ERROR_INVALID,
             "attention_bwd: the workspace has more bytes than 64 bits count");
  assert_int_equal(bytes, 5);
}

static tigon_fused_linear_cross_entropy_args head(int64_t tokens, int64_t width) {
  return (tigon_fused_linear_cross_entropy_args){.hidden = tigon_tensor_2d(NULL, TIGON_BF16, tokens, width),
                                                 .weight = tigon_tensor_2d(NULL, TIGON_BF16, 32000, width),
                                                 .labels = tigon_tensor_1d(NULL, TIGON_I32, tokens),
                                                 .dweight = tigon_tensor_2d(NULL, TIGON_BF16, 32000, width)};
}

/* 1 MiB is enough for a 32000 x 1024 head with 16-bit dweight and 8192 tokens. */
static void test_one_mebibyte(void **state) {
  tigon_fused_linear_cross_entropy_args a = head(8192, 1024);
  a.dhidden = a.hidden;
  a.dbias = tigon_tensor_1d(NULL, TIGON_BF16, 32000);
  float loss;
  for (int forward = 0; forward < 2; ++forward) {
    size_t least;
    if (forward) a.out.loss = tigon_tensor_1d(&loss, TIGON_F32, 1);
    assert_int_equal(tigon_fused_linear_cross_entropy_workspace(*state, &a, &least, NULL), TIGON_OK);
    assert_true(least <= 1 << 20);
  }
}

/* The same of the log-probability's backward, which gets the sums from forward. */
static void test_logprob_mebibyte(void **state) {
  const tigon_fused_linear_cross_entropy_args h = head(8192, 1024);
  const tigon_tensor words = tigon_tensor_1d(NULL, TIGON_F32, 8192);
  for (int in_f32 = 0; in_f32 < 2; ++in_f32) {
    const tigon_linear_logprob_bwd_args a = {.hidden = h.hidden,
                                             .weight = h.weight,
                                             .labels = h.labels,
                                             .lse = words,
                                             .entropy = words,
                                             .dlogprob = words,
                                             .dentropy = words,
                                             .dhidden = h.hidden,
                                             .dweight = h.dweight,
                                             .logits_in_f32 = in_f32};
    size_t least, good;
    assert_int_equal(tigon_linear_logprob_bwd_workspace(*state, &a, &least, &good), TIGON_OK);
    assert_true(least <= 1 << 20 && good > least);
  }
}

/* One chunk for all tokens, or one of 1024 and the sums of a 16-bit dweight, whichever is smaller. */
static void test_recommended(void **state) {
  for (int64_t tokens = 2048; tokens <= 65536; tokens *= 2) {
    const tigon_fused_linear_cross_entropy_args a = head(tokens, 4096);
    size_t good;
    assert_int_equal(tigon_fused_linear_cross_entropy_workspace(*state, &a, NULL, &good), TIGON_OK);
    const size_t row = (32000 + 4096) * 2, all = (size_t)tokens * row, chunked = 1024 * row + (size_t)32000 * 4096 * 4;
    const size_t expected = all < chunked ? all : chunked;
    assert_true(good >= expected && good < expected + (1 << 20));
  }
}

/* ---- values ---- */

static void expect(const char *name, const tigon_tensor *x, int64_t i, double must) {
  const double is = value_of(x, i);
  if (is != must && !(isnan(is) && isnan(must))) fail_msg("%s[%d] is %g, must be %g", name, (int)i, is, must);
}

/* NaN passes, -Inf is 0, a large slope times a small dy does not overflow on the way. */
static void test_relu_squared(void **state) {
  const float x[] = {NAN, -INFINITY, INFINITY, -0.0f, -3, 3, 3e38f}, dy[] = {1, 1, 1, 1, NAN, -0.5f, 0.25f};
  const double y[] = {NAN, 0, INFINITY, 0, 0, 9, INFINITY}, dx[] = {NAN, 0, INFINITY, 0, NAN, -3, (double)1.5e38f};
  call c;
  const tigon_relu_squared_fwd_args *f = legal(&c, "relu_squared_fwd");
  memcpy(f->x.data, x, sizeof x);
  run(*state, &c);
  for (int i = 0; i < 7; ++i) expect("y", &f->y, i, y[i]);
  const tigon_relu_squared_bwd_args *b = legal(&c, "relu_squared_bwd");
  memcpy(b->x.data, x, sizeof x);
  memcpy(b->dy.data, dy, sizeof dy);
  run(*state, &c);
  for (int i = 0; i < 7; ++i) expect("dx", &b->dx, i, dx[i]);
}

/* NaN passes. A factor of 1 leaves y over x as it is: not even a signalling NaN becomes a quiet one. */
static void test_scale(void **state) {
  const float x[] = {NAN, INFINITY, -INFINITY, -3, 3e38f}, factors[] = {0, 0.5f, INFINITY, NAN};
  const uint32_t signalling = 0x7f800001;
  call c;
  tigon_scale_fwd_args *a = legal(&c, "scale_fwd");
  for (int k = 0; k < 4; ++k) {
    memcpy(a->x.data, x, sizeof x);
    memcpy(a->factor.data, &factors[k], sizeof(float));
    run(*state, &c);
    for (int i = 0; i < 5; ++i) expect("y", &a->y, i, (double)(factors[k] * x[i]));
  }
  a->y = a->x;
  memcpy(a->x.data, &signalling, sizeof signalling);
  memcpy(a->factor.data, &(float){1}, sizeof(float));
  run(*state, &c);
  assert_memory_equal(a->x.data, &signalling, sizeof signalling);
}

/* The smallest clamp is still one. */
static void test_swiglu_clamp(void **state) {
  call c;
  tigon_swiglu_fwd_args *a = legal(&c, "swiglu_fwd");
  a->clamp = 1e-300;
  run(*state, &c);
  for (int64_t i = 0; i < count_of(&a->c); ++i) assert_true(fabs(value_of(&a->c, i)) <= 1e-37);
}

/* Rows of nothing but -Inf, with a NaN, and with two largest logits, the first of which is the label's. */
static void test_cross_entropy_rows(void **state) {
  enum { V = 37 };
  call c;
  const tigon_cross_entropy_fwd_args *a = legal(&c, "cross_entropy_fwd");
  const tigon_cross_entropy_outputs *out = &a->out;
  float *x = a->logits.data;
  for (int v = 0; v < V; ++v) x[v] = -INFINITY;
  x[V + 6] = NAN;
  for (int v = 0; v < V; ++v) x[2 * V + v] = v == 2 || v == 5 ? 4 : -INFINITY;
  ((int32_t *)a->labels.data)[2] = 2;
  run(*state, &c);
  const double argmax[] = {0, 6, 2}, half = value_of(&a->dlogits, 2 * V + 5);
  for (int r = 0; r < 3; ++r) expect("argmax", &out->argmax, r, argmax[r]);
  for (int r = 0; r < 2; ++r) expect("lse", &out->lse, r, r ? NAN : -INFINITY);
  for (int r = 0; r < 2; ++r) expect("token_loss", &out->token_loss, r, NAN);
  for (int r = 0; r < 2; ++r) expect("entropy", &out->entropy, r, NAN);
  expect("loss", &out->loss, 0, NAN);
  for (int v = 0; v < 2 * V; ++v) expect("dlogits", &a->dlogits, v, NAN);
  for (int v = 0; v < V; ++v) expect("dlogits", &a->dlogits, 2 * V + v, v == 2 ? -half : v == 5 ? half : 0);
  assert_true(half > 0 && fabs(value_of(&out->entropy, 2) - log(2)) < 1e-6);
}

/* The softcap first, as Gemma has it: z = cap * tanh(x / cap) / temperature. */
static void test_softcap_first(void **state) {
  enum { V = 37 };
  const double cap = 3, temperature = 0.5;
  for (int first = 0; first < 2; ++first) {
    call c;
    tigon_cross_entropy_fwd_args *a = legal(&c, "cross_entropy_fwd");
    a->options.softcap = cap;
    a->options.temperature = temperature;
    a->options.softcap_first = first;
    run(*state, &c);
    double sum = 0;
    for (int v = 0; v < V; ++v) {
      const double x = value_of(&a->logits, v);
      sum += exp(first ? cap * tanh(x / cap) / temperature : cap * tanh(x / temperature / cap));
    }
    assert_true(fabs(value_of(&a->out.lse, 0) - log(sum)) < 1e-5);
  }
}

/* ---- indices out of range, with a flag ---- */

enum { ROWS = 6, ROW = 2 }; /* rows of a call; the row whose index is out of range */

/* What the output holds there. */
static const struct {
  const char *name;
  double value;
} ignored[] = {{"q_out", NAN},     {"k_out", NAN},     {"y", 0},       {"out.token_loss", 0}, {"out.z_loss", 0},
               {"out.entropy", 0}, {"out.argmax", -1}, {"dlogits", 0}, {"dhidden", 0}};

/* Does the tensor have a row for each index? */
static bool has_rows(const tigon_field *field) { return strchr("*@b", field->shape[0]) != NULL; }

static void spoil_row(call *c) {
  for (view v = view_at(c, 0); v.x; v = view_at(c, v.k + 1)) {
    const bool takes_nan = has_rows(v.field) && !(v.field->flags & TIGON_FIELD_OUT) && !is_index(v.x);
    const int64_t size = takes_nan ? count_of(v.x) / ROWS : 0;
    for (int64_t i = ROW * size; i < (ROW + 1) * size; ++i) tigon_store_f64(element_of(v.x, i), 0, v.x->dtype, NAN);
  }
}

/* No NaN of that row comes out in a sum over rows. */
static void expect_ignored(call *c) {
  for (view v = view_at(c, 0); v.x; v = view_at(c, v.k + 1)) {
    const int64_t count = v.field->flags & TIGON_FIELD_OUT ? count_of(v.x) : 0, size = count / ROWS;
    for (int64_t i = 0; !has_rows(v.field) && i < count; ++i) assert_true(isfinite(value_of(v.x, i)));
    for (size_t n = 0; n < sizeof ignored / sizeof *ignored; ++n)
      for (int64_t i = ROW * size; strcmp(ignored[n].name, v.field->name) == 0 && i < (ROW + 1) * size; ++i)
        expect(v.field->name, v.x, i, ignored[n].value);
  }
}

/* Only losses have an index that is ignored. */
static bool ignore(call *c, int64_t index) {
  const tigon_field *has = call_find(c, "options.has_ignore_index"), *field = call_find(c, "options.ignore_index");
  if (!has) return false;
  *(int *)call_field(c, has, 0) = 1;
  *(int64_t *)call_field(c, field, 0) = index;
  return true;
}

/* A legal call leaves the flag alone. Any index out of range raises it and counts as little as one that is ignored: the bits
 * are the same. */
static void try_flag(tigon_context *context, const tigon_schema *schema, const tigon_field *index,
                     const tigon_field *flag, bool wide) {
  static char first[ARENA];
  const int64_t extent = usual(TIGON_F32, 2).extents[(int)index->below];
  const int64_t wild[] = {extent, -1, INT32_MAX, INT32_MIN, -100, INT64_MAX, INT64_MIN};
  for (int i = -1; i < (wide ? 7 : 5); ++i) {
    call c;
    tigon_rope_args *rope = make(&c, schema->name, TIGON_F32, "", wide ? index->name : "");
    if (strcmp(schema->op, "rope") == 0) { /* what is not turned is NaN, too */
      rope->rotary_dim = 4;
      rope->cos.shape[1] = rope->sin.shape[1] = 4;
    }
    const tigon_tensor *x = call_tensor(&c, index, 0);
    char *const at = element_of(x, ROW);
    int32_t *const raised = call_tensor(&c, flag, 0)->data;
    const bool left_alone = i < 0 || (wild[i] == -100 && ignore(&c, -100));
    *raised = 7;
    if (i >= 0) memcpy(at, &wild[i], (size_t)size_of(x));
    if (i >= 0) spoil_row(&c);
    run(context, &c);
    assert_int_equal(*raised, left_alone ? 7 : 1);
    if (i < 0) continue;
    expect_ignored(&c);
    memset(at, 0, (size_t)size_of(x));
    *raised = 0;
    if (i == 0) memcpy(first, memory, ARENA);
    assert_memory_equal(memory, first, ARENA);
  }
}

static void test_flags(void **state) {
  const tigon_schema *schema;
  int found = 0;
  for (int entry = 0; (schema = tigon_schema_at(entry)); ++entry) {
    const tigon_field *index = NULL, *flag = NULL;
    for (int i = 0; i < schema->count; ++i) {
      if (schema->fields[i].below) index = &schema->fields[i];
      if (is_error_flag(&schema->fields[i])) flag = &schema->fields[i];
    }
    assert_true(!index == !flag);
    if (!index) continue;
    ++found;
    try_flag(*state, schema, index, flag, false);
    try_flag(*state, schema, index, flag, true);
  }
  assert_true(found >= 8);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_losses),         cmocka_unit_test(test_preferences),
      cmocka_unit_test(test_policies),       cmocka_unit_test(test_matrices),
      cmocka_unit_test(test_head_losses),    cmocka_unit_test(test_head_losses_workspace),
      cmocka_unit_test(test_rope),           cmocka_unit_test(test_rows),
      cmocka_unit_test(test_modulation),     cmocka_unit_test(test_list),
      cmocka_unit_test(test_workspace),      cmocka_unit_test(test_workspace_of_norms),
      cmocka_unit_test(test_one_mebibyte),   cmocka_unit_test(test_logprob_mebibyte),
      cmocka_unit_test(test_huge_workspace), cmocka_unit_test(test_recommended),
      cmocka_unit_test(test_relu_squared),   cmocka_unit_test(test_swiglu_clamp),
      cmocka_unit_test(test_softcap_first),  cmocka_unit_test(test_cross_entropy_rows),
      cmocka_unit_test(test_flags),          cmocka_unit_test(test_scale)};
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
