/* group_norm.cl takes this file for each way. */
#if SHARED
#define FOR_CHANNEL(c) for (long c = 0; c < k.channels; ++c)
#define FOR_RUN(i, n) FOR_ROW(i, n, k.run)
#define CHANNEL_TOTAL(v) row_total(v)
#define GROUP_TOTAL(v) pair_value(v)
#define CHANNEL_LEADS row_leads()
#else
#define FOR_CHANNEL(c) for (long c = row_lane(); c < k.channels; c += GROUP)
#define FOR_RUN(i, n) for (long i = 0, n = k.run; i < k.run; i += LANES, n = k.run - i)
#define CHANNEL_TOTAL(v) pair_value(pair_of(v))
#define GROUP_TOTAL(v) pair_value(row_pair(v))
#define CHANNEL_LEADS true
#endif

__kernel void KERNEL(group_norm_fwd)(TENSOR(x), TENSOR(w), TENSOR(b), TENSOR(y), TENSOR(mean), TENSOR(rstd),
                                     const group_numbers k) {
  ROOM const memory xs = memory_of(x), ys = memory_of(y), ws = or_null(w), bs = or_null(b);
  const float count = (float)(k.channels * k.run);
  for (long r = row_first(); r < k.batch * k.groups; r += row_step()) {
    const long batch = r / k.groups, first = r % k.groups * k.channels;
    const long at = batch * k.x.batch + first * k.x.channel, to = batch * k.out.batch + first * k.out.channel;
    vpair all = VPAIR_START, sums = VPAIR_START, squares = VPAIR_START;
    const long after = row_after(r, k.batch * k.groups), first_after = after % k.groups * k.channels;
    const long x_after = after / k.groups * k.x.batch + first_after * k.x.channel;
    FOR_CHANNEL(c) { FOR_RUN(i, n) all = vpair_add(all, load_n(xs, at + c * k.x.channel + i, T, n)); }
    const float center = row_total(all) / count;
    FOR_CHANNEL(c) {
      FOR_RUN(i, n) {
        const vf d = first_or(load_n(xs, at + c * k.x.channel + i, T, n) - center, n, 0);
        ask_for(ys, to + c * k.out.channel + i, T);
        sums = vpair_add(sums, d), squares = vpair_add(squares, d * d);
      }
    }
    const float off = row_total(sums) / count;
    const moments of = moments_about(center, off, row_total(squares) / count, k.eps);
    if (is_there(mean) && row_leads()) FLOATS_OF(mean)[r] = of.mean;
    if (is_there(rstd) && row_leads()) FLOATS_OF(rstd)[r] = of.rstd;
    FOR_CHANNEL(c) {
      const float weight = ws ? load_one(ws, first + c, k.w_dtype) : 1;
      const float bias = bs ? load_one(bs, first + c, k.b_dtype) : 0;
      FOR_RUN(i, n) {
        const vf d = load_n(xs, at + c * k.x.channel + i, T, n) - of.center;
        ask_for(xs, x_after + c * k.x.channel + i, T);
        const vf xhat = fma(d, (vf)(of.rstd), (vf)(of.rest));
        store_n(ys, to + c * k.out.channel + i, T, n, fma(xhat, (vf)(weight), (vf)(bias)));
      }
    }
  }
}

/* A slab is [2, all channels], dw's and db's of a range of batches. */
__kernel void KERNEL(group_norm_bwd)(TENSOR(dy), TENSOR(x), TENSOR(w), TENSOR(mean), TENSOR(rstd), TENSOR(dx),
                                     TENSOR(slabs), const group_numbers k) {
  ROOM const memory dys = memory_of(dy), xs = memory_of(x), dxs = memory_of(dx), ws = or_null(w);
  const float count = (float)(k.channels * k.run);
  for (long unit = row_first(); unit < k.groups * k.slabs; unit += row_step()) {
    const long group = unit % k.groups, first = group * k.channels, all = k.groups * k.channels;
    floats slab = FLOATS_OF(slabs) + unit / k.groups * 2 * all + first;
    long begin, end;
    range_of(k.batch, k.slabs, unit / k.groups, &begin, &end);
    for (long batch = begin; batch < end; ++batch) {
      const long from = batch * k.dy.batch + first * k.dy.channel, at = batch * k.x.batch + first * k.x.channel;
      const long to = batch * k.out.batch + first * k.out.channel, r = batch * k.groups + group;
      const float center = FLOATS_OF(mean)[r], scale = FLOATS_OF(rstd)[r];
      pair sum = {0, 0}, dot = {0, 0};
      FOR_CHANNEL(c) {
        vpair sums = VPAIR_START, dots = VPAIR_START;
        FOR_RUN(i, n) {
          const vf d = load_n(dys, from + c * k.dy.channel + i, T, n);
          sums = vpair_add(sums, d);
          dots = vpair_fma(dots, d, first_or(load_n(xs, at + c * k.x.channel + i, T, n) - center, n, 0));
        }
        const float db = CHANNEL_TOTAL(sums), dw = CHANNEL_TOTAL(dots) * scale;
        const float weight = ws ? load_one(ws, first + c, k.w_dtype) : 1;
        sum = pair_add(sum, db * weight), dot = pair_add(dot, dw * weight);
        if (is_there(slabs) && CHANNEL_LEADS) {
          slab[c] = batch == begin ? dw : slab[c] + dw;
          slab[all + c] = batch == begin ? db : slab[all + c] + db;
        }
      }
      const float mean_g = GROUP_TOTAL(sum) / count, mean_dot = GROUP_TOTAL(dot) / count;
      FOR_CHANNEL(c) {
        const float weight = ws ? load_one(ws, first + c, k.w_dtype) : 1;
        FOR_RUN(i, n) {
          const vf xhat = (load_n(xs, at + c * k.x.channel + i, T, n) - center) * scale;
          const vf g = load_n(dys, from + c * k.dy.channel + i, T, n) * weight;
          store_n(dxs, to + c * k.out.channel + i, T, n, fma(-xhat, (vf)(mean_dot), g - mean_g) * scale);
        }
      }
    }
  }
}

#undef FOR_CHANNEL
#undef FOR_RUN
#undef CHANNEL_TOTAL
#undef GROUP_TOTAL
#undef CHANNEL_LEADS
