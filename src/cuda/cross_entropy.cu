/* cross_entropy's rows, and its sums over all rows.
 *
 * Loss and gradient in one call read and write a row once. `held` rows wait in shared memory for the sums of the whole row, and
 * each thread has its own packs there. The blocks of a cluster share rows that are wider than a block holds. Several blocks fit
 * on an SM, so that one loads while another stores. `walked` rows are read once for the loss alone, and a second time for the
 * gradient of rows that no cluster holds. Backward knows lse, and has no sums. */
#include "cuda/kernel/cross_entropy_whole.cuh"

/* A thread's packs of a row are first, first + stride, ... */
template <class T, bool PLAIN, bool HELD, bool FEW>
__device__ inline void ce_rows(const ce_problem &p, const ce_walk &walk) {
  __shared__ ce_space space;
  const float counted = FEW ? counted_inverse(p) : 0;
  const team t = team_of(walk.team);
  const cluster cl = cluster_of_block();
  const int64_t r = (int64_t)(blockIdx.x / cl.size) * t.count + t.index;
  if (r >= p.space.rows) return;
  const row_packs<T> x = packs_of<T>(p.space, p.logits, r, p.cols);
  const int64_t first = cl.rank * t.threads + t.rank, stride = (int64_t)cl.size * t.threads;
  uint4 *const held = ce_held + threadIdx.x;
  auto fetch = [&]() {
#pragma unroll
    for (int g = 0; g < CE_PACKS / CE_GROUP; ++g) {
      for (int k = g * CE_GROUP; k < (g + 1) * CE_GROUP && k < walk.packs; ++k)
        if (first + k * stride < x.count) fetch_pack(held + k * CE_THREADS, x, first + k * stride);
      __pipeline_commit();
    }
  };
  const bool always = !p.has_ignore_index || p.lse || p.stats; /* rows are read, whatever their labels are */
  if (HELD && always) fetch();

  const bool lead = t.rank == 0 && cl.rank == 0;
  bool out_of_range;
  const int64_t label = tigon_cross_entropy_label(&p, r, &out_of_range);
  const bool reads = label >= 0 || p.lse || p.stats;
  if (HELD && reads && !always) fetch();
  const float x_label = lead && is_here(p, label) ? to_f32(x.row[label - p.panel_begin]) : 0;
  row_terms terms;
  if (HELD) terms = row_terms_of<FEW>(p, walk, r, counted); /* while the row is on its way */
  const logit_map map = logit_map_of(p);

  row_sums s = no_sums<PLAIN>(map);
  if (HELD && always && !reads) __pipeline_wait_prior(0);
  if (HELD && reads) {
    for (int g = 0; g < CE_PACKS / CE_GROUP; ++g) {
      if (g == 0) __pipeline_wait_prior(3);
      if (g == 1) __pipeline_wait_prior(2);
      if (g == 2) __pipeline_wait_prior(1);
      if (g == 3) __pipeline_wait_prior(0);
#pragma unroll
      for (int k = 0; k < CE_GROUP; ++k) {
        const int64_t i = first + (g * CE_GROUP + k) * stride;
        if (i < x.count) add_pack<T, PLAIN>(p, map, held[(g * CE_GROUP + k) * CE_THREADS], x.column(i), s);
      }
    }
  } else if (reads) {
    for (int64_t i = first; i < x.count; i += CE_GROUP * stride) {
      uint4 v[CE_GROUP];
#pragma unroll
      for (int k = 0; k < CE_GROUP; ++k)
        if (i + k * stride < x.count) v[k] = load_pack(x, i + k * stride);
#pragma unroll
      for (int k = 0; k < CE_GROUP; ++k)
        if (i + k * stride < x.count) add_pack<T, PLAIN>(p, map, v[k], x.column(i + k * stride), s);
    }
  }
  if (!HELD) terms = row_terms_of<FEW>(p, walk, r, counted);
  auto again = [&](int k, int64_t i) { return HELD ? held[k * CE_THREADS] : load_pack(x, i); };

  if (reads) {
    const float top = s.top, sum = s.sum;
    row_all<PLAIN>(t, cl, map, space, s);
    if (p.argmax && label >= 0) {
      const bool nan = s.sum != s.sum, has_it = nan ? sum != sum : top == s.top;
      int64_t found = INT64_MAX;
      int k = 0;
      for (int64_t i = first; has_it && i < x.count && found == INT64_MAX; i += CE_GROUP * stride, k += CE_GROUP) {
        uint4 v[CE_GROUP];
#pragma unroll
        for (int j = 0; j < CE_GROUP; ++j)
          if (i + j * stride < x.count) v[j] = again(k + j, i + j * stride);
#pragma unroll
        for (int j = 0; j < CE_GROUP; ++j)
          if (found == INT64_MAX && i + j * stride < x.count)
            found = find_column(x, i + j * stride, v[j], nan ? NAN : s.top);
      }
      found = row_first(t, cl, space, found);
      if (lead) p.argmax[r] = found;
    }
    row_leave(cl);
  }
  if (p.dlogits.data) {
    const row_packs<T> d = packs_of<T>(p.space, p.dlogits, r, p.cols);
    if (label >= 0) {
      const gradient g = gradient_of(p, terms, label, lse_of<float, PLAIN>(map, s), s.at, s.sum, -s.moment / s.sum);
      int k = 0;
#pragma unroll 2
      for (int64_t i = first; i < x.count; i += stride, ++k)
        store_pack(d, x, i, gradient_pack<T, PLAIN>(p, map, g, again(k, i), x.column(i)));
    } else {
      for (int64_t i = first; i < x.count; i += stride) store_pack(d, x, i, make_uint4(0, 0, 0, 0));
    }
  }
  if (lead) {
    const double lse = reads ? lse_of<double, PLAIN>(map, s) : 0;
    if (p.lse) p.lse[r] = (float)lse;
    if (p.stats)
      store_stats<PLAIN>(p, r, label, x_label, lse, s);
    else if (label >= 0)
      store_losses<PLAIN>(p, r, label, x_label, terms.weight_sum, lse, s);
    else
      store_nothing(p, r);
  }
  if (reads) row_left(cl);
}

