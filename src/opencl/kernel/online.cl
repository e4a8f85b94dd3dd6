/* The largest number of a row that is read once, and the sum of exp(z - max): NaN where a number is, or is +Inf; of -Inf alone -Inf and 0. */
#include "math.cl"

typedef struct online {
  vf max, sum; /* over each lane's numbers */
} online;
#define ONLINE_START ((online){(vf)(-INFINITY), (vf)(0.0f)})

/* exp(z - max), 0 where all is -Inf. */
static inline vf online_exp(vf z, vf max) { return exp_to_64_of(z - either(max == -INFINITY, (vf)(0.0f), max)); }

/* Takes n numbers, LANES at most. */
static inline online online_add(online s, vf z, long n) {
  float part[LANES];
  if (n < LANES) {
    store_floats(z, 0, part);
    for (int j = (int)n; j < LANES; ++j) part[j] = -INFINITY;
    z = load_floats(0, part);
  }
  const vf max = either(z > s.max, z, s.max); /* a NaN comes back from exp */
  s.sum = s.sum * online_exp(s.max, max) + online_exp(z, max);
  s.max = max;
  return s;
}

/* The row's, in a kernel with ROOM: all its work-items give what they have. */
#define online_max(s) row_max(max_of((s).max))
#define online_sum(s, max_of_row) row_sum(sum_of((s).sum * online_exp((s).max, (vf)(max_of_row))))
