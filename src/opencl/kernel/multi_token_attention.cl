/* The convolutions of multi_token_attention and the sums of its gradients. u and g are read from the workspace as often as a window has taps, out
 * of a cache. */
#include "mta_planes.cl"

#if LANES == 16
#define LANE (vi)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
#else
#define LANE (vi)(0, 1, 2, 3)
#endif

/* A plane of the workspace, with zeros around it, and zeros between its elements, of which every hole-th is one. */
typedef struct mta_plane {
  floats from;
  long begin, pitch, rows, cols; /* begin: the first row that is there */
  long row_hole, col_hole;
} mta_plane;

/* The elements x, x + step, .. of row y. */
static inline vf plane_at(const mta_plane *p, long y, long x, long step) {
  if (y < 0 || y % p->row_hole != 0 || y / p->row_hole >= p->rows) return (vf)(0.0f);
  floats row = p->from + (y / p->row_hole - p->begin) * p->pitch;
  if (step == 1 && p->col_hole == 1 && x >= 0 && x + LANES <= p->cols) return load_floats(0, row + x);
  float part[LANES];
  for (int j = 0; j < LANES; ++j, x += step)
    part[j] = x >= 0 && x % p->col_hole == 0 && x / p->col_hole < p->cols ? row[x / p->col_hole] : 0;
  return load_floats(0, part);
}

/* Where a window's first tap is, of element (y, x), and how far its taps are apart; between elements there are `step` columns. */
typedef struct mta_taps {
  long y, x, down, right, step;
} mta_taps;

/* The sum over the taps of one channel, whose weights begin at `first`. */
static inline vf convolve(const mta_numbers *k, const mta_plane *p, const mta_taps *t, memory weight, long first) {
  vf sum = 0;
  for (long a = 0; a < k->h.taps; ++a)
    for (long b = 0; b < k->w.taps; ++b) {
      const float w = load_one(weight, first + a * k->w.taps + b, k->weight_dtype);
      sum = fma((vf)(w), plane_at(p, t->y + a * t->down, t->x + b * t->right, t->step), sum);
    }
  return sum;
}

/* Rows of o: POST's own, or c. A channel's terms add up first. */
__kernel void mta_convolve(TENSOR(u), TENSOR(weight), TENSOR(bias), TENSOR(o), TENSOR(c), const mta_numbers k) {
  const long inputs = k.in / k.groups, outputs = k.out / k.groups, taps = k.h.taps * k.w.taps;
  FOR_BAND(plane, i, k.batch * k.out, k.made) {
    const long n = allowed(i, k.cols), co = plane % k.out, first = plane / k.out * k.in + co / outputs * inputs;
    const source to = k.pre ? o_row(&k, memory_of(c), plane, i)
                            : (source){memory_of(o), row_offset(&k.out_space, &k.o, plane * k.rows + i), T};
    const float added = is_there(bias) ? load_one(memory_of(bias), co, k.bias_dtype) : 0;
    FOR_ROW(j, left, k.cols) {
      vf sum = 0;
      const mta_taps t = {i * k.h.stride - k.h.padding, j * k.w.stride - k.w.padding, k.h.dilation, k.w.dilation,
                          k.w.stride};
      for (long q = 0; q < inputs && j < n; ++q) {
        const mta_plane p = {
            FLOATS_OF(u) + (first + q) * k.u_rows * k.tokens, k.reach.begin, k.tokens, k.tokens, k.tokens, 1, 1};
        sum += convolve(&k, &p, &t, memory_of(weight), (co * inputs + q) * taps);
      }
      put_n(&to, j, left, first_or(sum + added, n - j, 0));
    }
  }
}

