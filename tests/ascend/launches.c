/* Launches that are no walk over rows, in the simulator: rope, embedding backward, merge of shards and adamw. They move the
 * bytes, and take the on-chip memory, that the planner predicts. The planner sees a list of tensors as one, and each of its
 * elements moves once. Results are `tigon check --device ascend-sim:910B4`'s. */
#include <math.h>

#include "ascend/traffic.h"

/* The call's only plan has the bytes that moved, UB and blocks. */
static void expect_launch(const tigon_context *context, const char *what) {
  const tigon_plan *plan = only_plan(context);
  expect_bytes(context, plan, what);
  assert_int_equal(counters(context)->ub_bytes, plan->onchip_bytes);
  assert_int_equal(counters(context)->blocks, plan->grid);
}

/* ---- rope ---- */

static void run_rope(tigon_context *context, tigon_dtype dtype, tigon_dtype table_dtype, int64_t tokens, int64_t heads,
                     int64_t dim, int64_t rotary_dim, tigon_rope_layout layout, bool positions) {
  enum { KEYS = 2 };
  const size_t size = tigon_dtype_size(dtype), rows = (size_t)(tokens * (heads + KEYS));
  char *in = zeros(rows * (size_t)dim * size), *out = zeros(rows * (size_t)dim * size);
  const size_t keys = (size_t)(tokens * heads * dim) * size;
  void *table = zeros((size_t)(tokens * rotary_dim / 2) * 4);
  int64_t *ids = zeros((size_t)tokens * 8);
  tigon_rope_args args = {.q = tigon_tensor_4d(in, dtype, 1, tokens, heads, dim),
                          .k = tigon_tensor_4d(in + keys, dtype, 1, tokens, KEYS, dim),
                          .q_out = tigon_tensor_4d(out, dtype, 1, tokens, heads, dim),
                          .k_out = tigon_tensor_4d(out + keys, dtype, 1, tokens, KEYS, dim),
                          .cos = tigon_tensor_2d(table, table_dtype, tokens, rotary_dim / 2),
                          .sin = tigon_tensor_2d(table, table_dtype, tokens, rotary_dim / 2),
                          .layout = layout,
                          .rotary_dim = rotary_dim};
  if (positions) args.positions = tigon_tensor_2d(ids, TIGON_I64, 1, tokens);
  begin(context);
  succeeds(context, tigon_rope_fwd(context, &args));
  expect_launch(context, "rope");
  assert_int_equal(counters(context)->bytes_stored, rows * (size_t)dim * size);
  free(in), free(out), free(table), free(ids);
}

static void rope_moves_what_was_predicted(void **state) {
  (void)state;
  static const tigon_dtype dtypes[][2] = {{TIGON_F32, TIGON_F32}, {TIGON_BF16, TIGON_F32}, {TIGON_BF16, TIGON_BF16}};
  for (int part = 0; part < PARTS; ++part) {
    tigon_context *context = open_part(part);
    for (int d = 0; d < 3; ++d)
      for (int positions = 0; positions <= 1; ++positions) {
        const tigon_dtype dtype = dtypes[d][0], table = dtypes[d][1];
        run_rope(context, dtype, table, 130, 8, 128, 128, TIGON_ROPE_HALF, positions);
        run_rope(context, dtype, table, 37, 3, 42, 42, TIGON_ROPE_HALF, positions);
        run_rope(context, dtype, table, 37, 3, 42, 26, TIGON_ROPE_HALF, positions);
        run_rope(context, dtype, table, 1, 40, 64, 64, TIGON_ROPE_INTERLEAVED, positions);
      }
    tigon_context_destroy(context);
  }
}

/* ---- embedding backward ---- */

