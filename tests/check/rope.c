/* rope: shapes are [batch, tokens, q heads, k heads, head_dim]. Options are forms of a call: layouts, tables, positions,
 * sections, memory orders. */
#include <math.h>

#include "check/cases.h"

static bool shapes(int index, int64_t tile, int64_t dims[CHECK_DIMS]) {
  const int64_t t = tile;
  const int64_t list[][5] = {{1, 1, 1, 1, 2},    {2, 3, 2, 1, 2 * t}, {1, 5, 3, 3, 2 * t + 2}, {2, 7, 4, 2, 4 * t - 2},
                             {3, 4, 2, 1, 64},   {1, 33, 8, 2, 128},  {2, 9, 5, 5, 42},        {1, 130, 3, 1, 12},
                             {4, 17, 12, 4, 32}, {2, 3, 2, 1, 65}};
  if (index >= (int)(sizeof list / sizeof *list)) return false;
  for (int d = 0; d < 5; ++d) dims[d] = list[index][d];
  return true;
}

typedef struct form {
  bool pairs, partial, in_place, swapped; /* swapped: memory is [B, H, T, D] */
  bool doubled, complex, own, as_x;       /* tables: of a sequence each, of x's dtype */
  tigon_dtype ids;                        /* NONE: no positions */
  bool one_row, flagged;                  /* positions: of all sequences, one out of range */
  enum { NO_SECTIONS, IN_SECTIONS, IN_TURN } sections;
  bool own_axes; /* a table of each axis */
} form;

static const form forms[] = {
    {.doubled = true},
    {.pairs = true, .own = true, .as_x = true},
    {.partial = true},
    {.in_place = true, .doubled = true, .as_x = true},
    {.swapped = true, .ids = TIGON_I32},
    {.pairs = true, .as_x = true, .ids = TIGON_I64, .one_row = true},
    {.ids = TIGON_I64, .flagged = true},
    {0},
    {.sections = IN_SECTIONS, .own_axes = true, .own = true, .doubled = true, .as_x = true},
    {.sections = IN_TURN, .ids = TIGON_I64},
    {.sections = IN_TURN, .own_axes = true, .in_place = true, .as_x = true, .swapped = true},
    {.sections = IN_SECTIONS, .pairs = true, .partial = true, .ids = TIGON_I32, .one_row = true, .flagged = true},
    {.complex = true, .pairs = true, .own = true, .ids = TIGON_I64},
    {.complex = true, .as_x = true},
    {.complex = true, .sections = IN_TURN, .own_axes = true, .own = true, .ids = TIGON_I64, .flagged = true},
};
enum { OPTIONS = sizeof forms / sizeof *forms, PLAIN = 7 };

/* The case's form, with what a timed one has besides. */
static form form_of(const check *k) {
  form f = forms[k->option];
  if (check_has_form(k, BENCH_SECTIONS)) f.sections = IN_TURN, f.ids = TIGON_I64;
  if (check_has_form(k, BENCH_COMPLEX)) f.complex = true;
  return f;
}

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

static tigon_tensor table(check *k, const char *name, const form *f, int64_t rows, int64_t rotary) {
  int64_t shape[4];
  int n = 0;
  if (f->own_axes) shape[n++] = 3;
  if (f->own) shape[n++] = k->dims[0];
  shape[n++] = rows;
  shape[n++] = f->doubled || f->complex ? rotary : rotary / 2;
  tigon_tensor t = check_in(k, name, f->as_x ? k->dtype : TIGON_F32, n, shape, CHECK_UNIFORM);
  if (!f->complex) return t;
  t.ndim = n + 1;
  t.shape[n - 1] = rotary / 2, t.shape[n] = 2;
  t.strides[n - 1] = 2, t.strides[n] = 1;
  return t;
}

static tigon_tensor positions(check *k, const form *f, int64_t rows) {
  int64_t shape[3];
  int n = 0;
  if (f->sections) shape[n++] = 3;
  shape[n++] = f->one_row ? 1 : k->dims[0];
  shape[n++] = k->dims[1];
  return check_indices(k, "positions", f->ids, n, shape, f->flagged ? -1 : 0, rows + f->flagged);
}

