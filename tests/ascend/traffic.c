/* Ascend kernels in the simulator. The planner's prediction equals the bytes that move, and no more UB is taken than it counted.
 * The test runs every case that fits, on parts of every size. Results are `tigon check --device ascend-sim:910B4`'s.
 * ctest: slow */
#include <math.h>
#include <string.h>

#include "ascend/traffic.h"
#include "core/half.h"

static const int64_t shapes[][2] = {{1, 3},     {37, 41},   {64, 123},  {301, 512},  {96, 2163},
                                    {50, 4096}, {7, 16384}, {45, 7168}, {3, 100000}, {1, 300000}};
enum { SHAPES = sizeof shapes / sizeof *shapes };
enum { GATED = 160000 }; /* elements; gates take many calls for each */

/* group_norm: batch, groups, channels of one, positions. Runs that tiles cut, that begin anywhere in UB, of one position; one group;
 * rows of many groups in a task. */
static const int64_t grouped[][4] = {{1, 1, 1, 3},      {3, 5, 4, 7},      {40, 16, 2, 64},  {2, 21, 3, 2163},
                                     {16, 12, 4, 1024}, {9, 3, 77, 1},     {1, 32, 1, 4096}, {2, 2, 4, 9000},
                                     {1, 1, 9000, 4},   {1, 1, 3, 100003}, {45, 4, 8, 56},   {2, 1, 40000, 1}};
enum { GROUPED = sizeof grouped / sizeof *grouped };

/* What the sum over slabs takes, whatever the plan: five vectors of a task's columns. */
static int64_t second_stage(const tigon_context *context, const tigon_plan *plan, int64_t run) {
  const int64_t cores = context->device->cores, cols = plan->cols / run * plan->groups;
  const int64_t chunk = round_up((cols + cores - 1) / cores, 128);
  return plan->slabs ? 5 * 4 * least(chunk, 2048) : 0;
}

static void expect_runs(const tigon_context *context, const tigon_plan *plan, int64_t run, const char *what) {
  expect_bytes(context, plan, what);
  const tigon_sim_counters *counted = counters(context);
  const int64_t second = second_stage(context, plan, run);
  if (counted->ub_bytes > (second > plan->onchip_bytes ? second : plan->onchip_bytes))
    fail_msg("%s %lldx%lld, case %c: took %lld bytes of UB, predicted %lld (%s)", what, (long long)plan->rows,
             (long long)plan->cols, tigon_plan_case_letter(plan->cut), (long long)counted->ub_bytes,
             (long long)plan->onchip_bytes, plan->reason);
}

static void expect(const tigon_context *context, const tigon_plan *plan, const char *what) {
  expect_runs(context, plan, 1, what);
}

static void run_rms_norm_of(tigon_context *context, tigon_dtype dtype, int64_t rows, int64_t cols,
                            void *const tensor[4], void *w, float *dw, float *rstd, bool gated) {
  tigon_plan plan;
  const tigon_tensor z = gated ? tigon_tensor_2d(tensor[3], dtype, rows, cols) : (tigon_tensor){0};
  const tigon_tensor x = tigon_tensor_2d(tensor[0], dtype, rows, cols),
                     y = tigon_tensor_2d(tensor[1], dtype, rows, cols);
  const tigon_rms_norm_fwd_args fwd = {.x = x,
                                       .w = tigon_tensor_1d(w, dtype, cols),
                                       .y = y,
                                       .rstd = tigon_tensor_1d(rstd, TIGON_F32, rows),
                                       .z = z,
                                       .eps = 1e-6};
  ask(context, "rms_norm", gated ? "fwd_gate" : "fwd", dtype, rows, cols, &plan);
  succeeds(context, tigon_rms_norm_fwd(context, &fwd));
  expect(context, &plan, gated ? "rms_norm fwd, gated" : "rms_norm fwd");
  tigon_rms_norm_bwd_args bwd = {.dy = y,
                                 .x = x,
                                 .w = fwd.w,
                                 .rstd = fwd.rstd,
                                 .dx = tigon_tensor_2d(tensor[2], dtype, rows, cols),
                                 .dw = tigon_tensor_1d(dw, TIGON_F32, cols),
                                 .z = z,
                                 .dz = z};
  succeeds(context, tigon_rms_norm_bwd_workspace(context, &bwd, &bwd.workspace_bytes));
  succeeds(context, tigon_alloc(context, bwd.workspace_bytes, &bwd.workspace));
  ask(context, "rms_norm", gated ? "bwd_gate" : "bwd", dtype, rows, cols, &plan);
  succeeds(context, tigon_rms_norm_bwd(context, &bwd));
  expect(context, &plan, gated ? "rms_norm bwd, gated" : "rms_norm bwd");
  tigon_free(context, bwd.workspace);
}

