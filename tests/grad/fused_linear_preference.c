/* fused_linear_preference against linear_logprob, sums over sequences, preference_loss and linear_logprob's backward, on the
 * oracle and on the CPU with the built-in GEMM. Workspaces have every size: groups of pairs and sequences, and pairs too long
 * for a chunk. */
#include "fused_head.h"

typedef struct choice {
  tigon_preference_loss_options loss;
  bool means, nll;
} choice;

static const int32_t desirable[SEQUENCES] = {1, 0, 0, 1, 1, 0};

static void by_parts(tigon_context *c, const head_problem *p, const void *options, head_results *out) {
  static float lse[ROWS], entropy[ROWS], dlogprob[ROWS], logps[SEQUENCES], dlogps[SEQUENCES], dnll[SEQUENCES];
  static int64_t counts[SEQUENCES];
  const choice *o = options;
  const bool pairs = o->loss.kind < TIGON_PREFERENCE_KTO;
  const int items = pairs ? SEQUENCES / 2 : SEQUENCES;
  const tigon_linear_logprob_fwd_args head = logprob_by_parts(c, p, out, lse, entropy);
  memset(dnll, 0, sizeof dnll);
  for (int i = 0; i < SEQUENCES; ++i) {
    double sum = 0;
    counts[i] = 0;
    for (int64_t r = p->segments[i]; r < p->segments[i + 1]; ++r)
      if (p->labels[r] != IGNORE) sum += (double)out->logprob[r], ++counts[i];
    logps[i] = out->each[i] = (float)sum;
  }
  tigon_preference_loss_fwd_args a = {.logps = words(logps, SEQUENCES),
                                      .options = o->loss,
                                      .loss = words(&out->loss, 1),
                                      .pair_loss = words(&out->each[SEQUENCES], items),
                                      .rewards = words(&out->each[2 * SEQUENCES], SEQUENCES),
                                      .dlogps = words(dlogps, SEQUENCES),
                                      .accuracy = words(&out->metrics[0], 1),
                                      .margin = words(&out->metrics[1], 1)};
  const tigon_tensor of_tokens = tigon_tensor_1d(counts, TIGON_I64, SEQUENCES);
  if (o->loss.kind != TIGON_PREFERENCE_ORPO) a.ref = words(p->vectors[0], SEQUENCES);
  if (!pairs) a.labels = tigon_tensor_1d((void *)desirable, TIGON_I32, SEQUENCES);
  if (o->means) a.counts = of_tokens;
  if (o->nll) {
    a.nll_logps = words(logps, items);
    a.nll_counts = tigon_tensor_1d(counts, TIGON_I64, items);
    a.dnll_logps = words(dnll, items);
  }
  assert_int_equal(tigon_preference_loss_fwd(c, &a), TIGON_OK);
  for (int i = 0; i < SEQUENCES; ++i)
    for (int64_t r = p->segments[i]; r < p->segments[i + 1]; ++r) dlogprob[r] = (dlogps[i] + dnll[i]) * p->dloss;
  gradients_by_parts(c, p, &head, dlogprob, NULL, out);
}

static void run(tigon_context *c, const head_problem *p, const void *options, int room, head_results *out) {
  const choice *o = options;
  const bool pairs = o->loss.kind < TIGON_PREFERENCE_KTO;
  tigon_fused_linear_preference_fwd_args a = {HEAD_FIELDS(p, out),
                                              .options = o->loss,
                                              .means = o->means,
                                              .nll = o->nll,
                                              .logps = words(out->each, SEQUENCES),
                                              .pair_loss =
                                                  words(&out->each[SEQUENCES], pairs ? SEQUENCES / 2 : SEQUENCES),
                                              .rewards = words(&out->each[2 * SEQUENCES], SEQUENCES),
                                              .accuracy = words(&out->metrics[0], 1),
                                              .margin = words(&out->metrics[1], 1)};
  if (o->loss.kind != TIGON_PREFERENCE_ORPO) a.ref = words(p->vectors[0], SEQUENCES);
  if (!pairs) a.desirable = tigon_tensor_1d((void *)desirable, TIGON_I32, SEQUENCES);
  CALL_IN_ROOM(fused_linear_preference, c, p, &a, out, room);
}

static void test_pairs(void **s) {
  (void)s;
  compare_all(&(choice){{.kind = TIGON_PREFERENCE_SIGMOID}, false, false}, true, by_parts, run);
  compare_all(&(choice){{.kind = TIGON_PREFERENCE_SIGMOID, .beta = 2, .gamma = 0.5, .nll_weight = 0.5}, true, true},
              false, by_parts, run);
  compare_all(&(choice){{.kind = TIGON_PREFERENCE_ORPO}, true, true}, false, by_parts, run);
}

static void test_single(void **s) {
  (void)s;
  compare_all(&(choice){{.kind = TIGON_PREFERENCE_KTO, .desirable_weight = 1.5}, false, false}, true, by_parts, run);
}

/* hidden's memory takes dhidden. */
static void test_in_place(void **s) {
  (void)s;
  const choice o = {{.kind = TIGON_PREFERENCE_SIGMOID}, false, true};
  static head_results apart, together;
  static head_problem copy;
  tigon_context *c;
  assert_int_equal(tigon_context_create(&(tigon_context_desc){.device = "cpu", .threads = 2}, &c), TIGON_OK);
  const head_problem *p = made(TIGON_BF16, TIGON_F32, false, false);
  for (int room = 0; room < ROOMS; ++room) {
    memset(&apart, 0, sizeof apart), memset(&together, 0, sizeof together);
    run(c, p, &o, room, &apart);
    copy = *p;
    tigon_fused_linear_preference_fwd_args a = {HEAD_FIELDS(&copy, &together), .options = o.loss, .nll = 1};
    a.ref = words(p->vectors[0], SEQUENCES);
    a.dhidden = a.hidden;
    CALL_IN_ROOM(fused_linear_preference, c, &copy, &a, &together, room);
    assert_memory_equal(copy.hidden, apart.dhidden, ROWS * WIDTH * 2);
    assert_memory_equal(&together.loss, &apart.loss, sizeof apart.loss);
  }
  tigon_context_destroy(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_pairs), cmocka_unit_test(test_single),
                                     cmocka_unit_test(test_in_place)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
