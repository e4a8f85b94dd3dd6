/* The sizes that sweeps run an op on. */
#include <string.h>

#include "check/sweep.h"

enum { N = -1, N2 = -2 /* 2 n */, WALKS = 3 };
/* 4096 columns in so many rows, or three rows of so many, are beyond 2^31 elements. */
enum { MANY = (1 << 19) + 128, THIRD = 3 << 28 };

static const struct sizes {
  const char *op;
  int64_t of[CHECK_WIDE + 1][CHECK_DIMS]; /* by check_size */
  int64_t walks[WALKS][CHECK_DIMS];
  unsigned coupled; /* a bit for every option whose rows share something: a denominator, a count, a table of labels */
  double large;     /* 0: 2^60 */
} table[] = {
    /* batch, positions, columns */
    {"softmax",
     {{2, 2, 35}, {7, 5, 67}, {300, 2, 19}, {3, 2, 64}, {MANY / 2, 2, 4096}, {3, 1, THIRD}},
     {{2, 3, N}, {1, N, 7}, {N, 2, 5}},
     0,
     0},
    /* batch, tokens, query heads, key heads, head_dim */
    {"rope",
     {{1, 2, 2, 1, 12}, {3, 17, 6, 2, 64}, {300, 3, 2, 1, 10}, {3, 2, 2, 1, 16}, {MANY / 4, 4, 32, 4, 128}},
     {{1, 3, 2, 1, N2}, {1, N, 3, 1, 6}, {N, 2, 1, 1, 4}},
     0,
     0},
    /* tokens, hidden, vocabulary */
    {"embedding",
     {{3, 19, 4}, {67, 131, 57}, {300, 9, 20}, {3, 16, 3}, {MANY, 4096, 57}, {67, 4096, MANY}},
     {{5, N, 7}, {N, 3, 11}, {7, 5, N}},
     0,
     0},
    /* batch, queries, keys, query heads, key heads, head_dim. Backward has e^(z - lse) from a lse in f32, so scores are small
     * beside 2^24. */
    {"attention",
     {{1, 4, 4, 2, 1, 3},
      {2, 17, 65, 2, 1, 8},
      {300, 3, 5, 2, 1, 4},
      {3, 2, 2, 2, 1, 16},
      {MANY / 4, 4, 4, 32, 4, 128}},
     {{1, N, N, 1, 1, 3}, {1, 2, N, 1, 1, 5}, {1, 3, 5, 2, 1, N}},
     0,
     0x1p10},
    /* rows, n, k */
    {"linear",
     {{3, 5, 7}, {37, 34, 65}, {300, 9, 13}, {3, 3, 64}, {MANY, 4096, 8}},
     {{N, 5, 7}, {5, N, 7}, {5, 7, N}},
     0,
     0},
    /* batch, channels, positions, groups */
    {"group_norm",
     {{2, 4, 5, 2}, {5, 12, 131, 4}, {300, 4, 5, 2}, {3, 4, 16, 2}, {MANY / 32, 32, 4096, 8}, {3, 4, THIRD / 4, 2}},
     {{2, 4, N, 2}, {2, N2, 3, 2}, {N, 2, 3, 1}},
     0,
     0},
    /* rows, width, vocabulary; mean's denominator is of all rows */
    {"fused_linear_cross_entropy",
     {{3, 4, 5}, {37, 16, 67}, {300, 5, 9}, {3, 16, 3}, {MANY, 4096, 5}},
     {{N, 3, 5}, {3, N, 5}, {3, 5, N}},
     1 << 0 | 1 << 1 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 8,
     0},
    /* rows, columns; ignore_index is the label of a middle row, mean's denominator is of all rows */
    {"cross_entropy",
     {{2, 35}, {67, 131}, {300, 37}, {3, 64}, {MANY, 4096}, {3, THIRD}},
     {{3, N}, {N, 5}, {1, N}},
     1 << 0 | 1 << 1 | 1 << 3 | 1 << 4 | 1 << 6 | 1 << 7,
     0},
    /* rows, columns; which rows share a scale follows from how many there are */
    {"modulated_rms_norm",
     {{2, 35}, {67, 131}, {300, 37}, {3, 64}, {MANY, 4096}, {3, THIRD}},
     {{3, N}, {N, 5}, {1, N}},
     1 << 0 | 1 << 3 | 1 << 4,
     0},
    /* elements of the first tensor are the product; a list of vectors, which have no pitch */
    {"adamw", {{1, 35}, {67, 131}, {300, 37}, {0}}, {{1, N}, {N, 3}, {0}}, 0, 0},
    /* All others: rows, columns. */
    {NULL, {{2, 35}, {67, 131}, {300, 37}, {3, 64}, {MANY, 4096}, {3, THIRD}}, {{3, N}, {N, 5}, {1, N}}, 0, 0},
};

static const struct sizes *sizes_of(const char *op) {
  const struct sizes *s = table;
  while (s->op && strcmp(s->op, op) != 0) ++s;
  return s;
}

bool check_dims(const char *op, check_size size, int64_t dims[CHECK_DIMS]) {
  memcpy(dims, sizes_of(op)->of[size], sizeof sizes_of(op)->of[size]);
  return dims[0] != 0;
}

bool check_dims_walk(const char *op, int walk, int64_t n, int64_t dims[CHECK_DIMS]) {
  if (walk >= WALKS) return false;
  for (int d = 0; d < CHECK_DIMS; ++d) {
    const int64_t dim = sizes_of(op)->walks[walk][d];
    dims[d] = dim == N ? n : dim == N2 ? 2 * n : dim;
  }
  return dims[0] != 0;
}

double check_large(const char *op) { return sizes_of(op)->large > 0 ? sizes_of(op)->large : 0x1p60; }

bool check_rows_apart(const char *op, int option) { return !(sizes_of(op)->coupled >> option & 1); }