/* Rows of the queries: PRE's ds, or c. */
__kernel void mta_transposed(TENSOR(g), TENSOR(weight), TENSOR(ds), TENSOR(c), const mta_numbers k) {
  const long inputs = k.in / k.groups, outputs = k.out / k.groups, taps = k.h.taps * k.w.taps;
  FOR_BAND(plane, y, k.batch * k.in, k.y) {
    const long n = y + 1, ci = plane % k.in, first = ci / inputs * outputs;
    const source to = k.pre ? (source){memory_of(ds), row_offset(&k.space, &k.ds, plane * k.tokens + y), T}
                            : y_row(&k, memory_of(c), plane, y);
    FOR_ROW(x, left, k.tokens) {
      vf sum = 0;
      const mta_taps t = {y + k.h.padding, x + k.w.padding, -k.h.dilation, -k.w.dilation, 1};
      for (long q = 0; q < outputs && x < n; ++q) {
        const long co = first + q, of = plane / k.in * k.out + co;
        const mta_plane p = {
            FLOATS_OF(g) + of * k.o_rows * k.cols, k.made.begin, k.cols, k.rows, k.cols, k.h.stride, k.w.stride};
        sum += convolve(&k, &p, &t, memory_of(weight), (co * inputs + ci % inputs) * taps);
      }
      put_n(&to, x, left, first_or(sum, n - x, 0));
    }
  }
}

/* ---- sums ---- */

static inline void add_to_slab(const mta_numbers *k, floats slabs, long slab, long i, float v) {
  floats to = slabs + slab * (k->weights + k->out) + i;
  *to = k->first ? v : *to + v;
}

/* A row is a slab of a weight: every MTA_SLABS-th row of o of all batches. */
__kernel void mta_dweight(TENSOR(g), TENSOR(u), TENSOR(slabs), const mta_numbers k) {
  ROOM
  const long inputs = k.in / k.groups, outputs = k.out / k.groups, taps = k.h.taps * k.w.taps;
  const long own = k.own.end - k.own.begin;
  for (long at = row_first(); at < k.weights * MTA_SLABS; at += row_step()) {
    const long weight = at / MTA_SLABS, slab = at % MTA_SLABS, t = weight % taps, co = weight / taps / inputs;
    const long ci = co / outputs * inputs + weight / taps % inputs;
    vpair sums = {(vf)(0.0f), (vf)(0.0f)};
    for (long r = slab; r < k.batch * own; r += MTA_SLABS) {
      const long b = r / own, i = k.own.begin + r % own;
      const long y = i * k.h.stride - k.h.padding + t / k.w.taps * k.h.dilation;
      if (y < 0 || y >= k.tokens) continue;
      const source q = o_row(&k, memory_of(g), b * k.out + co, i);
      const mta_plane p = {
          FLOATS_OF(u) + (b * k.in + ci) * k.u_rows * k.tokens, k.reach.begin, k.tokens, k.tokens, k.tokens, 1, 1};
      FOR_ROW(j, left, allowed(i, k.cols)) {
        const long x = j * k.w.stride - k.w.padding + t % k.w.taps * k.w.dilation;
        const vi xs = (int)x + LANE * (int)k.w.stride,
                 met = xs >= 0 && xs <= (int)y && LANE < (int)min(left, (long)LANES);
        const vf v = either(met, source_n(&q, j, left), (vf)(0.0f));
        sums = vpair_fma(sums, v, either(met, plane_at(&p, y, x, k.w.stride), (vf)(0.0f)));
      }
    }
    const float sum = pair_value(row_pair(pair_of(sums)));
    if (row_leads()) add_to_slab(&k, FLOATS_OF(slabs), slab, weight, sum);
  }
}

__kernel void mta_dbias(TENSOR(g), TENSOR(slabs), const mta_numbers k) {
  ROOM
  const long own = k.own.end - k.own.begin;
  for (long at = row_first(); at < k.out * MTA_SLABS; at += row_step()) {
    const long co = at / MTA_SLABS, slab = at % MTA_SLABS;
    vpair sums = {(vf)(0.0f), (vf)(0.0f)};
    for (long r = slab; r < k.batch * own; r += MTA_SLABS) {
      const long i = k.own.begin + r % own;
      const source q = o_row(&k, memory_of(g), r / own * k.out + co, i);
      FOR_ROW(j, left, allowed(i, k.cols)) sums = vpair_add(sums, source_n(&q, j, left));
    }
    const float sum = pair_value(row_pair(pair_of(sums)));
    if (row_leads()) add_to_slab(&k, FLOATS_OF(slabs), slab, k.weights + co, sum);
  }
}