static void run_rms_norm_quantised(tigon_context *context, tigon_dtype dtype, int64_t rows, int64_t cols,
                                   void *const tensor[4], void *w, float *scale, bool gated) {
  tigon_plan plan;
  const tigon_rms_norm_quantised_args args = {
      .x = tigon_tensor_2d(tensor[0], dtype, rows, cols),
      .w = tigon_tensor_1d(w, dtype, cols),
      .z = gated ? tigon_tensor_2d(tensor[3], dtype, rows, cols) : (tigon_tensor){0},
      .q = tigon_tensor_2d(tensor[1], gated ? TIGON_I8 : TIGON_F8E4M3, rows, cols),
      .scale = tigon_tensor_1d(scale, TIGON_F32, rows),
      .eps = 1e-6};
  ask(context, "rms_norm", gated ? "quantised_gate" : "quantised", dtype, rows, cols, &plan);
  succeeds(context, tigon_rms_norm_quantised(context, &args));
  expect(context, &plan, gated ? "rms_norm quantised, gated" : "rms_norm quantised");
}

static void run_rms_norm(tigon_context *context, tigon_dtype dtype, int64_t rows, int64_t cols, void *const tensor[4],
                         void *w, float *dw, float *rstd) {
  run_rms_norm_of(context, dtype, rows, cols, tensor, w, dw, rstd, false);
  run_rms_norm_of(context, dtype, rows, cols, tensor, w, dw, rstd, true);
}

static void run_fused_add(tigon_context *context, tigon_dtype dtype, int64_t rows, int64_t cols, void *const tensor[4],
                          void *w, float *dw, float *rstd) {
  tigon_plan plan;
  tigon_tensor t[4];
  for (int i = 0; i < 4; ++i) t[i] = tigon_tensor_2d(tensor[i], dtype, rows, cols);
  const tigon_fused_add_rms_norm_fwd_args fwd = {.x = t[0],
                                                 .residual = t[1],
                                                 .w = tigon_tensor_1d(w, dtype, cols),
                                                 .s = t[2],
                                                 .y = t[3],
                                                 .rstd = tigon_tensor_1d(rstd, TIGON_F32, rows),
                                                 .eps = 1e-6};
  ask(context, "fused_add_rms_norm", "fwd", dtype, rows, cols, &plan);
  succeeds(context, tigon_fused_add_rms_norm_fwd(context, &fwd));
  expect(context, &plan, "fused_add_rms_norm fwd");
  tigon_fused_add_rms_norm_bwd_args bwd = {.dy = t[0],
                                           .ds = t[1],
                                           .s = t[2],
                                           .w = fwd.w,
                                           .rstd = fwd.rstd,
                                           .dx = t[3],
                                           .dw = tigon_tensor_1d(dw, TIGON_F32, cols)};
  succeeds(context, tigon_fused_add_rms_norm_bwd_workspace(context, &bwd, &bwd.workspace_bytes));
  succeeds(context, tigon_alloc(context, bwd.workspace_bytes, &bwd.workspace));
  ask(context, "fused_add_rms_norm", "bwd", dtype, rows, cols, &plan);
  succeeds(context, tigon_fused_add_rms_norm_bwd(context, &bwd));
  expect(context, &plan, "fused_add_rms_norm bwd");
  tigon_free(context, bwd.workspace);
}

static void run_layer_norm(tigon_context *context, tigon_dtype dtype, int64_t rows, int64_t cols, void *const tensor[4],
                           void *w, float *dw, float *rstd) {
  tigon_plan plan;
  float *mean = zeros((size_t)rows * 4), *db = zeros((size_t)cols * 4);
  const tigon_layer_norm_fwd_args fwd = {.x = tigon_tensor_2d(tensor[0], dtype, rows, cols),
                                         .w = tigon_tensor_1d(w, dtype, cols),
                                         .b = tigon_tensor_1d(w, dtype, cols),
                                         .y = tigon_tensor_2d(tensor[1], dtype, rows, cols),
                                         .mean = tigon_tensor_1d(mean, TIGON_F32, rows),
                                         .rstd = tigon_tensor_1d(rstd, TIGON_F32, rows),
                                         .eps = 1e-6};
  ask(context, "layer_norm", "fwd", dtype, rows, cols, &plan);
  succeeds(context, tigon_layer_norm_fwd(context, &fwd));
  expect(context, &plan, "layer_norm fwd");
  tigon_layer_norm_bwd_args bwd = {.dy = fwd.y,
                                   .x = fwd.x,
                                   .w = fwd.w,
                                   .mean = fwd.mean,
                                   .rstd = fwd.rstd,
                                   .dx = tigon_tensor_2d(tensor[2], dtype, rows, cols),
                                   .dw = tigon_tensor_1d(dw, TIGON_F32, cols),
                                   .db = tigon_tensor_1d(db, TIGON_F32, cols)};
  succeeds(context, tigon_layer_norm_bwd_workspace(context, &bwd, &bwd.workspace_bytes));
  succeeds(context, tigon_alloc(context, bwd.workspace_bytes, &bwd.workspace));
  ask(context, "layer_norm", "bwd", dtype, rows, cols, &plan);
  succeeds(context, tigon_layer_norm_bwd(context, &bwd));
  expect(context, &plan, "layer_norm bwd");
  tigon_free(context, bwd.workspace);
  free(mean), free(db);
}

