/* fused_linear_topk_divergence against linear, topk_divergence and linear's backward, on the oracle and on the CPU with the built-in
 * GEMM, in workspaces of every size. The cross entropy beside it is that of fused_linear_cross_entropy. */
#include "distil_head.h"

enum { K = 6 };

/* The teacher's entries, and the student's logits. Some ids repeat. */
static float target[ROWS * K], logits[ROWS * VOCAB];
static int64_t ids[ROWS * K];

static void make_teacher(tigon_distribution is) {
  unsigned seed = 19;
  fill(target, TIGON_F32, ROWS * K, &seed);
  for (int i = 0; i < ROWS * K; ++i) {
    if (is != TIGON_DISTRIBUTION_LOGITS) target[i] = -3 + target[i];
    if (is == TIGON_DISTRIBUTION_PROBABILITIES) target[i] = expf(target[i]);
    ids[i] = i * 7919 % (i % 5 ? VOCAB : 3);
  }
}

static void by_parts(tigon_context *c, const head_problem *p, const void *options, head_results *out) {
  static _Alignas(64) char memory[1 << 16];
  const tigon_topk_divergence_options *o = options;
  make_teacher(o->target_is);
  const tigon_tensor x = matrix(p->hidden, p->dtype, ROWS, WIDTH), w = matrix(p->weight, p->dtype, VOCAB, WIDTH);
  const tigon_tensor y = matrix(logits, p->dtype, ROWS, VOCAB);
  const tigon_linear_fwd_args product = {
      .x = x, .w = w, .b = tigon_tensor_1d((void *)p->bias, p->dtype, VOCAB), .y = y};
  assert_int_equal(tigon_linear_fwd(c, &product), TIGON_OK);
  const tigon_topk_divergence_fwd_args a = {.input = y,
                                            .target = matrix(target, TIGON_F32, ROWS, K),
                                            .target_ids = tigon_tensor_2d(ids, TIGON_I64, ROWS, K),
                                            .labels = tigon_tensor_1d((void *)p->labels, TIGON_I64, ROWS),
                                            .options = *o,
                                            .out = {.loss = words(&out->loss, 1), .token_loss = words(out->each, ROWS)},
                                            .dinput = y,
                                            .dloss = words(&p->dloss, 1),
                                            .workspace = memory,
                                            .workspace_bytes = sizeof memory};
  assert_int_equal(tigon_topk_divergence_fwd(c, &a), TIGON_OK);
  out->metrics[0] = out->loss;
  tigon_linear_bwd_args b = {.dy = y, .x = x, .w = w, .dx = matrix(out->dhidden, p->dtype, ROWS, WIDTH)};
  if (!p->frozen) b.dw = matrix(out->dweight, p->sum_dtype, VOCAB, WIDTH);
  if (!p->frozen) b.db = tigon_tensor_1d(out->dbias, p->sum_dtype, VOCAB);
  assert_int_equal(tigon_linear_bwd(c, &b), TIGON_OK);
}

static tigon_tensor lists(const head_problem *p, void *data, tigon_dtype dtype) {
  return p->packed ? tigon_tensor_2d(data, dtype, ROWS, K) : tigon_tensor_3d(data, dtype, SEQUENCES, LENGTH, K);
}

static tigon_fused_linear_topk_divergence_fwd_args arguments_of(const head_problem *p, tigon_distribution is,
                                                                head_results *out) {
  make_teacher(is);
  return (tigon_fused_linear_topk_divergence_fwd_args){.hidden = batch(p, p->hidden),
                                                       .weight = matrix(p->weight, p->dtype, VOCAB, WIDTH),
                                                       .bias = tigon_tensor_1d((void *)p->bias, p->dtype, VOCAB),
                                                       .target = lists(p, target, TIGON_F32),
                                                       .target_ids = lists(p, ids, TIGON_I64),
                                                       .labels = tigon_tensor_1d((void *)p->labels, TIGON_I64, ROWS),
                                                       .dloss = words(&p->dloss, 1),
                                                       .target_is = is,
                                                       .has_ignore_index = 1,
                                                       .ignore_index = IGNORE,
                                                       .loss = words(&out->loss, 1),
                                                       .token_loss = words(out->each, ROWS),
                                                       .soft_loss = words(&out->metrics[0], 1),
                                                       .dhidden = batch(p, out->dhidden),
                                                       .workspace = workspace};
}

