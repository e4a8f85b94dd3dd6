/* Rows of the norms backward. A row of dy, x and z is read twice, the second time from a cache: for its sums, and for dx. What is summed up over
 * rows is added to a slab that a work-item or group has of its own. Its first vector is the sum of dy * xhat, times 1 + scale. layer_norm's
 * second is the sum of dy. With a scale, two more are those sums over the rows that share it. */
#include "norm.cl"

typedef struct norm_bwd_memory {
  memory dy, x, w, rstd, mean, ds, z, dx, dz, slabs, scale, dscale, dshift;
} norm_bwd_memory;

/* Where a row begins in its tensors, and its numbers: mean_g of g = dy * weight, mean of g * xhat. It is the first or last of its part of a group;
 * the first that the slab has. */
typedef struct norm_bwd_row {
  long dy, dy_after, x, x_after, dx, ds, z, dz, scale, dscale, dshift;
  float rstd, center, mean_g, mean;
  bool first, last, first_of_slab;
} norm_bwd_row;

static inline vf norm_scale(const norm_bwd_memory *m, const norm_bwd_numbers *k, const norm_bwd_row *row, long i,
                            long n) {
  return m->scale ? 1 + load_n(m->scale, row->scale + i, k->scale_dtype, n) : (vf)(1.0f);
}

static inlined void norm_bwd_means(const bool centers, const norm_bwd_memory *m, const norm_bwd_numbers *k,
                                  norm_bwd_row *row, room space) {
  vpair dots = VPAIR_START, sums = VPAIR_START;
  vf dot = 0, some = 0;
  FOR_SUMS(i, n, k->cols, (vpair_take(&dots, &dot), vpair_take(&sums, &some))) {
    const vf w = norm_weight(m->w, k->w_dtype, k->w_offset, i, n) * norm_scale(m, k, row, i, n);
    ask_for(m->dx, row->dx + i, T);
    vf g = load_n(m->dy, row->dy + i, T, n) * w, v = load_n(m->x, row->x + i, T, n);
    if (m->z) g *= silu(load_n(m->z, row->z + i, T, n));
    if (centers) v = first_or(v - row->center, n, 0), some += g;
    dot = fma(g, v, dot);
  }
  row->mean = row_total(dots) / (float)k->cols * row->rstd;
  row->mean_g = centers ? row_total(sums) / (float)k->cols : 0;
}

/* Adds a * b to columns of a vector of the slab. */
static inline void norm_add(memory slab, long i, long n, bool first, vf a, vf b) {
  store_n(slab, i, F32, n, fma(a, b, first ? (vf)(0.0f) : load_n(slab, i, F32, n)));
}

/* A sum over the rows that share a scale: to the slab until the last of them, then where it belongs. */
static inline void norm_put(memory to, long i, long n, int dtype, bool accumulate, vf v) {
  if (to) store_n(to, i, dtype, n, accumulate ? v + load_n(to, i, dtype, n) : v);
}
static inlined void norm_add_modulation(const norm_bwd_memory *m, const norm_bwd_numbers *k, const norm_bwd_row *row,
                                       memory slab, long i, long n, vf dy, vf xhat, vf w) {
  const vf before = row->first ? (vf)(0.0f) : load_n(slab, k->cols + i, F32, n);
  const vf sum = row->first ? dy : dy + load_n(slab, 2 * k->cols + i, F32, n);
  vf product = fma(dy, xhat, before);
  if (row->last) product *= w;
  if (row->last && k->parts == 1) {
    norm_put(m->dscale, row->dscale + i, n, k->dscale_dtype, k->accumulate, product);
    norm_put(m->dshift, row->dshift + i, n, k->dshift_dtype, k->accumulate, sum);
  } else {
    store_n(slab, k->cols + i, F32, n, product);
    store_n(slab, 2 * k->cols + i, F32, n, sum);
  }
}