/* Indices spread evenly over the table, as the planner takes them. */
static void run_embedding_bwd(tigon_context *context, tigon_dtype dtype, tigon_dtype idx_dtype, int64_t positions,
                              int64_t cols, int64_t vocab) {
  const size_t size = tigon_dtype_size(dtype);
  int64_t *wide = zeros((size_t)positions * 8);
  int32_t *narrow = zeros((size_t)positions * 4);
  void *dy = zeros((size_t)(positions * cols) * size), *dtable = zeros((size_t)(vocab * cols) * size);
  for (int64_t i = 0; i < positions; ++i) narrow[i] = (int32_t)(wide[i] = i * vocab / positions);
  tigon_embedding_bwd_args args = {
      .dy = tigon_tensor_2d(dy, dtype, positions, cols),
      .idx = tigon_tensor_1d(idx_dtype == TIGON_I64 ? (void *)wide : narrow, idx_dtype, positions),
      .dtable = tigon_tensor_2d(dtable, dtype, vocab, cols)};
  succeeds(context, tigon_embedding_bwd_workspace(context, &args, &args.workspace_bytes));
  succeeds(context, tigon_alloc(context, args.workspace_bytes, &args.workspace));
  begin(context);
  succeeds(context, tigon_embedding_bwd(context, &args));
  expect_launch(context, "embedding bwd");
  assert_int_equal(counters(context)->bytes_stored, (size_t)(vocab * cols) * size);
  tigon_free(context, args.workspace);
  free(wide), free(narrow), free(dy), free(dtable);
}

static void embedding_bwd_moves_what_was_predicted(void **state) {
  (void)state;
  /* Positions, columns, table rows: more positions than a core lists at a time, fewer than cores, more ranges. */
  static const int64_t shapes[][3] = {{700, 300, 911}, {9000, 16, 900}, {20, 64, 500},
                                      {2000, 8, 7000}, {64, 512, 64},   {0, 40, 700}};
  static const tigon_dtype dtypes[][2] = {{TIGON_F32, TIGON_I32}, {TIGON_BF16, TIGON_I64}};
  for (int part = 0; part < PARTS; ++part) {
    tigon_context *context = open_part(part);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; ++s)
      for (int d = 0; d < 2; ++d)
        run_embedding_bwd(context, dtypes[d][0], dtypes[d][1], shapes[s][0], shapes[s][1], shapes[s][2]);
    tigon_context_destroy(context);
  }
}

/* One index, again and again: more positions than are sorted at a time, and a sum that stays exact where it can be. */
static void embedding_sums_a_long_row(void **state) {
  (void)state;
  enum { POSITIONS = 9000, COLS = 5, VOCAB = 7, HOT = 4 };
  for (int part = 0; part < PARTS; ++part)
    for (int accumulate = 0; accumulate < 2; ++accumulate) {
      tigon_context *context = open_part(part);
      int32_t *idx = zeros(POSITIONS * 4);
      float *dy = zeros(POSITIONS * COLS * 4), *dtable = zeros(VOCAB * COLS * 4);
      for (int i = 0; i < POSITIONS; ++i) {
        idx[i] = i % 10 == 3 ? i % VOCAB : HOT;
        for (int c = 0; c < COLS; ++c) dy[i * COLS + c] = (float)(i % 16);
      }
      float expected[VOCAB] = {0};
      for (int i = 0; i < POSITIONS; ++i) expected[idx[i]] += (float)(i % 16);
      for (int i = 0; i < VOCAB * COLS; ++i) dtable[i] = 2;
      tigon_embedding_bwd_args args = {.dy = tigon_tensor_2d(dy, TIGON_F32, POSITIONS, COLS),
                                       .idx = tigon_tensor_1d(idx, TIGON_I32, POSITIONS),
                                       .dtable = tigon_tensor_2d(dtable, TIGON_F32, VOCAB, COLS),
                                       .accumulate_dtable = accumulate};
      succeeds(context, tigon_embedding_bwd_workspace(context, &args, &args.workspace_bytes));
      succeeds(context, tigon_alloc(context, args.workspace_bytes, &args.workspace));
      succeeds(context, tigon_embedding_bwd(context, &args));
      for (int i = 0; i < VOCAB * COLS; ++i)
        assert_float_equal(dtable[i], expected[i / COLS] + (accumulate ? 2 : 0), 0);
      tigon_free(context, args.workspace);
      free(idx), free(dy), free(dtable);
      tigon_context_destroy(context);
    }
}

