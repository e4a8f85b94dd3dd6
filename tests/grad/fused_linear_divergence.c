/* fused_linear_divergence against linear, divergence of both logits and linear's backward, on the oracle and on the CPU with the
 * built-in GEMM, in workspaces of every size. The cross entropy beside it is that of fused_linear_cross_entropy. */
#include "distil_head.h"

enum { TEACHER_WIDTH = 31 };

/* The teacher's tensors, and the logits of both. */
static float hidden[ROWS * TEACHER_WIDTH], weight[VOCAB * TEACHER_WIDTH], bias[VOCAB], student[ROWS * VOCAB],
    teacher[ROWS * VOCAB];

static void make_teacher(tigon_dtype dtype) {
  unsigned seed = 19;
  fill(hidden, dtype, ROWS * TEACHER_WIDTH, &seed);
  fill(weight, dtype, VOCAB * TEACHER_WIDTH, &seed);
  fill(bias, dtype, VOCAB, &seed);
}

static void multiply(tigon_context *c, tigon_tensor x, tigon_tensor w, const float *b, float *y) {
  const tigon_linear_fwd_args a = {
      .x = x, .w = w, .b = tigon_tensor_1d((void *)b, x.dtype, VOCAB), .y = matrix(y, x.dtype, ROWS, VOCAB)};
  assert_int_equal(tigon_linear_fwd(c, &a), TIGON_OK);
}

static void by_parts(tigon_context *c, const head_problem *p, const void *options, head_results *out) {
  static _Alignas(64) char memory[1 << 16];
  make_teacher(p->dtype);
  multiply(c, matrix(p->hidden, p->dtype, ROWS, WIDTH), matrix(p->weight, p->dtype, VOCAB, WIDTH), p->bias, student);
  multiply(c, matrix(hidden, p->dtype, ROWS, TEACHER_WIDTH), matrix(weight, p->dtype, VOCAB, TEACHER_WIDTH), bias,
           teacher);
  const tigon_divergence_fwd_args a = {.input = matrix(student, p->dtype, ROWS, VOCAB),
                                       .target = matrix(teacher, p->dtype, ROWS, VOCAB),
                                       .labels = tigon_tensor_1d((void *)p->labels, TIGON_I64, ROWS),
                                       .options = *(const tigon_divergence_options *)options,
                                       .out = {.loss = words(&out->loss, 1), .token_loss = words(out->each, ROWS)},
                                       .dinput = matrix(student, p->dtype, ROWS, VOCAB),
                                       .dloss = words(&p->dloss, 1),
                                       .workspace = memory,
                                       .workspace_bytes = sizeof memory};
  assert_int_equal(tigon_divergence_fwd(c, &a), TIGON_OK);
  out->metrics[0] = out->loss;
  tigon_linear_bwd_args b = {.dy = a.dinput,
                             .x = matrix(p->hidden, p->dtype, ROWS, WIDTH),
                             .w = matrix(p->weight, p->dtype, VOCAB, WIDTH),
                             .dx = matrix(out->dhidden, p->dtype, ROWS, WIDTH)};
  if (!p->frozen) b.dw = matrix(out->dweight, p->sum_dtype, VOCAB, WIDTH);
  if (!p->frozen) b.db = tigon_tensor_1d(out->dbias, p->sum_dtype, VOCAB);
  assert_int_equal(tigon_linear_bwd(c, &b), TIGON_OK);
}

static tigon_fused_linear_divergence_fwd_args arguments_of(const head_problem *p, head_results *out) {
  make_teacher(p->dtype);
  return (tigon_fused_linear_divergence_fwd_args){
      .hidden = batch(p, p->hidden),
      .weight = matrix(p->weight, p->dtype, VOCAB, WIDTH),
      .bias = tigon_tensor_1d((void *)p->bias, p->dtype, VOCAB),
      .teacher_hidden = p->packed ? matrix(hidden, p->dtype, ROWS, TEACHER_WIDTH)
                                  : tigon_tensor_3d(hidden, p->dtype, SEQUENCES, LENGTH, TEACHER_WIDTH),
      .teacher_weight = matrix(weight, p->dtype, VOCAB, TEACHER_WIDTH),
      .teacher_bias = tigon_tensor_1d(bias, p->dtype, VOCAB),
      .labels = tigon_tensor_1d((void *)p->labels, TIGON_I64, ROWS),
      .dloss = words(&p->dloss, 1),
      .has_ignore_index = 1,
      .ignore_index = IGNORE,
      .loss = words(&out->loss, 1),
      .token_loss = words(out->each, ROWS),
      .soft_loss = words(&out->metrics[0], 1),
      .dhidden = batch(p, out->dhidden),
      .workspace = workspace};
}

static void run(tigon_context *c, const head_problem *p, const void *options, int room, head_results *out) {
  const tigon_divergence_options *o = options;
  tigon_fused_linear_divergence_fwd_args a = arguments_of(p, out);
  a.kind = o->kind, a.beta = o->beta, a.temperature = o->temperature;
  CALL_IN_ROOM(fused_linear_divergence, c, p, &a, out, room);
}