static inlined void norm_bwd_store(const bool centers, const norm_bwd_memory *m, const norm_bwd_numbers *k,
                                  const norm_bwd_row *row, memory slab) {
  FOR_ROW(i, n, k->cols) {
    ask_for(m->dy, row->dy_after + i, T);
    ask_for(m->x, row->x_after + i, T);
    const vf own = norm_weight(m->w, k->w_dtype, k->w_offset, i, n);
    const vf scale = norm_scale(m, k, row, i, n), w = own * scale;
    vf dn = load_n(m->dy, row->dy + i, T, n), dz = dn, v = load_n(m->x, row->x + i, T, n);
    if (m->z) { /* dn takes the place of dy */
      vf value;
      dz *= silu_slope(load_n(m->z, row->z + i, T, n), &value);
      dn *= value;
    }
    if (centers) v -= row->center;
    vf xhat = v * row->rstd;
    vf dx = fma(-xhat, (vf)(row->mean), dn * w - row->mean_g) * row->rstd;
    if (m->ds) dx += load_n(m->ds, row->ds + i, T, n);
    if (k->casting != CASTING_GEMMA) xhat = rounded(xhat); /* as forward had it */
    store_n(m->dx, row->dx + i, T, n, dx);
    if (m->dz) store_n(m->dz, row->dz + i, T, n, dz * (xhat * w));
    if (!slab) continue;
    norm_add(slab, i, n, row->first_of_slab, dn * scale, xhat);
    if (centers) norm_add(slab, k->cols + i, n, row->first_of_slab, dn, (vf)(1.0f));
    if (m->scale) norm_add_modulation(m, k, row, slab, i, n, dn, xhat, own);
  }
}

static inlined void norm_bwd(const bool centers, const norm_bwd_memory *m, const norm_bwd_numbers *k, room space) {
  const memory slab = m->slabs ? (memory)((floats)m->slabs + row_first() * k->sums * k->cols) : (memory)0;
  for (long unit = row_first(); unit < k->groups.rows * k->parts; unit += row_step()) {
    const long group = unit / k->parts;
    long begin, end;
    range_of(k->share, k->parts, unit % k->parts, &begin, &end);
    for (long of = begin; of < end; ++of) {
      const long r = group * k->share + of;
      const long after = min(r + 1, k->space.rows - 1);
      norm_bwd_row row = {.dy = row_offset(&k->space, &k->dy, r),
                          .dy_after = row_offset(&k->space, &k->dy, after),
                          .x_after = row_offset(&k->space, &k->x, after),
                          .x = row_offset(&k->space, &k->x, r),
                          .dx = row_offset(&k->space, &k->dx, r),
                          .ds = row_offset(&k->space, &k->ds, r),
                          .z = row_offset(&k->space, &k->z, r),
                          .dz = row_offset(&k->space, &k->dz, r),
                          .scale = row_offset(&k->groups, &k->scale, group),
                          .dscale = row_offset(&k->groups, &k->dscale, group),
                          .dshift = row_offset(&k->groups, &k->dshift, group),
                          .rstd = float_at(m->rstd, r),
                          .center = centers ? float_at(m->mean, r) : 0,
                          .first = of == begin,
                          .last = of == end - 1,
                          .first_of_slab = of == begin && unit == row_first()};
      norm_bwd_means(centers, m, k, &row, space);
      norm_bwd_store(centers, m, k, &row, slab);
    }
  }
}

#define NORM_BWD_KERNEL(name, centers)                                                                                \
  __kernel void name(TENSOR(dy), TENSOR(x), TENSOR(w), TENSOR(rstd), TENSOR(mean), TENSOR(ds), TENSOR(z), TENSOR(dx), \
                     TENSOR(dz), TENSOR(slabs), TENSOR(scale), TENSOR(dscale), TENSOR(dshift),                        \
                     const norm_bwd_numbers k) {                                                                      \
    ROOM                                                                                                              \
    const norm_bwd_memory m = {                                                                                       \
        or_null(dy), or_null(x),  or_null(w),     or_null(rstd),  or_null(mean),   or_null(ds),    or_null(z),        \
        or_null(dx), or_null(dz), or_null(slabs), or_null(scale), or_null(dscale), or_null(dshift)};                  \
    norm_bwd(centers, &m, &k, space);                                                                                 \
  }