static void run(check *k) {
  const form own = form_of(k), *f = &own;
  const int64_t B = k->dims[0], T = k->dims[1], D = k->dims[4];
  const bool partial = (f->partial && D >= 4) || D % 2, in_place = f->in_place, interleaved = f->pairs;
  const int64_t rotary = partial ? (D / 2 + 1) / 2 * 2 : D, rows = f->ids ? T + 5 : T;
  tigon_rope_args args = {
      .q = heads(k, "q", k->dims[2], f->swapped, false, in_place),
      .k = heads(k, "k", k->dims[3], f->swapped, false, in_place),
      .cos = table(k, "cos", f, rows, rotary),
      .layout = interleaved ? TIGON_ROPE_INTERLEAVED : TIGON_ROPE_HALF,
      .rotary_dim = partial ? rotary : 0,
  };
  k->alike = 1; /* sin's strides must be cos's */
  if (!f->complex) args.sin = table(k, "sin", f, rows, rotary);
  k->alike = 0;
  if (f->sections) { /* the last axis has the most pairs */
    args.section_t = (rotary / 2 + 3) / 4;
    args.section_h = (rotary / 2 - args.section_t) / 2;
    args.section_w = rotary / 2 - args.section_t - args.section_h;
    args.sections_interleaved = f->sections == IN_TURN;
  }
  if (f->ids) args.positions = positions(k, f, rows);
  if (f->flagged) args.error = check_error_flag(k);
  args.q_out = in_place ? args.q : heads(k, "q_out", k->dims[2], f->swapped, true, false);
  args.k_out = in_place ? args.k : heads(k, "k_out", k->dims[3], f->swapped, true, false);

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
MUTANT(no_positions, rope_fwd, m.positions = NULL)
MUTANT(one_axis, rope_fwd, m.axes = 1)
MUTANT(axes_swapped, rope_fwd, m.pairs_of[1] = p->pairs_of[2]; m.pairs_of[2] = p->pairs_of[1])
MUTANT(sections_late, rope_fwd, ++m.pairs_of[2].first)
MUTANT(axis_table, rope_fwd, m.table_axis_pitch = 0)
MUTANT(axis_positions, rope_fwd, m.position_axis_pitch = 0)
MUTANT(step, rope_fwd, m.table_step = 1)
MUTANT(bwd_swap, rope_bwd, m.cos = p->sin; m.sin = p->cos)
MUTANT(bwd_axes, rope_bwd, m.axes = 1)
static const check_mutant wrong_fwd[] = {
    {"takes the other layout", layout},
    {"forgets the positions", no_positions},
    {"turns all pairs by time", one_axis},
    {"swaps height and width", axes_swapped},
    {"begins a section late", sections_late},
    {"has one table for all axes", axis_table},
    {"has one position for all axes", axis_positions},
    {"takes complex numbers for cos", step},
    {0},
};
static const check_mutant wrong_bwd[] = {
    {"swaps cos and sin", bwd_swap},
    {"turns all pairs by time", bwd_axes},
    {0},
};

/* batch, tokens, query heads, key heads, head_dim */
static const check_sizes own_sizes = {
    .of = {{1, 2, 2, 1, 12}, {3, 17, 6, 2, 64}, {300, 3, 2, 1, 10}, {3, 2, 2, 1, 16}, {CHECK_MANY / 4, 4, 32, 4, 128}},
    .walks = {{1, 3, 2, 1, CHECK_2N}, {1, CHECK_N, 3, 1, 6}, {CHECK_N, 2, 1, 1, 4}},
    .coupled = 1 << 8 | 1 << 9 | 1 << 14, /* whose tables or positions have the axes before the sequences */
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
                                 .option = {PLAIN, PLAIN},
                                 .forms = BENCH_BIT(BENCH_SECTIONS) | BENCH_BIT(BENCH_COMPLEX)};

const check_op tigon_check_rope_fwd = {run, shapes, OPTIONS, true, wrong_fwd, &timed, &own_sizes};
const check_op tigon_check_rope_bwd = {run, shapes, OPTIONS, true, wrong_bwd, &timed, &own_sizes};
