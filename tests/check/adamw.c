/* adamw: a list of three tensors, the first of [rows, cols], the others odd; option SINGLE has the first alone. */
#include <math.h>

#include "check/cases.h"

enum { OPTIONS = 5, SINGLE = 4, TENSORS = 3 };

static int counted(const check *k) { return k->option == SINGLE ? 1 : TENSORS; }

static void sizes(const check *k, int64_t out[TENSORS]) {
  out[0] = k->dims[0] * k->dims[1];
  out[1] = 1;
  out[2] = 37;
}

static void step(check *k) {
  int64_t n[TENSORS];
  sizes(k, n);
  const int count = counted(k);
  const bool master = k->option % 2, clip = k->option == 2 || k->option == 3;
  const double lr = 1e-2, decay = 0.1, eps = 1e-8;
  tigon_adamw_param *params = check_list(k, "params", sizeof *params * TENSORS);
  double *scale[TENSORS], *m_scale[TENSORS], *v_scale[TENSORS];
  const int64_t one = 1;
  const tigon_tensor factor =
      clip ? check_in_dense(k, "clip_factor", TIGON_F32, 1, &one, CHECK_UNIFORM) : (tigon_tensor){0};
  for (int i = 0; i < count; ++i) {
    params[i] = (tigon_adamw_param){
        .param = check_inout_dense(k, "param", k->dtype, 1, &n[i], CHECK_UNIFORM),
        .master = master ? check_inout_dense(k, "master", TIGON_F32, 1, &n[i], CHECK_UNIFORM) : (tigon_tensor){0},
        .grad =
            check_in_dense(k, "grad", k->option == 1 || k->option == SINGLE ? k->dtype : TIGON_F32, 1, &n[i], k->fill),
        .exp_avg = check_inout_dense(k, "exp_avg", TIGON_F32, 1, &n[i], CHECK_UNIFORM),
        .exp_avg_sq = check_inout_dense(k, "exp_avg_sq", TIGON_F32, 1, &n[i], CHECK_UNIFORM),
        .weight_decay = i == 1 ? 0 : decay,
    };
    check_make_positive(k, &params[i].exp_avg_sq); /* may not be negative */
    scale[i] = check_doubles(k, n[i]), m_scale[i] = check_doubles(k, n[i]), v_scale[i] = check_doubles(k, n[i]);
    for (int64_t e = 0; k->oracle && e < n[i]; ++e) {
      const double g = check_value(&params[i].grad, e) * (clip ? check_value(&factor, 0) : 1);
      m_scale[i][e] = 0.9 * fabs(check_value(&params[i].exp_avg, e)) + 0.1 * fabs(g);
      v_scale[i][e] = 0.95 * check_value(&params[i].exp_avg_sq, e) + 0.05 * g * g;
      const double value = fabs(check_value(master ? &params[i].master : &params[i].param, e));
      scale[i][e] =
          2 * value + (13 + check_calls(k, 1, 1)) * lr * m_scale[i][e] / 0.271 / (sqrt(v_scale[i][e] / 0.142625) + eps);
    }
  }
  const tigon_adamw_step_args args = {.params = params,
                                      .count = count,
                                      .clip_factor = factor,
                                      .lr = lr,
                                      .beta1 = 0.9,
                                      .beta2 = 0.95,
                                      .eps = eps,
                                      .step = 3};
  check_call(k, &args);
  for (int i = 0; i < count; ++i) {
    /* Roundings, each 2^-24 of what is rounded. m: g, 1 - beta1, their product, the sum. v: g twice, its square, 1 - beta2,
     * their product, the sum. The step: m's 4, half of v's 6, and 6 of its own constants and operations. */
    check_bound(k, &params[i].exp_avg, 0, 4, m_scale[i]);
    check_bound(k, &params[i].exp_avg_sq, 0, 6, v_scale[i]);
    if (master) check_bound(k, &params[i].master, 1, 1, scale[i]);
    check_bound(k, &params[i].param, 1, 1, scale[i]);
  }
}

static void clip(check *k) {
  int64_t n[TENSORS];
  sizes(k, n);
  tigon_tensor *grads = check_list(k, "grads", sizeof *grads * TENSORS);
  for (int i = 0; i < counted(k); ++i)
    grads[i] = check_in_dense(k, "grad", k->option % 2 ? TIGON_F32 : k->dtype, 1, &n[i], k->fill);
  tigon_adamw_clip_args args = {.grads = grads,
                                .count = counted(k),
                                .max_norm = k->option < 2 ? 0.5 : 0,
                                .norm = check_out_vector(k, "norm", TIGON_F32, 1),
                                .factor = check_out_vector(k, "factor", TIGON_F32, 1)};
  check_call_in_workspace(k, tigon_adamw_clip_workspace, &args);
  check_bound_relative(k, &args.norm, 8, 0, NULL, check_calls(k, 1, 0));
  check_bound_relative(k, &args.factor, 8, 0, NULL, check_calls(k, 1, 0));
}

MUTANT(correction, adamw_step, m.correction2 = 1)
MUTANT(no_clip, adamw_step, m.clip_factor = NULL)
MUTANT(lose_tensor, adamw_step, m.count -= m.count > 1)
MUTANT(clip_lose_tensor, adamw_clip, m.count -= m.count > 1)
static const check_mutant wrong_step[] = {
    {"forgets a bias correction", correction},
    {"forgets the clip factor", no_clip},
    {"loses the last tensor", lose_tensor},
    {0},
};
static const check_mutant wrong_clip[] = {
    {"loses the last tensor", clip_lose_tensor},
    {0},
};

/* elements of the first tensor are the product; a list of vectors, which have no pitch */
static const check_sizes own_sizes = {
    .of = {{1, 35}, {67, 131}, {300, 37}},
    .walks = {{1, CHECK_N}, {CHECK_N, 3}},
};

static bool of_model(const bench_model *m, bench_point *point) {
  point->rows = m->intermediate;
  return true;
}
static const bench_case timed = {.op = "adamw",
                                 .rows_f32 = 4096,
                                 .rows_16bit = 8192,
                                 .cols = 4096,
                                 .of_model = of_model,
                                 .option = {[BENCH_STEP] = 4, [BENCH_CLIP] = 4}};

const check_op tigon_check_adamw_step = {step, check_row_shapes, OPTIONS, true, wrong_step, &timed, &own_sizes};
const check_op tigon_check_adamw_clip = {clip, check_row_shapes, OPTIONS, true, wrong_clip, &timed, &own_sizes};
