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

/* tau of x - base by Newton's method from the left: members are the z above tau, which grows to (their sum - 1) / (how many) until it grows no
 * more. Of fewer elements it comes out smaller, so that the largest ones of the lanes, `most`, give a start. */
static inlined float sparse_tau(room space, const source *x, long cols, float base, vf most) {
  const vf none = 0, one = 1;
  float tau = -1;
  members of;
  do {
    const vf z = most - base;
    const vpair sum = {either(z > tau, z, none), none};
    of = row_members(((members){pair_of(sum), sum_of(either(z > tau, one, none))}));
  } while (tau_grows(of, &tau));
  do {
    vpair sum = {none, none};
    vf count = 0;
    FOR_ROW(i, n, cols) {
      const vf z = first_or(source_n(x, i, n) - base, n, -INFINITY);
      sum = vpair_add(sum, either(z <= tau, none, z));
      count += either(z <= tau, none, one);
    }
    of = row_members(((members){pair_of(sum), sum_of(count)}));
  } while (tau_grows(of, &tau));
  return tau;
}

/* The largest numbers of a row by lanes, -Inf without one. */
static inline vf largest_by_lanes(const source *x, long cols) {
  vf most = -INFINITY;
  FOR_ROW(i, n, cols) most = fmax(most, first_or(source_n(x, i, n), n, -INFINITY));
  return most;
}

#endif