/* ---- vocab_parallel_cross_entropy merge ---- */

/* A shard of 10 classes, whose logits are 0, and every third one a shard of -Inf; the label is a class of shard 0. */
static void run_merge(tigon_context *context, int64_t rows, int64_t shards, tigon_reduction reduction, bool entropy) {
  float *stats = zeros((size_t)(shards * rows) * 20), *out = zeros((size_t)rows * 16), loss = 0;
  int32_t *labels = zeros((size_t)rows * 4);
  int64_t seen = 0;
  for (int64_t k = 0; k < shards; ++k) {
    const bool masked = k % 3 == 2;
    for (int64_t r = 0; r < rows; ++r) stats[5 * (k * rows + r)] = masked ? -INFINITY : 0;
    for (int64_t r = 0; r < rows; ++r) stats[5 * (k * rows + r) + 1] = masked ? 0 : 10;
    seen += masked ? 0 : 10;
  }
  for (int64_t r = 0; r < rows; ++r) labels[r] = (int32_t)(r % 10);
  tigon_vocab_parallel_cross_entropy_merge_args args = {
      .stats = tigon_tensor_3d(stats, TIGON_F32, shards, rows, TIGON_VOCAB_STATS),
      .labels = tigon_tensor_1d(labels, TIGON_I32, rows),
      .options = {.vocab = 10 * shards, .reduction = reduction},
      .out = {.token_loss = tigon_tensor_1d(out, TIGON_F32, rows),
              .lse = tigon_tensor_1d(out + rows, TIGON_F32, rows)}};
  if (reduction != TIGON_REDUCTION_NONE) args.out.loss = tigon_tensor_1d(&loss, TIGON_F32, 1);
  if (entropy) args.out.entropy = tigon_tensor_1d(out + 2 * rows, TIGON_F32, rows);
  succeeds(context, tigon_vocab_parallel_cross_entropy_merge_workspace(context, &args, &args.workspace_bytes));
  succeeds(context, tigon_alloc(context, args.workspace_bytes, &args.workspace));
  begin(context);
  succeeds(context, tigon_vocab_parallel_cross_entropy_merge(context, &args));
  if (reduction == TIGON_REDUCTION_NONE)
    expect_launch(context, "merge");
  else
    expect_bytes(context, only_plan(context), "merge"); /* launches of totals have UB and blocks of their own */
  const double log_sum = log((double)seen);
  for (int64_t r = 0; r < rows; ++r) {
    assert_float_equal(out[r], log_sum, 1e-5);
    assert_float_equal(out[rows + r], log_sum, 1e-5);
    if (entropy) assert_float_equal(out[2 * rows + r], log_sum, 1e-5);
  }
  if (reduction == TIGON_REDUCTION_MEAN) assert_float_equal(loss, log_sum, 1e-5);
  tigon_free(context, args.workspace);
  free(stats), free(out), free(labels);
}

/* Rows of one core, of all, of several tiles of each; more shards than any machine has ranks. */
static void merge_moves_what_was_predicted(void **state) {
  (void)state;
  static const int64_t shapes[][2] = {{1, 1}, {7, 3}, {65, 2}, {5000, 8}, {9, 1000}, {70001, 2}};
  for (int part = 0; part < PARTS; ++part) {
    tigon_context *context = open_part(part);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; ++s)
      for (tigon_reduction reduction = TIGON_REDUCTION_MEAN; reduction <= TIGON_REDUCTION_NONE; ++reduction)
        run_merge(context, shapes[s][0], shapes[s][1], reduction, s % 2 > 0);
    tigon_context_destroy(context);
  }
}