static void plan_groups(tigon_context *context, const char *entry, tigon_dtype dtype, int64_t rows, int64_t cols,
                        int64_t groups, int64_t run, tigon_plan *plan) {
  const tigon_plan_request call = {
      .op = "group_norm", .entry = entry, .dtype = dtype, .rows = rows, .cols = cols, .groups = groups, .run = run};
  assert_int_equal(ascend_plan(&context->queue, &call, plan), TIGON_OK);
}

static void run_group_norm(tigon_context *context, tigon_dtype dtype, int64_t batch, int64_t groups, int64_t channels,
                           int64_t run) {
  const int64_t rows = batch * groups, cols = channels * run, all = groups * channels;
  tigon_plan plan;
  void *memory[3], *w = zeros((size_t)all * 4), *sums[2] = {zeros((size_t)all * 4), zeros((size_t)all * 4)},
                   *words[2] = {zeros((size_t)rows * 4), zeros((size_t)rows * 4)};
  tigon_tensor t[3];
  for (int i = 0; i < 3; ++i) {
    memory[i] = zeros((size_t)(rows * cols) * tigon_dtype_size(dtype));
    t[i] = tigon_tensor_3d(memory[i], dtype, batch, all, run);
  }
  const tigon_tensor mean = tigon_tensor_2d(words[0], TIGON_F32, batch, groups),
                     rstd = tigon_tensor_2d(words[1], TIGON_F32, batch, groups),
                     weight = tigon_tensor_1d(w, dtype, all);
  const tigon_group_norm_fwd_args fwd = {
      .x = t[0], .w = weight, .b = weight, .y = t[1], .mean = mean, .rstd = rstd, .groups = groups, .eps = 1e-6};
  plan_groups(context, "fwd", dtype, rows, cols, groups, run, &plan);
  tigon_sim_reset(ascend_of(&context->queue)->sim);
  succeeds(context, tigon_group_norm_fwd(context, &fwd));
  expect_runs(context, &plan, run, "group_norm fwd");
  tigon_group_norm_bwd_args bwd = {.dy = t[1],
                                   .x = t[0],
                                   .w = weight,
                                   .mean = mean,
                                   .rstd = rstd,
                                   .dx = t[2],
                                   .dw = tigon_tensor_1d(sums[0], TIGON_F32, all),
                                   .db = tigon_tensor_1d(sums[1], TIGON_F32, all),
                                   .groups = groups};
  succeeds(context, tigon_group_norm_bwd_workspace(context, &bwd, &bwd.workspace_bytes));
  succeeds(context, tigon_alloc(context, bwd.workspace_bytes, &bwd.workspace));
  plan_groups(context, "bwd", dtype, rows, cols, groups, run, &plan);
  tigon_sim_reset(ascend_of(&context->queue)->sim);
  succeeds(context, tigon_group_norm_bwd(context, &bwd));
  expect_runs(context, &plan, run, "group_norm bwd");
  tigon_free(context, bwd.workspace);
  for (int i = 0; i < 3; ++i) free(memory[i]);
  for (int i = 0; i < 2; ++i) free(sums[i]), free(words[i]);
  free(w);
}

static void run_softmax(tigon_context *context, tigon_dtype dtype, int64_t rows, int64_t cols, void *const tensor[],
                        void *mask) {
  tigon_plan plan;
  tigon_tensor t[3];
  for (int i = 0; i < 3; ++i) t[i] = tigon_tensor_2d(tensor[i], dtype, rows, cols);
  tigon_softmax_fwd_args forward = {.x = t[0], .y = t[2]};
  ask(context, "softmax", "fwd", dtype, rows, cols, &plan);
  succeeds(context, tigon_softmax_fwd(context, &forward));
  expect(context, &plan, "softmax fwd");
  forward.mask = t[1];
  ask(context, "softmax", "fwd_mask", dtype, rows, cols, &plan);
  succeeds(context, tigon_softmax_fwd(context, &forward));
  expect(context, &plan, "softmax fwd with a mask");
  forward.mask = tigon_tensor_2d(mask, TIGON_F32, rows, cols);
  ask(context, "softmax", dtype == TIGON_F32 ? "fwd_mask" : "fwd_mask_f32", dtype, rows, cols, &plan);
  succeeds(context, tigon_softmax_fwd(context, &forward));
  expect(context, &plan, "softmax fwd with a mask of f32");
  const tigon_softmax_bwd_args softmax = {.dy = t[0], .y = t[1], .dx = t[2]};
  ask(context, "softmax", "bwd", dtype, rows, cols, &plan);
  succeeds(context, tigon_softmax_bwd(context, &softmax));
  expect(context, &plan, "softmax bwd");
}

