/* embedding: forward copies bits; backward is a sum of few rows. Shapes are [tokens, hidden, vocab]. */
#include <math.h>

#include "check/cases.h"

static bool shapes(int index, int64_t tile, int64_t dims[CHECK_DIMS]) {
  const int64_t t = tile;
  const int64_t list[][3] = {
      {1, 1, 1},       {5, t, 3},   {17, t + 1, 40}, {3, 2 * t + 1, 1000}, {200, 4 * t - 1, 11}, {97, 131, 257},
      {64, 1000, 129}, {9, 33, 65}, {2, 40009, 5},   {300, 3, 64},         {60, 9, 5000},        {30, 3001, 99}};
  if (index >= (int)(sizeof list / sizeof *list)) return false;
  for (int d = 0; d < 3; ++d) dims[d] = list[index][d] > 0 ? list[index][d] : 1;
  return true;
}

enum { OPTIONS = 4 };

/* Odd options count indices in 32 bits. In 2 an index may be vocab, in 3 it may be -1, and only that raises the flag. */
static tigon_tensor indices(check *k) {
  const int64_t vocab = k->dims[2];
  return check_indices(k, "idx", k->option % 2 ? TIGON_I32 : TIGON_I64, 1, k->dims, k->option == 3 ? -1 : 0,
                       vocab + (k->option == 2));
}

static tigon_tensor flag(check *k) { return k->option < 2 ? (tigon_tensor){0} : check_error_flag(k); }

static void fwd(check *k) {
  const int64_t table_shape[] = {k->dims[2], k->dims[1]};
  const tigon_tensor table = check_in(k, "table", k->dtype, 2, table_shape, k->fill);
  check_reads_rows(k, &table, k->dims[0]);
  const tigon_embedding_fwd_args args = {
      .table = table, .idx = indices(k), .y = check_out(k, "y", k->dtype, 2, k->dims), .error = flag(k)};
  check_call(k, &args);
}

static void bwd(check *k) {
  const int64_t tokens = k->dims[0], hidden = k->dims[1], vocab = k->dims[2], table_shape[] = {vocab, hidden};
  const tigon_dtype dtable_dtype = k->option % 2 ? TIGON_F32 : k->dtype;
  const bool accumulate = k->option == 1 || k->option == 2;
  tigon_embedding_bwd_args args = {
      .dy = check_in(k, "dy", k->dtype, 2, k->dims, k->fill),
      .idx = indices(k),
      .dtable = accumulate ? check_inout_dense(k, "dtable", dtable_dtype, 2, table_shape, CHECK_UNIFORM)
                           : check_out_dense(k, "dtable", dtable_dtype, 2, table_shape),
      .error = flag(k),
      .has_padding_idx = k->option == 1,
      .padding_idx = vocab - 1,
      .accumulate_dtable = accumulate,
  };
  double *scale = check_doubles(k, vocab * hidden);
  for (int64_t i = 0; k->oracle && accumulate && i < vocab * hidden; ++i) scale[i] = fabs(check_value(&args.dtable, i));
  for (int64_t n = 0; k->oracle && n < tokens; ++n) {
    const int64_t v = (int64_t)check_value(&args.idx, n);
    if (args.has_padding_idx && v == args.padding_idx) continue;
    for (int64_t c = 0; v >= 0 && v < vocab && c < hidden; ++c)
      scale[v * hidden + c] += fabs(check_value(&args.dy, n * hidden + c));
  }
  check_call_in_workspace(k, tigon_embedding_bwd_workspace, &args);
  check_bound(k, &args.dtable, dtable_dtype == TIGON_F32 ? 0 : 1, 8, scale);
}

MUTANT(lose_column, embedding_fwd, m.cols -= m.cols > 1)
MUTANT(no_padding, embedding_bwd, m.padding_idx = -1)
MUTANT(overwrite, embedding_bwd, m.accumulate = false)
static const check_mutant wrong_fwd[] = {
    {"drops the last column", lose_column},
    {0},
};
static const check_mutant wrong_bwd[] = {
    {"gives padding a gradient", no_padding},
    {"overwrites instead of adding", overwrite},
    {0},
};

/* tokens, hidden, vocabulary */
static const check_sizes own_sizes = {
    .of = {{3, 19, 4}, {67, 131, 57}, {300, 9, 20}, {3, 16, 3}, {CHECK_MANY, 4096, 57}, {67, 4096, CHECK_MANY}},
    .walks = {{5, CHECK_N, 7}, {CHECK_N, 3, 11}, {7, 5, CHECK_N}},
};

static bool of_model(const bench_model *m, bench_point *point) {
  point->other = m->vocabulary;
  return true;
}
static const bench_case timed = {.op = "embedding",
                                 .shape_note = "tokens x hidden, as many words",
                                 .rows_f32 = 4096,
                                 .rows_16bit = 8192,
                                 .cols = 4096,
                                 .other = BENCH_AS_ROWS,
                                 .dims = bench_words,
                                 .of_model = of_model};

const check_op tigon_check_embedding_fwd = {fwd, shapes, OPTIONS, true, wrong_fwd, &timed, &own_sizes};
const check_op tigon_check_embedding_bwd = {bwd, shapes, OPTIONS, true, wrong_bwd, &timed, &own_sizes};