/* No rows, and rows of no shard: these are as rows of -Inf alone. */
static void merge_of_nothing(void **state) {
  (void)state;
  tigon_context *context = open_part(0);
  float none[5] = {0}, token_loss[2] = {7, 7}, lse[2] = {7, 7}, loss = 7;
  int64_t labels[2] = {0, -1};
  for (int64_t rows = 0; rows <= 2; rows += 2) {
    tigon_vocab_parallel_cross_entropy_merge_args args = {
        .stats = tigon_tensor_3d(none, TIGON_F32, rows ? 0 : 1, rows, TIGON_VOCAB_STATS),
        .labels = tigon_tensor_1d(labels, TIGON_I64, rows),
        .options = {.vocab = 1, .has_ignore_index = 1, .ignore_index = -1},
        .out = {.loss = tigon_tensor_1d(&loss, TIGON_F32, 1),
                .token_loss = tigon_tensor_1d(token_loss, TIGON_F32, rows),
                .lse = tigon_tensor_1d(lse, TIGON_F32, rows)}};
    succeeds(context, tigon_vocab_parallel_cross_entropy_merge_workspace(context, &args, &args.workspace_bytes));
    succeeds(context, tigon_alloc(context, args.workspace_bytes, &args.workspace));
    succeeds(context, tigon_vocab_parallel_cross_entropy_merge(context, &args));
    assert_true(rows ? loss == -INFINITY : loss == 0);
    tigon_free(context, args.workspace);
  }
  assert_true(token_loss[0] == -INFINITY && token_loss[1] == 0 && lse[0] == -INFINITY && lse[1] == -INFINITY);
  tigon_context_destroy(context);
}

/* ---- adamw ---- */

/* With an f32 master and without. */
static void adamw_step_moves_what_was_predicted(void **state) {
  (void)state;
  enum { ELEMENTS = 100003 };
  static const tigon_dtype dtypes[] = {TIGON_F32, TIGON_BF16};
  for (int part = 0; part < PARTS; ++part)
    for (int d = 0; d < 4; ++d) {
      tigon_context *context = open_part(part);
      void *memory[5];
      tigon_tensor t[5];
      for (int i = 0; i < 5; ++i) {
        memory[i] = zeros(ELEMENTS * 4);
        t[i] = tigon_tensor_1d(memory[i], i < 2 ? dtypes[d / 2] : TIGON_F32, ELEMENTS);
      }
      tigon_adamw_param param = {.param = t[0], .grad = t[1], .exp_avg = t[2], .exp_avg_sq = t[3]};
      if (d % 2 > 0) param.master = t[4];
      const tigon_adamw_step_args step = {
          .params = &param, .count = 1, .lr = 1, .beta1 = 0.5, .beta2 = 0.5, .eps = 1e-8, .step = 1};
      begin(context);
      succeeds(context, tigon_adamw_step(context, &step));
      expect_launch(context, "adamw step");
      for (int i = 0; i < 5; ++i) free(memory[i]);
      tigon_context_destroy(context);
    }
}

static void adamw_clip_moves_what_was_predicted(void **state) {
  (void)state;
  static const int64_t elements[] = {1500000, 130};
  static const tigon_dtype dtypes[] = {TIGON_F32, TIGON_BF16};
  for (int part = 0; part < PARTS; ++part)
    for (int d = 0; d < 4; ++d) {
      tigon_context *context = open_part(part);
      void *memory = zeros((size_t)elements[d / 2] * 4);
      float one[2];
      const tigon_tensor grad = tigon_tensor_1d(memory, dtypes[d % 2], elements[d / 2]);
      tigon_adamw_clip_args clip = {.grads = &grad,
                                    .count = 1,
                                    .max_norm = 1,
                                    .norm = tigon_tensor_1d(&one[0], TIGON_F32, 1),
                                    .factor = tigon_tensor_1d(&one[1], TIGON_F32, 1)};
      succeeds(context, tigon_adamw_clip_workspace(context, &clip, &clip.workspace_bytes));
      succeeds(context, tigon_alloc(context, clip.workspace_bytes, &clip.workspace));
      begin(context);
      succeeds(context, tigon_adamw_clip(context, &clip));
      expect_launch(context, "adamw clip");
      tigon_free(context, clip.workspace);
      free(memory);
      tigon_context_destroy(context);
    }
}

