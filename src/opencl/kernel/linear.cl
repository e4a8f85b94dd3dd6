/* A product of any operands, and a sum over rows, which reads them once. Dtypes are numbers, so that one program has them all. */
#include "common.cl"

typedef long gemm_lines; /* the pitch */
static inline long gemm_line(const gemm_lines *pitch, long i) { return i * *pitch; }

typedef struct gemm_result {
  memory c, bias, sums; /* NULL where there are none */
  long row, col, n, pitch; /* the tile's first element; all columns; the pitch of c */
  int dtype, bias_dtype, accumulate;
} gemm_result;
static inline void gemm_put(const gemm_result *to, int row, int col, int n, vf v) {
  const long r = to->row + row, c = to->col + col, at = r * to->pitch + c;
  if (to->bias) v += load_n(to->bias, c, to->bias_dtype, n);
  if (to->sums) v += load_n(to->sums, r * to->n + c, F32, n);
  if (to->accumulate) v += load_n(to->c, at, to->dtype, n);
  store_n(to->c, at, to->dtype, n, v);
}
#include "gemm_tile.h"

__kernel void linear_gemm(TENSOR(a), TENSOR(b), TENSOR(c), TENSOR(bias), TENSOR(sums), const gemm_numbers k) {
  GEMM_MEMORY
  const long across = (k.n + GEMM_TILE - 1) / GEMM_TILE, tile = (long)get_group_id(0);
  const long row = tile / across * GEMM_TILE, col = tile % across * GEMM_TILE;
  const gemm_side of_a = {memory_of(a), k.a.dtype, !k.a.transposed, gemm_extent(k.m, row), row, k.a.pitch};
  const gemm_side of_b = {memory_of(b), k.b.dtype, k.b.transposed, gemm_extent(k.n, col), col, k.b.pitch};
  const gemm_result to = {memory_of(c), or_null(bias), or_null(sums),
                          row, col, k.n, k.c_pitch, k.c_dtype, k.bias_dtype, k.accumulate};
  gemm_multiply(&of_a, &of_b, k.k, &to);
}

/* Vectors of a group's columns, which its work-items have in turns, and strands of rows, which are summed apart and then in order. */
#if GROUP == 1
enum { BIAS_STRANDS = 1, BIAS_ITEMS = 1 };
#define BIAS_MEMORY
#else
enum { BIAS_STRANDS = BIAS_GROUP / (BIAS_COLUMNS / LANES), BIAS_ITEMS = BIAS_GROUP };
#define BIAS_MEMORY __local float strands[BIAS_STRANDS * BIAS_COLUMNS];
#endif

static inline vf bias_strand(memory dy, const bias_numbers *k, long first, long col) {
  enum { AT_ONCE = 64 }; /* rows that are summed by themselves */
  vf total = 0;
  for (long r0 = first; r0 < k->rows; r0 += AT_ONCE * BIAS_STRANDS) {
    vf part = 0;
    const long end = min(r0 + AT_ONCE * BIAS_STRANDS, (long)k->rows);
    for (long r = r0; r < end; r += BIAS_STRANDS) part += load_n(dy, r * k->pitch + col, k->dy_dtype, k->cols - col);
    total += part;
  }
  return total;
}

__kernel void linear_bias(TENSOR(dy), TENSOR(sums), TENSOR(to), const bias_numbers k) {
  BIAS_MEMORY
  for (int c = (int)get_local_id(0) % BIAS_ITEMS % (BIAS_COLUMNS / LANES); c < BIAS_COLUMNS / LANES; c += BIAS_ITEMS) {
    const long col = (long)get_group_id(0) * BIAS_COLUMNS + c * LANES;
    const int strand = (int)get_local_id(0) / (BIAS_COLUMNS / LANES);
    vf all = bias_strand(memory_of(dy), &k, strand, col);
#if GROUP > 1
    store_floats(all, 0, strands + strand * BIAS_COLUMNS + c * LANES);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int s = 1; strand == 0 && s < BIAS_STRANDS; ++s) all += load_floats(0, strands + s * BIAS_COLUMNS + c * LANES);
#endif
    if (strand > 0 || col >= k.cols) continue;
    if (is_there(sums)) all += load_n(memory_of(sums), col, F32, k.cols - col);
    if (k.accumulate) all += load_n(memory_of(to), col, k.dtype, k.cols - col);
    store_n(memory_of(to), col, k.dtype, k.cols - col, all);
  }
}