/* Rows whose largest x is all of their support: one round of tau, as is predicted of rows that do not stay on chip. */
static void run_sparsemax(tigon_context *context, tigon_dtype dtype, int64_t rows, int64_t cols, void *const tensor[]) {
  tigon_plan plan;
  tigon_tensor t[3];
  for (int i = 0; i < 3; ++i) t[i] = tigon_tensor_2d(tensor[i], dtype, rows, cols);
  for (int64_t r = 0; r < rows; ++r) tigon_store_f64(tensor[0], r * cols + r % cols, dtype, 9);
  const tigon_sparsemax_fwd_args fwd = {.x = t[0], .y = t[2]};
  ask(context, "sparsemax", "fwd", dtype, rows, cols, &plan);
  succeeds(context, tigon_sparsemax_fwd(context, &fwd));
  expect(context, &plan, "sparsemax fwd");
  for (int64_t r = 0; r < rows; ++r) tigon_store_f64(tensor[0], r * cols + r % cols, dtype, 0);
  const tigon_sparsemax_bwd_args bwd = {.dy = t[0], .y = t[1], .dx = t[2]};
  ask(context, "sparsemax", "bwd", dtype, rows, cols, &plan);
  succeeds(context, tigon_sparsemax_bwd(context, &bwd));
  expect(context, &plan, "sparsemax bwd");
}

/* Rows of tensors: all, which lie end to end and are handed over as one, or every other one. */
static int64_t elementwise_rows(tigon_tensor t[], tigon_dtype dtype, void *const tensor[], int count, int64_t rows,
                                int64_t cols, bool dense) {
  for (int i = 0; i < count; ++i) {
    t[i] = tigon_tensor_2d(tensor[i], dtype, dense ? rows : rows / 2, cols);
    if (!dense) t[i].strides[0] = 2 * cols;
  }
  return dense ? 1 : rows / 2;
}

static void run_relu(tigon_context *context, tigon_dtype dtype, int64_t all, int64_t width, void *const tensor[],
                     bool dense) {
  tigon_plan plan;
  tigon_tensor t[3];
  const int64_t rows = elementwise_rows(t, dtype, tensor, 3, all, width, dense), cols = dense ? all * width : width;
  const tigon_relu_squared_fwd_args fwd = {.x = t[0], .y = t[2]};
  ask(context, "relu_squared", "fwd", dtype, rows, cols, &plan);
  succeeds(context, tigon_relu_squared_fwd(context, &fwd));
  expect(context, &plan, "relu_squared fwd");
  const tigon_relu_squared_bwd_args bwd = {.dy = t[0], .x = t[1], .dx = t[2]};
  ask(context, "relu_squared", "bwd", dtype, rows, cols, &plan);
  succeeds(context, tigon_relu_squared_bwd(context, &bwd));
  expect(context, &plan, "relu_squared bwd");
}

static void run_gates(tigon_context *context, tigon_dtype dtype, int64_t all, int64_t width, void *const tensor[],
                      bool dense) {
  tigon_plan plan;
  tigon_tensor t[5];
  const int64_t rows = elementwise_rows(t, dtype, tensor, 5, all, width, dense), cols = dense ? all * width : width;
  const tigon_swiglu_fwd_args swiglu = {.a = t[0], .b = t[1], .c = t[2]};
  ask(context, "swiglu", "fwd", dtype, rows, cols, &plan);
  succeeds(context, tigon_swiglu_fwd(context, &swiglu));
  expect(context, &plan, "swiglu fwd");
  const tigon_swiglu_bwd_args back = {.dc = t[0], .a = t[1], .b = t[2], .da = t[3], .db = t[4], .clamp = 7};
  ask(context, "swiglu", "bwd", dtype, rows, cols, &plan);
  succeeds(context, tigon_swiglu_bwd(context, &back));
  expect(context, &plan, "swiglu bwd");
  for (tigon_gelu approx = TIGON_GELU_TANH; approx <= TIGON_GELU_ERF; ++approx) {
    const tigon_geglu_fwd_args fwd = {.a = t[0], .b = t[1], .c = t[2], .approx = approx};
    ask(context, "geglu", "fwd", dtype, rows, cols, &plan);
    succeeds(context, tigon_geglu_fwd(context, &fwd));
    expect(context, &plan, "geglu fwd");
    const tigon_geglu_bwd_args bwd = {.dc = t[0], .a = t[1], .b = t[2], .da = t[3], .db = t[4], .approx = approx};
    ask(context, "geglu", "bwd", dtype, rows, cols, &plan);
    succeeds(context, tigon_geglu_bwd(context, &bwd));
    expect(context, &plan, "geglu bwd");
  }
}