/* A list of more tensors than one launch takes: each element moves once, and the norm is that of all of them. */
static void adamw_moves_each_element_once(void **state) {
  (void)state;
  enum { TENSORS = 40, LARGEST = 5000 };
  for (int part = 0; part < PARTS; ++part) {
    tigon_context *context = open_part(part);
    const tigon_sim_counters *counted = counters(context);
    float *memory[4], one[2], sum = 0;
    for (int i = 0; i < 4; ++i) memory[i] = zeros(TENSORS * LARGEST * 4);
    tigon_adamw_param params[TENSORS];
    tigon_tensor grads[TENSORS];
    int64_t elements = 0;
    for (int i = 0; i < TENSORS; ++i) {
      const int64_t n = i * 7919 % LARGEST;
      tigon_tensor t[4];
      for (int k = 0; k < 4; ++k) t[k] = tigon_tensor_1d(memory[k] + (size_t)i * LARGEST, TIGON_F32, n);
      params[i] = (tigon_adamw_param){.param = t[0], .grad = t[1], .exp_avg = t[2], .exp_avg_sq = t[3]};
      grads[i] = t[1];
      elements += n;
      if (n > 0) ((float *)t[1].data)[n - 1] = 3, sum += 9;
    }
    const tigon_adamw_step_args step = {
        .params = params, .count = TENSORS, .lr = 1, .beta1 = 0.5, .beta2 = 0.5, .eps = 1e-8, .step = 1};
    tigon_sim_reset(ascend_of(&context->queue)->sim);
    succeeds(context, tigon_adamw_step(context, &step));
    assert_int_equal(counted->bytes_loaded, elements * 4 * 4);
    assert_int_equal(counted->bytes_stored, elements * 3 * 4);
    for (int i = 0; i < TENSORS; ++i)
      for (int64_t e = 0; e < params[i].param.shape[0]; ++e)
        assert_float_equal(((float *)params[i].param.data)[e], e + 1 == params[i].param.shape[0] ? -1 : 0, 1e-6);
    tigon_adamw_clip_args clip = {.grads = grads,
                                  .count = TENSORS,
                                  .max_norm = 1,
                                  .norm = tigon_tensor_1d(&one[0], TIGON_F32, 1),
                                  .factor = tigon_tensor_1d(&one[1], TIGON_F32, 1)};
    succeeds(context, tigon_adamw_clip_workspace(context, &clip, &clip.workspace_bytes));
    succeeds(context, tigon_alloc(context, clip.workspace_bytes, &clip.workspace));
    tigon_sim_reset(ascend_of(&context->queue)->sim);
    succeeds(context, tigon_adamw_clip(context, &clip));
    /* Three launches, of which each leaves the cores' sums and two find some; one joins them. */
    const int64_t sums = context->device->cores * 16;
    assert_int_equal(counted->bytes_loaded, elements * 4 + 3 * sums);
    assert_int_equal(counted->bytes_stored, 3 * sums + 8);
    assert_float_equal(one[0], sqrtf(sum), 1e-4);
    assert_float_equal(one[1], 1 / sqrtf(sum), 1e-6);
    tigon_free(context, clip.workspace);
    for (int i = 0; i < 4; ++i) free(memory[i]);
    tigon_context_destroy(context);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rope_moves_what_was_predicted),  cmocka_unit_test(embedding_bwd_moves_what_was_predicted),
      cmocka_unit_test(embedding_sums_a_long_row),      cmocka_unit_test(adamw_step_moves_what_was_predicted),
      cmocka_unit_test(adamw_moves_each_element_once),  cmocka_unit_test(adamw_clip_moves_what_was_predicted),
      cmocka_unit_test(merge_moves_what_was_predicted), cmocka_unit_test(merge_of_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