static void run(tigon_context *c, const head_problem *p, const void *options, int room, head_results *out) {
  const tigon_topk_divergence_options *o = options;
  tigon_fused_linear_topk_divergence_fwd_args a = arguments_of(p, o->target_is, out);
  a.kind = o->kind, a.beta = o->beta, a.temperature = o->temperature, a.tail = o->tail, a.least_tail = o->least_tail;
  CALL_IN_ROOM(fused_linear_topk_divergence, c, p, &a, out, room);
}

static void test_kinds(void **s) {
  (void)s;
  for (int kind = 0; kind <= TIGON_DIVERGENCE_TVD; ++kind)
    for (int is = 0; is < 3; ++is)
      compare_all(&(tigon_topk_divergence_options){.kind = (tigon_divergence_kind)kind,
                                                   .target_is = (tigon_distribution)is,
                                                   .beta = 0.25,
                                                   .temperature = 2,
                                                   .tail = is == 1,
                                                   .least_tail = 0.01,
                                                   .ignore_index = IGNORE},
                  true, by_parts, run);
}

/* The sum of both losses has the gradients of both, of capped logits, too. */
static void test_cross_entropy(void **s) {
  (void)s;
  static head_results soft, hard, both;
  const tigon_distribution is = TIGON_DISTRIBUTION_LOG_PROBABILITIES;
  tigon_context *c;
  setenv("TIGON_GEMM", "builtin", 1);
  assert_int_equal(tigon_context_create(&(tigon_context_desc){.device = "cpu", .threads = 2}, &c), TIGON_OK);
  const head_problem *p = made(TIGON_F32, TIGON_F32, true, true);
  for (int i = 0; i < 2 * ROOMS; ++i) {
    const int room = i / 2;
    const double cap = i % 2 ? 1.5 : 0;
    memset(&hard, 0, sizeof hard);
    tigon_fused_linear_topk_divergence_fwd_args a = arguments_of(p, is, &soft);
    a.temperature = 2, a.softcap = cap;
    CALL_IN_ROOM(fused_linear_topk_divergence, c, p, &a, &soft, room);
    hard_by_parts(c, p, cap, &hard);
    a = arguments_of(p, is, &both);
    a.temperature = 2, a.softcap = cap, a.weight_soft = 0.5, a.weight_hard = 0.25;
    a.hard_loss = words(&both.metrics[1], 1);
    CALL_IN_ROOM(fused_linear_topk_divergence, c, p, &a, &both, room);
    expect_both(&both, &soft, &hard);
  }
  tigon_context_destroy(c);
}

/* hidden's memory takes dhidden; all that belongs to a token has the same bits in every workspace. */
static void test_in_place(void **s) {
  (void)s;
  static head_results first, apart, together;
  static head_problem copy;
  const tigon_distribution is = TIGON_DISTRIBUTION_LOG_PROBABILITIES;
  tigon_context *c;
  assert_int_equal(tigon_context_create(&(tigon_context_desc){.device = "cpu", .threads = 2}, &c), TIGON_OK);
  const head_problem *p = made(TIGON_BF16, TIGON_BF16, false, true);
  for (int room = 0; room < ROOMS; ++room) {
    memset(&apart, 0, sizeof apart), memset(&together, 0, sizeof together);
    tigon_fused_linear_topk_divergence_fwd_args a = arguments_of(p, is, &apart);
    a.kind = TIGON_DIVERGENCE_JSD, a.beta = 0.5, a.softcap = 2, a.logit_scale = 1.5, a.weight_hard = 0.5;
    CALL_IN_ROOM(fused_linear_topk_divergence, c, p, &a, &apart, room);
    if (room == 0) first = apart;
    assert_memory_equal(&apart, &first, offsetof(head_results, dweight));
    expect_sums(p, apart.dweight, first.dweight, VOCAB * WIDTH);
    copy = *p;
    tigon_fused_linear_topk_divergence_fwd_args b = arguments_of(&copy, is, &together);
    b.kind = a.kind, b.beta = a.beta, b.softcap = a.softcap, b.logit_scale = a.logit_scale;
    b.weight_hard = a.weight_hard, b.dhidden = b.hidden;
    CALL_IN_ROOM(fused_linear_topk_divergence, c, &copy, &b, &together, room);
    assert_memory_equal(copy.hidden, apart.dhidden, ROWS * WIDTH * 2);
    assert_memory_equal(&together.loss, &apart.loss, sizeof apart.loss);
    assert_memory_equal(together.dweight, apart.dweight, VOCAB * WIDTH * 2);
  }
  tigon_context_destroy(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_kinds), cmocka_unit_test(test_cross_entropy),
                                     cmocka_unit_test(test_in_place)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
