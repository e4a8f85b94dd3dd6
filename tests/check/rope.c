/* rope: shapes are [batch, tokens, q heads, k heads, head_dim]. Options walk layout, partial rotation, the doubled table,
 * positions, in place, the [B, H, T, D] memory order and a flagged position. */
#include <math.h>

#include "check/cases.h"

static bool shapes(int index, int64_t tile, int64_t dims[CHECK_DIMS]) {
  const int64_t t = tile;
  const int64_t list[][5] = {{1, 1, 1, 1, 2},         {2, 3, 2, 1, 2 * t}, {1, 5, 3, 3, 2 * t + 2},
                             {2, 7, 4, 2, 4 * t - 2}, {3, 4, 2, 1, 64},    {1, 33, 8, 2, 128},
                             {2, 9, 5, 5, 42},        {1, 130, 3, 1, 12},  {4, 17, 12, 4, 32}};
  if (index >= (int)(sizeof list / sizeof *list)) return false;
  for (int d = 0; d < 5; ++d) dims[d] = list[index][d];
  return true;
}

enum { OPTIONS = 8, PLAIN = 7 };

/* [B, T, H, D] in memory of that order, or of [B, H, T, D]. */
static tigon_tensor heads(check *k, const char *name, int64_t count, bool swapped, bool out, bool inout) {
  const int64_t B = k->dims[0], T = k->dims[1], D = k->dims[4];
  const int64_t plain[] = {B, T, count, D}, turned[] = {B, count, T, D};
  const int64_t *shape = swapped ? turned : plain;
  tigon_tensor t = inout ? check_inout(k, name, k->dtype, 4, shape, k->fill)
                   : out ? check_out(k, name, k->dtype, 4, shape)
                         : check_in(k, name, k->dtype, 4, shape, k->fill);
  if (!swapped) return t;
  const int64_t stride = t.strides[1];
  t.shape[1] = T, t.shape[2] = count;
  t.strides[1] = t.strides[2], t.strides[2] = stride;
  return t;
}

static void run(check *k) {
  const int64_t B = k->dims[0], T = k->dims[1], D = k->dims[4];
  const bool interleaved = k->option == 1 || k->option == 5, partial = k->option == 2 && D >= 4,
             doubled = k->option == 0 || k->option == 3;
  const bool in_place = k->option == 3, swapped = k->option == 4, flagged = k->option == 6,
             positions = k->option >= 4 && k->option != PLAIN;
  const int64_t rotary = partial ? (D / 2 + 1) / 2 * 2 : D, width = doubled ? rotary : rotary / 2,
                rows = positions ? T + 5 : T;
  const int64_t shared[] = {rows, width}, own[] = {B, rows, width}, id_shape[] = {k->option == 5 ? 1 : B, T};
  const tigon_dtype table_dtype = k->option % 2 && k->option != PLAIN ? k->dtype : TIGON_F32;
  tigon_rope_args args = {
      .q = heads(k, "q", k->dims[2], swapped, false, in_place),
      .k = heads(k, "k", k->dims[3], swapped, false, in_place),
      .cos = k->option == 1 ? check_in(k, "cos", table_dtype, 3, own, CHECK_UNIFORM)
                            : check_in(k, "cos", table_dtype, 2, shared, CHECK_UNIFORM),
      .sin = k->option == 1 ? check_in(k, "sin", table_dtype, 3, own, CHECK_UNIFORM)
                            : check_in(k, "sin", table_dtype, 2, shared, CHECK_UNIFORM),
      .layout = interleaved ? TIGON_ROPE_INTERLEAVED : TIGON_ROPE_HALF,
      .rotary_dim = partial ? rotary : 0,
  };
  if (positions)
    args.positions = check_indices(k, "positions", k->option == 4 ? TIGON_I32 : TIGON_I64, 2, id_shape,
                                   flagged ? -1 : 0, rows + flagged);
  if (flagged) args.error = check_error_flag(k);
  args.q_out = in_place ? args.q : heads(k, "q_out", k->dims[2], swapped, true, false);
  args.k_out = in_place ? args.k : heads(k, "k_out", k->dims[3], swapped, true, false);

  /* |u c| + |v s|, of which each product and the sum is rounded once. */
  const tigon_tensor *in[] = {&args.q, &args.k};
  double *scale[2];
  for (int w = 0; w < 2; ++w) {
    const int64_t H = in[w]->shape[2], pairs = rotary / 2;
    scale[w] = check_doubles(k, B * T * H * D);
    for (int64_t n = 0; k->oracle && n < B * T * H; ++n)
      for (int64_t i = 0; i < pairs; ++i) {
        const int64_t first = n * D + (interleaved ? 2 * i : i), second = n * D + (interleaved ? 2 * i + 1 : i + pairs);
        scale[w][first] = scale[w][second] = 2 * (fabs(check_value(in[w], first)) + fabs(check_value(in[w], second)));
      }
  }
  check_call(k, &args);
  check_bound(k, &args.q_out, k->dtype == TIGON_F32 ? 0 : 1, 2, scale[0]);
  check_bound(k, &args.k_out, k->dtype == TIGON_F32 ? 0 : 1, 2, scale[1]);
}

MUTANT(layout, rope_fwd, m.layout = m.layout == TIGON_ROPE_HALF ? TIGON_ROPE_INTERLEAVED : TIGON_ROPE_HALF)
MUTANT(positions, rope_fwd, m.positions = NULL)
MUTANT(bwd_swap, rope_bwd, m.cos = p->sin; m.sin = p->cos)
static const check_mutant wrong_fwd[] = {
    {"takes the other layout", layout},
    {"forgets the positions", positions},
    {0},
};
static const check_mutant wrong_bwd[] = {
    {"swaps cos and sin", bwd_swap},
    {0},
};

/* batch, tokens, query heads, key heads, head_dim */
static const check_sizes own_sizes = {
    .of = {{1, 2, 2, 1, 12}, {3, 17, 6, 2, 64}, {300, 3, 2, 1, 10}, {3, 2, 2, 1, 16}, {CHECK_MANY / 4, 4, 32, 4, 128}},
    .walks = {{1, 3, 2, 1, CHECK_2N}, {1, CHECK_N, 3, 1, 6}, {CHECK_N, 2, 1, 1, 4}},
};

/* A batch of 4 where that divides. */
static void turned(const bench_point *at, int64_t dims[CHECK_DIMS]) {
  dims[0] = at->rows % 4 == 0 ? 4 : 1, dims[1] = at->rows / dims[0];
  bench_heads(at, 128, dims + 2);
}
static const bench_case timed = {.op = "rope",
                                 .shape_note = "tokens x (heads * 128)",
                                 .rows_f32 = 4096,
                                 .rows_16bit = 8192,
                                 .cols = 4096,
                                 .dims = turned,
                                 .of_model = bench_model_heads,
                                 .option = {7, 7}};

const check_op tigon_check_rope_fwd = {run, shapes, OPTIONS, true, wrong_fwd, &timed, &own_sizes};
const check_op tigon_check_rope_bwd = {run, shapes, OPTIONS, true, wrong_bwd, &timed, &own_sizes};