static void test_kinds(void **s) {
  (void)s;
  for (int kind = 0; kind <= TIGON_DIVERGENCE_COSINE; ++kind)
    compare_all(
        &(tigon_divergence_options){
            .kind = (tigon_divergence_kind)kind, .beta = 0.25, .temperature = 2, .ignore_index = IGNORE},
        true, by_parts, run);
}

/* The sum of both losses has the gradients of both. */
static void test_cross_entropy(void **s) {
  (void)s;
  static head_results soft, hard, both;
  tigon_context *c;
  setenv("TIGON_GEMM", "builtin", 1);
  assert_int_equal(tigon_context_create(&(tigon_context_desc){.device = "cpu", .threads = 2}, &c), TIGON_OK);
  const head_problem *p = made(TIGON_F32, TIGON_F32, true, true);
  for (int room = 0; room < ROOMS; ++room) {
    memset(&hard, 0, sizeof hard);
    run(c, p, &(tigon_divergence_options){.temperature = 2}, room, &soft);
    hard_by_parts(c, p, 0, &hard);
    tigon_fused_linear_divergence_fwd_args a = arguments_of(p, &both);
    a.temperature = 2, a.weight_soft = 0.5, a.weight_hard = 0.25, a.hard_loss = words(&both.metrics[1], 1);
    CALL_IN_ROOM(fused_linear_divergence, c, p, &a, &both, room);
    expect_both(&both, &soft, &hard);
  }
  tigon_context_destroy(c);
}

/* Losses and dhidden have the same bits in every workspace. A scale alone is one of the weight and bias: a power of two
 * rounds nothing. */
static void test_maps(void **s) {
  (void)s;
  static head_results scaled, expected, got;
  static head_problem q;
  tigon_context *c;
  setenv("TIGON_GEMM", "builtin", 1);
  assert_int_equal(tigon_context_create(&(tigon_context_desc){.device = "cpu", .threads = 2}, &c), TIGON_OK);
  for (int i = 0; i < 4; ++i) {
    const head_problem *p = made(i % 2 ? TIGON_BF16 : TIGON_F32, i % 2 ? TIGON_BF16 : TIGON_F32, true, true);
    for (int room = 0; room < ROOMS; ++room) {
      memset(&got, 0, sizeof got);
      tigon_fused_linear_divergence_fwd_args a = arguments_of(p, &got);
      a.kind = TIGON_DIVERGENCE_JSD, a.beta = 0.25, a.temperature = 2, a.weight_hard = 0.5;
      a.softcap = i < 2 ? 1.5 : 0, a.teacher_softcap = 3, a.logit_scale = 2, a.teacher_logit_scale = 0.5;
      CALL_IN_ROOM(fused_linear_divergence, c, p, &a, &got, room);
      if (room == 0) expected = got;
      assert_memory_equal(&got, &expected, offsetof(head_results, dweight));
      expect_sums(p, got.dweight, expected.dweight, VOCAB * WIDTH);
      if (i < 2 || room > 0) continue;
      q = *p;
      for (int n = 0; n < VOCAB * WIDTH; ++n)
        tigon_store_f64(q.weight, n, q.dtype, 2 * tigon_load_f64(q.weight, n, q.dtype));
      for (int n = 0; n < VOCAB; ++n) tigon_store_f64(q.bias, n, q.dtype, 2 * tigon_load_f64(q.bias, n, q.dtype));
      memset(&scaled, 0, sizeof scaled);
      tigon_fused_linear_divergence_fwd_args b = arguments_of(&q, &scaled);
      b.kind = a.kind, b.beta = a.beta, b.temperature = a.temperature, b.weight_hard = a.weight_hard;
      b.teacher_softcap = a.teacher_softcap, b.teacher_logit_scale = a.teacher_logit_scale;
      CALL_IN_ROOM(fused_linear_divergence, c, &q, &b, &scaled, room);
      assert_memory_equal(&scaled, &got, offsetof(head_results, dweight));
    }
  }
  tigon_context_destroy(c);
}

/* hidden's memory takes dhidden. */
static void test_in_place(void **s) {
  (void)s;
  static head_results apart, together;
  static head_problem copy;
  tigon_context *c;
  assert_int_equal(tigon_context_create(&(tigon_context_desc){.device = "cpu", .threads = 2}, &c), TIGON_OK);
  const head_problem *p = made(TIGON_BF16, TIGON_BF16, false, true);
  for (int room = 0; room < ROOMS; ++room) {
    memset(&apart, 0, sizeof apart), memset(&together, 0, sizeof together);
    run(c, p, &(tigon_divergence_options){0}, room, &apart);
    copy = *p;
    tigon_fused_linear_divergence_fwd_args a = arguments_of(&copy, &together);
    a.dhidden = a.hidden;
    CALL_IN_ROOM(fused_linear_divergence, c, &copy, &a, &together, room);
    assert_memory_equal(copy.hidden, apart.dhidden, ROWS * WIDTH * 2);
    assert_memory_equal(&together.loss, &apart.loss, sizeof apart.loss);
    assert_memory_equal(together.dweight, apart.dweight, VOCAB * WIDTH * 2);
  }
  tigon_context_destroy(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_kinds), cmocka_unit_test(test_cross_entropy),
                                     cmocka_unit_test(test_maps), cmocka_unit_test(test_in_place)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
