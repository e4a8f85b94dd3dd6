#ifndef ROWS_CL
#define ROWS_CL
/* What some kernels over rows share: f32 memory, a row as a source of vectors, sparsemax's threshold. */
#include "math.cl"

/* A row: where it begins. */
typedef struct source {
  memory of;
  long at;
  int dtype;
} source;
static inline vf source_n(const source *s, long i, long n) { return load_n(s->of, s->at + i, s->dtype, n); }

/* 0 where v is not above it. A NaN stays. */
static inline vf positive(vf v) { return either(v <= 0, (vf)(0.0f), v); }

/* Vectors that a work-item with a row of its own keeps, in private memory. */
enum { KEPT = IS_ALONE ? 4096 / LANES + 1 : 1 };

static inline members members_join(members a, members b) {
  return (members){pair_join(a.sum, b.sum), a.count + b.count};
}
#if GROUP == 1
#define row_members(v) (v)
#else
TREE(tree_members, members, members, members_join)
#define row_members(v) tree_members(space, v)
#endif

/* Does tau grow? A NaN does not, and stays. */
static inline bool tau_grows(members of, float *tau) {
  const float next = of.count > 0 ? pair_value(pair_add(of.sum, -1.0f)) / of.count : *tau;
  if (next <= *tau) return false;
  *tau = next;
  return !isnan(next);
}

/* Adds the lanes of z above tau, and a NaN. */
typedef struct members_by_lanes {
  vpair sum;
  vf count;
} members_by_lanes;
static inlined void add_members(members_by_lanes *s, vf z, float tau) {
  const vf none = 0, one = 1;
  s->sum = vpair_add(s->sum, either(z <= tau, none, z));
  s->count += either(z <= tau, none, one);
}
#define members_total(s) row_members(((members){pair_of((s).sum), sum_of((s).count)}))

/* What a work-item alone keeps of a short row's z: vectors that have members, and where they are. */
typedef struct kept_row {
  vf z[KEPT];
  int at[KEPT];
} kept_row;
static inline bool keeps_row(long cols) { return IS_ALONE && cols <= (KEPT - 1) * LANES; }

/* How many are kept with z. Without a branch: nobody guesses which vectors have members. */
static inlined int keep_members(kept_row *kept, int count, vf z, int at, float tau) {
  kept->z[count] = z;
  kept->at[count] = at;
  return count + any_lane(!(z <= tau));
}

/* Where a row of y begins, and x's next row. */
typedef struct row_places {
  memory y;
  long to, after;
} row_places;

/* The largest x of each lane, of four times as many lanes where a work-item is alone: numbers with a place of their own. The row of y is asked
 * for; `out` may be NULL. */
enum { STARTS = IS_ALONE ? 4 : 1 };
static inlined float row_largest(room space, const source *x, long cols, vf most[STARTS], const row_places *out) {
  const long whole = IS_ALONE ? cols / (STARTS * LANES) * (STARTS * LANES) : 0;
#pragma unroll
  for (int j = 0; j < STARTS; ++j) most[j] = -INFINITY;
  for (long i = 0; i < whole; i += STARTS * LANES)
#pragma unroll
    for (int j = 0; j < STARTS; ++j) {
      most[j] = larger(most[j], load_all(x->of, x->at + i + j * LANES, x->dtype));
      if (out) ask_for(out->y, out->to + i + j * LANES, T);
    }
  FOR_ROW(i, n, cols - whole) most[0] = larger(most[0], first_or(source_n(x, whole + i, n), n, -INFINITY));
  vf all = most[0];
#pragma unroll
  for (int j = 1; j < STARTS; ++j) all = larger(all, most[j]);
  return row_max(max_of(all));
}

/* tau of x - base by Newton's method from the left: members are the z above tau, which grows to (their sum - 1) / (how many) until it grows no
 * more. Of fewer elements it comes out smaller, so that the largest ones of the lanes, `most`, give a start. Later members are among those that a
 * short row keeps: *count of them. A short row of y is zeros then, and x's next row is asked for; `out` may be NULL. */
static inlined float sparse_tau(room space, const source *x, long cols, float base, const vf most[STARTS],
                                kept_row *kept, int *count, const row_places *out) {
  const bool keeps = keeps_row(cols);
  float tau = -1;
  members of;
  int found = 0;
  do {
    members_by_lanes s = {{(vf)(0.0f), (vf)(0.0f)}, (vf)(0.0f)};
#pragma unroll
    for (int j = 0; j < STARTS; ++j) add_members(&s, most[j] - base, tau);
    of = members_total(s);
  } while (tau_grows(of, &tau));
  if (keeps) FOR_ROW(i, n, cols) {
    found = keep_members(kept, found, first_or(source_n(x, i, n) - base, n, -INFINITY), (int)i, tau);
    if (!out) continue;
    ask_for(x->of, out->after + i, T);
    store_n(out->y, out->to + i, T, n, (vf)(0.0f));
  }
  do {
    members_by_lanes s = {{(vf)(0.0f), (vf)(0.0f)}, (vf)(0.0f)};
    const int before = found;
    found = 0;
    for (int j = 0; j < before; ++j) {
      const vf z = kept->z[j];
      add_members(&s, z, tau);
      found = keep_members(kept, found, z, kept->at[j], tau);
    }
    if (!keeps) FOR_ROW(i, n, cols) add_members(&s, first_or(source_n(x, i, n) - base, n, -INFINITY), tau);
    of = members_total(s);
  } while (tau_grows(of, &tau));
  *count = found;
  return tau;
}

#endif
