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

/* tau of x - base by Newton's method from the left: members are the z above tau, which grows to (their sum - 1) / (how many) until it grows no
 * more. Of fewer elements it comes out smaller, so that the largest ones of the lanes, `most`, give a start. A work-item alone keeps a short row's
 * vectors that have members of it: later ones are among them. */
static inlined float sparse_tau(room space, const source *x, long cols, float base, vf most) {
  const bool keeps = IS_ALONE && cols <= (KEPT - 1) * LANES;
  float tau = -1;
  members of;
  vf kept[KEPT];
  int count = 0;
  do {
    members_by_lanes s = {{(vf)(0.0f), (vf)(0.0f)}, (vf)(0.0f)};
    add_members(&s, most - base, tau);
    of = members_total(s);
  } while (tau_grows(of, &tau));
  if (keeps) FOR_ROW(i, n, cols) {
    const vf z = first_or(source_n(x, i, n) - base, n, -INFINITY);
    kept[count] = z;
    count += any_lane(!(z <= tau));
  }
  do {
    members_by_lanes s = {{(vf)(0.0f), (vf)(0.0f)}, (vf)(0.0f)};
    const int before = count;
    count = 0;
    for (int i = 0; i < before; ++i) {
      const vf z = kept[i];
      add_members(&s, z, tau);
      kept[count] = z;
      count += any_lane(!(z <= tau));
    }
    if (!keeps) FOR_ROW(i, n, cols) add_members(&s, first_or(source_n(x, i, n) - base, n, -INFINITY), tau);
    of = members_total(s);
  } while (tau_grows(of, &tau));
  return tau;
}

#endif
