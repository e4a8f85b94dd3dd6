/* Ascend kernels whose launches no plan cuts, rope, embedding backward and adamw, in the simulator: they move what
 * the planner predicts, and a list of tensors, which it does not see, each element once. Results are `tigon check
 * --device ascend-sim:910B4`'s. */
#include <math.h>

#include "ascend/traffic.h"

/* ---- rope ---- */

/* Heads of queries and keys are the columns. A token's are turned by one block, so that no plan splits them. */
static void ask_rope(const tigon_context *context, const tigon_rope_args *args, tigon_plan *plan) {
  const int64_t *q = args->q.shape;
  tigon_footprint footprint;
  assert_true(tigon_footprint_find("rope", "fwd", args->q.dtype, &footprint));
  footprint.row_table_bytes = (int)tigon_dtype_size(args->cos.dtype);
  if (!args->positions.data) footprint.row_scalars_in = 0;
  const tigon_plan_request request = {.footprint = &footprint,
                                      .device = context->device,
                                      .rows = q[0] * q[1],
                                      .cols = (q[2] + args->k.shape[2]) * q[3],
                                      .cases = ~TIGON_CASE_BIT(TIGON_CASE_F),
                                      .col_unit = q[3],
                                      .table_cols = (args->rotary_dim ? args->rotary_dim : q[3]) / 2};
  assert_int_equal(tigon_plan_make(&request, plan), TIGON_OK);
  tigon_sim_reset(ascend_of(&context->queue)->sim);
}

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
  tigon_plan plan;
  ask_rope(context, &args, &plan);
  assert_int_equal(plan.bytes_moved, plan.bytes_min);
  succeeds(context, tigon_rope_fwd(context, &args));
  expect_bytes(context, &plan, "rope");
  assert_int_equal(counters(context)->bytes_stored, rows * (size_t)dim * size);
  assert_true(counters(context)->ub_bytes <= context->device->onchip_bytes);
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
  tigon_footprint footprint;
  assert_true(tigon_footprint_find("embedding", "bwd", dtype, &footprint));
  footprint.row_scalars_in = (int)tigon_dtype_size(idx_dtype) / 4;
  const tigon_plan_request request = {
      .footprint = &footprint, .device = context->device, .rows = positions, .cols = cols, .out_rows = vocab};
  tigon_plan plan;
  assert_int_equal(tigon_plan_make(&request, &plan), TIGON_OK);
  assert_int_equal(plan.bytes_moved, plan.bytes_min);
  tigon_sim_reset(ascend_of(&context->queue)->sim);
  succeeds(context, tigon_embedding_bwd(context, &args));
  expect_bytes(context, &plan, "embedding bwd");
  assert_int_equal(counters(context)->bytes_stored, (size_t)(vocab * cols) * size);
  assert_true(counters(context)->ub_bytes <= context->device->onchip_bytes);
  tigon_free(context, args.workspace);
  free(wide), free(narrow), free(dy), free(dtable);
}

static void embedding_bwd_moves_what_was_predicted(void **state) {
  (void)state;
  /* Positions, columns, table rows: more positions than a core lists at a time, fewer than cores, more ranges. */
  static const int64_t shapes[][3] = {{700, 300, 911}, {9000, 16, 900}, {20, 64, 500}, {2000, 8, 7000}, {64, 512, 64}};
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

/* ---- adamw ---- */

/* adamw's launches are not the plan's, but move what it says. 16-bit parameters have an f32 master. */
static void adamw_step_moves_what_was_predicted(void **state) {
  (void)state;
  enum { ELEMENTS = 100003 };
  static const tigon_dtype dtypes[] = {TIGON_F32, TIGON_BF16};
  for (int part = 0; part < PARTS; ++part)
    for (int d = 0; d < 2; ++d) {
      tigon_context *context = open_part(part);
      void *memory[5];
      tigon_tensor t[5];
      for (int i = 0; i < 5; ++i) {
        memory[i] = zeros(ELEMENTS * 4);
        t[i] = tigon_tensor_1d(memory[i], i < 2 ? dtypes[d] : TIGON_F32, ELEMENTS);
      }
      tigon_adamw_param param = {.param = t[0], .grad = t[1], .exp_avg = t[2], .exp_avg_sq = t[3]};
      if (d > 0) param.master = t[4];
      const tigon_adamw_step_args step = {
          .params = &param, .count = 1, .lr = 1, .beta1 = 0.5, .beta2 = 0.5, .eps = 1e-8, .step = 1};
      tigon_plan plan;
      ask(context, "adamw", "step", dtypes[d], 1, ELEMENTS, &plan);
      succeeds(context, tigon_adamw_step(context, &step));
      expect_bytes(context, &plan, "adamw step");
      for (int i = 0; i < 5; ++i) free(memory[i]);
      tigon_context_destroy(context);
    }
}

/* clip is split over all cores, the plan over as many as pay: what a split hands over is the same. */
static void adamw_clip_moves_what_was_predicted(void **state) {
  (void)state;
  enum { ELEMENTS = 1500000 };
  static const tigon_dtype dtypes[] = {TIGON_F32, TIGON_BF16};
  for (int part = 0; part < PARTS; ++part)
    for (int d = 0; d < 2; ++d) {
      tigon_context *context = open_part(part);
      void *memory = zeros(ELEMENTS * 4);
      float one[2];
      const tigon_tensor grad = tigon_tensor_1d(memory, dtypes[d], ELEMENTS);
      tigon_adamw_clip_args clip = {.grads = &grad,
                                    .count = 1,
                                    .max_norm = 1,
                                    .norm = tigon_tensor_1d(&one[0], TIGON_F32, 1),
                                    .factor = tigon_tensor_1d(&one[1], TIGON_F32, 1)};
      succeeds(context, tigon_adamw_clip_workspace(context, &clip, &clip.workspace_bytes));
      succeeds(context, tigon_alloc(context, clip.workspace_bytes, &clip.workspace));
      tigon_plan plan;
      ask(context, "adamw", "clip", dtypes[d], 1, ELEMENTS, &plan);
      plan.bytes_extra = plan.bytes_extra / plan.splits * context->device->cores;
      succeeds(context, tigon_adamw_clip(context, &clip));
      expect_bytes(context, &plan, "adamw clip");
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
      cmocka_unit_test(rope_moves_what_was_predicted), cmocka_unit_test(embedding_bwd_moves_what_was_predicted),
      cmocka_unit_test(embedding_sums_a_long_row),     cmocka_unit_test(adamw_step_moves_what_was_predicted),
      cmocka_unit_test(adamw_moves_each_element_once), cmocka_unit_test(adamw_clip_moves_what_was_predicted),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