/* A team has CE_GROUP * CE_TURNS packs a thread of a row; while a group is worked on, the next one is on its way. */
template <class T, bool PLAIN, bool FEW> __device__ inline void ce_bwd(const ce_problem &p, const ce_walk &walk) {
  const float counted = FEW ? counted_inverse(p) : 0;
  const team t = team_of(walk.team);
  const int64_t task = (int64_t)blockIdx.x * t.count + t.index;
  const int64_t r = walk.chunks == 1 ? task : task / walk.chunks, chunk = task - r * walk.chunks;
  if (r >= p.space.rows) return;
  const row_packs<T> x = packs_of<T>(p.space, p.logits, r, p.cols), d = packs_of<T>(p.space, p.dlogits, r, p.cols);
  const int64_t width = (int64_t)CE_GROUP * CE_TURNS * t.threads, begin = chunk * width + t.rank;
  const int64_t end = chunk * width + width < x.count ? chunk * width + width : x.count;
  bool out_of_range;
  const int64_t label = tigon_cross_entropy_label(&p, r, &out_of_range);
  if (label < 0) {
    for (int64_t i = begin; i < end; i += t.threads) store_pack(d, x, i, make_uint4(0, 0, 0, 0));
    return;
  }
  uint4 v[CE_GROUP], next[CE_GROUP];
  auto load = [&](uint4(&to)[CE_GROUP], int64_t first) {
#pragma unroll
    for (int k = 0; k < CE_GROUP; ++k)
      if (first + k * t.threads < end) to[k] = load_pack(x, first + k * t.threads);
  };
  load(v, begin);
  /* lse * times is rounded; what it lost goes into the sum, and the entropy. */
  const float lse = p.lse[r];
  const exponent at = exponent_of(lse);
  const float lost = at.times == CE_LOG2_E ? fmaf(lse, at.times, at.plus) : 0;
  const float entropy = !PLAIN && p.entropy_scale != 0 ? fmaf(p.entropy[r], CE_LOG2_E, -lost) : 0;
  const gradient g = gradient_of(p, row_terms_of<FEW>(p, walk, r, counted), label, lse, at, exp2f(lost), entropy);
  const logit_map map = logit_map_of(p);
#pragma unroll 1
  for (int64_t first = begin; first < end; first += CE_GROUP * t.threads) {
    load(next, first + CE_GROUP * t.threads);
#pragma unroll
    for (int k = 0; k < CE_GROUP; ++k) {
      const int64_t i = first + k * t.threads;
      if (i < end) store_pack(d, x, i, gradient_pack<T, PLAIN>(p, map, g, v[k], x.column(i)));
      v[k] = next[k];
    }
  }
}

#define CE_KERNEL(name, bounds, ...) \
  KERNEL_BY_DTYPE(cross_entropy_##name, bounds, (const __grid_constant__ ce_problem p, const ce_walk walk), __VA_ARGS__)
/* Few rows have kernels of their own: what ends them costs those of many time even where it is not run. */
#define CE_FORWARD(name, bounds, rows, ...)                     \
  CE_KERNEL(name, bounds, rows<T, __VA_ARGS__, false>(p, walk)) \
  CE_KERNEL(few_##name, bounds, rows<T, __VA_ARGS__, true>(p, walk); end_rows(p, walk))
#define CE_BACKWARD(name, ...)                                             \
  CE_KERNEL(name, (CE_THREADS, 3), ce_bwd<T, __VA_ARGS__, false>(p, walk)) \
  CE_KERNEL(few_##name, (CE_THREADS, 3), ce_bwd<T, __VA_ARGS__, true>(p, walk))

CE_FORWARD(whole_256, (256, 4), ce_whole, 256)
CE_FORWARD(whole_512, (512, 2), ce_whole, 512)
CE_FORWARD(whole_1024, (1024, 1), ce_whole, 1024)
CE_FORWARD(held_plain, (CE_THREADS, 3), ce_rows, true, true)
CE_FORWARD(held_full, (CE_THREADS, 3), ce_rows, false, true)
CE_FORWARD(walked_plain, (CE_THREADS, 4), ce_rows, true, false)
CE_FORWARD(walked_full, (CE_THREADS, 3), ce_rows, false, false)
CE_BACKWARD(bwd_plain, true)
CE_BACKWARD(bwd_full, false)

/* ---- sums over all rows, or classes, by one block in one order ---- */

extern "C" __global__ void __launch_bounds__(CE_TOTAL_THREADS)
    cross_entropy_totals(const __grid_constant__ ce_problem p) {
  all_rows<4>(p);
}

extern "C" __global__ void __launch_bounds__(CE_TOTAL_THREADS)
    cross_entropy_weight_sum(const float *weight, const int64_t classes, double *to) {
  double sum = 0;
#pragma unroll 8
  for (int64_t v = threadIdx.x; v < classes; v += CE_TOTAL_THREADS) sum += (double)weight[v];
  sum = block_total(sum);
  if (threadIdx.x == 0) *to = sum;
}