static void run_embedding(tigon_context *context, tigon_dtype dtype, int64_t rows, int64_t cols,
                          void *const tensor[4]) {
  tigon_plan plan;
  int64_t *idx = zeros((size_t)rows * 8);
  for (int64_t r = 0; r < rows; ++r) idx[r] = (r * 37 + 1) % rows;
  const tigon_embedding_fwd_args fwd = {.table = tigon_tensor_2d(tensor[0], dtype, rows, cols),
                                        .idx = tigon_tensor_1d(idx, TIGON_I64, rows),
                                        .y = tigon_tensor_2d(tensor[1], dtype, rows, cols)};
  ask(context, "embedding", "fwd", dtype, rows, cols, &plan);
  succeeds(context, tigon_embedding_fwd(context, &fwd));
  expect(context, &plan, "embedding fwd");
  free(idx);
}

/* The launches of totals have UB of their own, which the plan of the rows does not count. */
static void expect_loss(const tigon_context *context, tigon_reduction reduction, const char *what) {
  if (reduction == TIGON_REDUCTION_NONE)
    expect(context, only_plan(context), what);
  else
    expect_bytes(context, only_plan(context), what);
}

/* A loss, the loss with its gradient, and the gradient alone; what backward has of its own follows. `spare` has a number for each row,
 * twice. */
#define RUN_LOSS(op, context, fwd, rows, reduction, spare, gradient, to, ...)               \
  do {                                                                                      \
    const bool none = (reduction) == TIGON_REDUCTION_NONE;                                  \
    float loss;                                                                             \
    (fwd).options.reduction = (reduction);                                                  \
    if (none)                                                                               \
      (fwd).out.token_loss = tigon_tensor_1d(spare, TIGON_F32, rows);                       \
    else                                                                                    \
      (fwd).out.loss = tigon_tensor_1d(&loss, TIGON_F32, 1);                                \
    succeeds(context, tigon_##op##_fwd_workspace(context, &(fwd), &(fwd).workspace_bytes)); \
    succeeds(context, tigon_alloc(context, (fwd).workspace_bytes, &(fwd).workspace));       \
    begin(context);                                                                         \
    succeeds(context, tigon_##op##_fwd(context, &(fwd)));                                   \
    expect_loss(context, reduction, #op " fwd");                                            \
    (fwd).gradient = (to);                                                                  \
    begin(context);                                                                         \
    succeeds(context, tigon_##op##_fwd(context, &(fwd)));                                   \
    expect_loss(context, reduction, #op " fwd with its gradient");                          \
    tigon_##op##_bwd_args bwd = {.labels = (fwd).labels,                                    \
                                 .options = (fwd).options,                                  \
                                 .gradient = (to),                                          \
                                 .workspace = (fwd).workspace,                              \
                                 .workspace_bytes = (fwd).workspace_bytes,                  \
                                 __VA_ARGS__};                                              \
    if (none) bwd.dloss = tigon_tensor_1d((spare) + (rows), TIGON_F32, rows);               \
    begin(context);                                                                         \
    succeeds(context, tigon_##op##_bwd(context, &bwd));                                     \
    expect_loss(context, reduction, #op " bwd");                                            \
    tigon_free(context, (fwd).workspace);                                                   \
  } while (0)

static void run_loss(tigon_context *context, tigon_dtype dtype, int64_t rows, int64_t cols, void *const tensor[4],
                     tigon_reduction reduction) {
  int64_t *labels = zeros((size_t)rows * 8);
  float *words = zeros((size_t)rows * 4 * 3);
  tigon_cross_entropy_fwd_args fwd = {.logits = tigon_tensor_2d(tensor[0], dtype, rows, cols),
                                      .labels = tigon_tensor_1d(labels, TIGON_I64, rows),
                                      .out.lse = tigon_tensor_1d(words, TIGON_F32, rows)};
  for (int64_t r = 0; r < rows; ++r) labels[r] = r * 7919 % cols;
  RUN_LOSS(cross_entropy, context, fwd, rows, reduction, words + rows, dlogits,
           tigon_tensor_2d(tensor[1], dtype, rows, cols), .logits = fwd.logits, .lse = fwd.out.lse);
  free(labels), free(words);
}

/* jsd of logits, of which a mean's denominator is of labels or is not. */
static void run_divergence(tigon_context *context, tigon_dtype dtype, int64_t rows, int64_t cols, void *const tensor[],
                           tigon_reduction reduction, bool labelled) {
  int64_t *labels = zeros((size_t)rows * 8);
  float *words = zeros((size_t)rows * 4 * 5);
  tigon_divergence_fwd_args fwd = {.input = tigon_tensor_2d(tensor[0], dtype, rows, cols),
                                   .target = tigon_tensor_2d(tensor[1], dtype, rows, cols),
                                   .options = {.kind = TIGON_DIVERGENCE_JSD, .beta = 0.5, .ignore_index = 1},
                                   .out.stats = tigon_tensor_2d(words, TIGON_F32, rows, 3)};
  if (labelled) fwd.labels = tigon_tensor_1d(labels, TIGON_I64, rows);
  RUN_LOSS(divergence, context, fwd, rows, reduction, words + 3 * rows, dinput,
           tigon_tensor_2d(tensor[2], dtype, rows, cols), .input = fwd.input, .target = fwd.target,
           .stats = fwd.out.stats);
  free(labels), free(words);
}

/* Entries of a dtype other than the logits', of which some repeat. */
static void run_topk(tigon_context *context, tigon_dtype dtype, int64_t rows, int64_t cols, void *const tensor[],
                     tigon_reduction reduction, int64_t k) {
  int64_t *ids = zeros((size_t)(rows * k) * 8), *labels = zeros((size_t)rows * 8);
  float *words = zeros((size_t)rows * 4 * 5), *target = zeros((size_t)(rows * k) * 4);
  for (int64_t i = 0; i < rows * k; ++i) ids[i] = i * 7919 % cols;
  tigon_topk_divergence_fwd_args fwd = {.input = tigon_tensor_2d(tensor[0], dtype, rows, cols),
                                        .target = tigon_tensor_2d(target, TIGON_F32, rows, k),
                                        .target_ids = tigon_tensor_2d(ids, TIGON_I64, rows, k),
                                        .options = {.tail = 1, .ignore_index = 1},
                                        .out.stats = tigon_tensor_2d(words, TIGON_F32, rows, 3)};
  if (reduction == TIGON_REDUCTION_MEAN) fwd.labels = tigon_tensor_1d(labels, TIGON_I64, rows);
  RUN_LOSS(topk_divergence, context, fwd, rows, reduction, words + 3 * rows, dinput,
           tigon_tensor_2d(tensor[2], dtype, rows, cols), .input = fwd.input, .target = fwd.target,
           .target_ids = fwd.target_ids, .stats = fwd.out.stats);
  free(ids), free(labels), free(words), free(target);
}

static void run_cross_entropy(tigon_context *context, tigon_dtype dtype, int64_t rows, int64_t cols,
                              void *const tensor[4]) {
  run_loss(context, dtype, rows, cols, tensor, TIGON_REDUCTION_NONE);
  if (plans_of(context)->force != TIGON_CASE_AUTO) return; /* the launches of totals are the same in every case */
  run_loss(context, dtype, rows, cols, tensor, TIGON_REDUCTION_MEAN);
  run_loss(context, dtype, rows, cols, tensor, TIGON_REDUCTION_SUM);
}

static void run_case(tigon_context *context, tigon_dtype dtype, int64_t rows, int64_t cols) {
  const size_t size = tigon_dtype_size(dtype);
  void *tensor[5], *w = zeros((size_t)cols * size);
  float *dw = zeros((size_t)cols * 4), *rstd = zeros((size_t)rows * 4), *mask = zeros((size_t)(rows * cols) * 4);
  for (int i = 0; i < 5; ++i) tensor[i] = zeros((size_t)(rows * cols) * size);
  run_rms_norm(context, dtype, rows, cols, tensor, w, dw, rstd);
  run_fused_add(context, dtype, rows, cols, tensor, w, dw, rstd);
  run_layer_norm(context, dtype, rows, cols, tensor, w, dw, rstd);
  run_softmax(context, dtype, rows, cols, tensor, mask);
  run_sparsemax(context, dtype, rows, cols, tensor);
  run_embedding(context, dtype, rows, cols, tensor);
  run_cross_entropy(context, dtype, rows, cols, tensor);
  if (rows * cols <= GATED) {
    for (int gated = 0; gated < 2; ++gated) run_rms_norm_quantised(context, dtype, rows, cols, tensor, w, rstd, gated);
    run_divergence(context, dtype, rows, cols, tensor, TIGON_REDUCTION_NONE, false);
    run_divergence(context, dtype, rows, cols, tensor, TIGON_REDUCTION_MEAN, true);
    run_divergence(context, dtype, rows, cols, tensor, TIGON_REDUCTION_SUM, true);
    run_topk(context, dtype, rows, cols, tensor, TIGON_REDUCTION_NONE, 3);
    run_topk(context, dtype, rows, cols, tensor, TIGON_REDUCTION_MEAN, 17);
    run_topk(context, dtype, rows, cols, tensor, TIGON_REDUCTION_SUM, 1);
  }
  for (int dense = rows > 1 ? 0 : 1; dense <= 1; ++dense) {
    run_relu(context, dtype, rows, cols, tensor, dense);
    if (rows * cols <= GATED) run_gates(context, dtype, rows, cols, tensor, dense);
  }
  for (int i = 0; i < 5; ++i) free(tensor[i]);
  free(w), free(dw), free(rstd), free(mask);
}

static void what_moves_was_predicted(void **state) {
  (void)state;
  static const tigon_dtype dtypes[] = {TIGON_F32, TIGON_BF16};
  for (int part = 0; part < PARTS; ++part) {
    tigon_context *context = open_part(part);
    for (int s = 0; s < SHAPES; ++s)
      for (int d = 0; d < 2; ++d)
        for (tigon_plan_case force = TIGON_CASE_AUTO; force <= TIGON_CASE_F; ++force) {
          plans_of(context)->force = force;
          run_case(context, dtypes[d], shapes[s][0], shapes[s][1]);
        }
    for (int s = 0; s < GROUPED; ++s)
      for (int d = 0; d < 2; ++d)
        for (tigon_plan_case force = TIGON_CASE_AUTO; force <= TIGON_CASE_F; ++force) {
          plans_of(context)->force = force;
          run_group_norm(context, dtypes[d], grouped[s][0], grouped[s][1], grouped[s][2], grouped[s][3]);
        }
    tigon_context_destroy(context);
  }
}

enum { ROWS = 5, VOCAB = 100, PANEL = 30, PANEL_BEGIN = 40 };

/* Lets a call of a slot without its front touch memory. */
static void may_touch(tigon_context *context, const void *start, size_t bytes, bool writes) {
  static const tigon_field fields[] = {{.name = "input", .shape = "*"},
                                       {.name = "output", .shape = "*", .flags = TIGON_FIELD_OUT}};
  const uintptr_t low = (uintptr_t)start;
  context->memory.of[context->memory.count++] =
      (tigon_extent){.field = &fields[writes], .low = low, .high = low + bytes};
}

/* A panel of the vocabulary, which only fused_linear_cross_entropy asks for, has the bits of the whole. */
static void cross_entropy_of_a_panel(void **state) {
  (void)state;
  tigon_context *context;
  const tigon_context_desc desc = {.device = "ascend-sim:910B4"};
  assert_int_equal(tigon_context_create(&desc, &context), TIGON_OK);
  float logits[ROWS * VOCAB], dlogits[ROWS * VOCAB], panel[ROWS * PANEL], weight[VOCAB], lse[ROWS], inverse = 1;
  const int32_t labels[ROWS] = {PANEL_BEGIN - 1, PANEL_BEGIN, PANEL_BEGIN + PANEL - 1, PANEL_BEGIN + PANEL, 7};
  for (int i = 0; i < ROWS * VOCAB; ++i) logits[i] = (float)(i * 37 % 101) / 50;
  for (int i = 0; i < VOCAB; ++i) weight[i] = 1 + (float)(i % 7) / 8;
  for (int i = 0; i < ROWS; ++i) lse[i] = 5.5f;
  tigon_cross_entropy_problem p = {.parts = TIGON_CROSS_ENTROPY_ROWS,
                                   .space = {ROWS, 1, ROWS},
                                   .cols = VOCAB,
                                   .dtype = TIGON_F32,
                                   .label_dtype = TIGON_I32,
                                   .logits = {logits, {0, 0, VOCAB}},
                                   .dlogits = {dlogits, {0, 0, VOCAB}},
                                   .labels = labels,
                                   .weight = weight,
                                   .inverse = &inverse,
                                   .lse = lse,
                                   .has_ignore_index = true,
                                   .ignore_index = 7,
                                   .label_smoothing = 0.25f,
                                   .inverse_temperature = 1,
                                   .grad_scale = 1,
                                   .reduction = TIGON_REDUCTION_SUM};
  may_touch(context, logits, sizeof logits, false);
  may_touch(context, labels, sizeof labels, false);
  may_touch(context, weight, sizeof weight, false);
  may_touch(context, lse, sizeof lse, false);
  may_touch(context, dlogits, sizeof dlogits, true);
  may_touch(context, panel, sizeof panel, true);
  assert_int_equal(ascend_cross_entropy_bwd(&context->queue, &p), TIGON_OK);
  p.logits.data = logits + PANEL_BEGIN;
  p.dlogits = (tigon_rows){panel, {0, 0, PANEL}};
  p.cols = PANEL;
  p.panel_begin = PANEL_BEGIN;
  p.vocab = VOCAB;
  assert_int_equal(ascend_cross_entropy_bwd(&context->queue, &p), TIGON_OK);
  for (int r = 0; r < ROWS; ++r)
    assert_memory_equal(panel + (size_t)r * PANEL, dlogits + (size_t)r * VOCAB + PANEL_BEGIN, PANEL * sizeof *panel);
  assert_true(dlogits[VOCAB + PANEL_BEGIN] < -0.5f && dlogits[4 * VOCAB] == 0);
  tigon_context_destroy(context);
}

/* No columns: no label counts, and the log of an empty sum is -inf. */
static void cross_entropy_of_nothing(void **state) {
  (void)state;
  tigon_context *context;
  const tigon_context_desc desc = {.device = "ascend-sim:910B4"};
  assert_int_equal(tigon_context_create(&desc, &context), TIGON_OK);
  for (int64_t rows = 0; rows <= ROWS; rows += ROWS) {
    float some[1] = {0}, lse[ROWS], loss = 7, token_loss[ROWS];
    int64_t labels[ROWS] = {0, 1, -1, 3, 9}, argmax[ROWS], correct = 7;
    int32_t error = 0;
    tigon_cross_entropy_fwd_args args = {.logits = tigon_tensor_2d(some, TIGON_F32, rows, 0),
                                         .labels = tigon_tensor_1d(labels, TIGON_I64, rows),
                                         .out = {.loss = tigon_tensor_1d(&loss, TIGON_F32, 1),
                                                 .token_loss = tigon_tensor_1d(token_loss, TIGON_F32, rows),
                                                 .lse = tigon_tensor_1d(lse, TIGON_F32, rows),
                                                 .argmax = tigon_tensor_1d(argmax, TIGON_I64, rows),
                                                 .correct = tigon_tensor_1d(&correct, TIGON_I64, 1),
                                                 .error = tigon_tensor_1d(&error, TIGON_I32, 1)}};
    succeeds(context, tigon_cross_entropy_fwd_workspace(context, &args, &args.workspace_bytes));
    succeeds(context, tigon_alloc(context, args.workspace_bytes, &args.workspace));
    succeeds(context, tigon_cross_entropy_fwd(context, &args));
    assert_true(loss == 0 && correct == 0 && error == (rows > 0));
    for (int r = 0; r < rows; ++r) assert_true(lse[r] == -INFINITY && token_loss[r] == 0 && argmax[r] == -1);
    tigon_free(context, args.workspace);
  }
  tigon_context_destroy(context);
}

/* Model microseconds of fused_add_rms_norm forward on zeros. */
static double model_time(int64_t rows, int64_t cols) {
  tigon_context *context;
  const tigon_context_desc desc = {.device = "ascend-sim:910B4"};
  assert_int_equal(tigon_context_create(&desc, &context), TIGON_OK);
  void *memory[4];
  tigon_tensor t[4];
  for (int i = 0; i < 4; ++i) {
    succeeds(context, tigon_alloc(context, (size_t)(rows * cols) * 4, &memory[i]));
    succeeds(context, tigon_fill(context, memory[i], 0, (size_t)(rows * cols) * 4));
    t[i] = tigon_tensor_2d(memory[i], TIGON_F32, rows, cols);
  }
  const tigon_fused_add_rms_norm_fwd_args args = {.x = t[0], .residual = t[1], .s = t[2], .y = t[3], .eps = 1e-6};
  succeeds(context, tigon_fused_add_rms_norm_fwd(context, &args));
  const double time = tigon_sim_counted(ascend_of(&context->queue)->sim)->microseconds;
  for (int i = 0; i < 4; ++i) tigon_free(context, memory[i]);
  tigon_context_destroy(context);
  return time;
}

/* Short rows share a tile, so that the time falls with the width and does not end on a floor of one step a row. */
static void time_falls_with_the_width(void **state) {
  (void)state;
  const double narrow = model_time(2048, 512), middle = model_time(2048, 1024), wide = model_time(2048, 2048);
  assert_true(narrow < 0.65 * middle);
  assert_true(middle < 0.7 * wide);
}

/* One read and one write of a row that is far wider than a tile. */
static void a_row_of_32768_is_read_once(void **state) {
  (void)state;
  tigon_context *context;
  tigon_plan plan;
  const tigon_context_desc desc = {.device = "ascend-sim:910B4"};
  assert_int_equal(tigon_context_create(&desc, &context), TIGON_OK);
  ask(context, "rms_norm", "fwd", TIGON_F32, 80, 32768, &plan);
  assert_true(plan.bytes_moved == plan.bytes_min && plan.bytes_min == (2 * 80 + 1) * 32768 * 4 + 80 * 4);
  run_case(context, TIGON_F32, 80, 32768);
  tigon_context_destroy(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_moves_was_predicted),    cmocka_unit_test(cross_entropy_of_a_panel),
      cmocka_unit_test(cross_entropy_of_nothing),    cmocka_unit_test(time_falls_with_the_width),
      cmocka_unit_test(a_row_of_32768_is_read_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
