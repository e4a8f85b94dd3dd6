/* What the launcher of multi_token_attention hands to its kernels. A call goes over all planes at once, a chunk of queries after the
 * other, whose rows lie in a workspace in f32:
 *   u  scores, or norm() of them, with zeros for the padding
 *   g  backward: the gradient of the convolution's rows, with zeros around it
 *   c  what a convolution has made
 * Taps of a row are loads of the same row from different columns on. With a stride of columns, u also has a row for each tap's
 * columns, without the stride. g has a row without the zeros that the stride puts between its elements. */
#ifndef TIGON_ASCEND_KERNEL_MULTI_TOKEN_ATTENTION_H
#define TIGON_ASCEND_KERNEL_MULTI_TOKEN_ATTENTION_H

#include "ascend/kernel/rows.h"

enum { MTA_TAPS = 64 /* columns of a kernel at most */ };

/* Rows of planes: row r of plane k is row k * plane + r - first of the space. */
typedef struct mta_planes {
  gm_space space;
  gm_rows rows;
  int64_t plane, first, dtype;
} mta_planes;

/* One direction of the convolution, as tigon_window. */
typedef struct mta_window {
  int64_t taps, stride, padding, dilation;
} mta_window;

/* Rows [begin, begin + count) of all planes, to which a launch is cut; `panel`: columns on chip. */
typedef struct mta_band {
  int64_t planes, begin, count, panel;
} mta_band;

/* What happens to x: nothing, norm() with the number that `stat` has, or with one that is found and stored. */
enum { MTA_AS_IT_IS, MTA_KNOWN, MTA_FOUND };

/* out = x, norm(x), or with q norm'(q) at norm(x); plus a plane's bias. Row r has r + 1 elements, but at most `cols`. */
typedef struct mta_rows_arguments {
  mta_band band;
  mta_planes x, q, out; /* q may be absent: data NULL */
  gm_ptr stat;          /* [planes, stat_rows] f32; NULL: not stored */
  gm_ptr bias;          /* [biases], a plane has that of its channel; NULL: 0 */
  int64_t stat_rows, biases, bias_dtype;
  int64_t cols;
  int64_t out_cols; /* zeros follow up to it; 0: nothing follows */
  int64_t norm, sparse;
} mta_rows_arguments;

/* to = the convolution of `from`, or its transpose. Planes of `to` are [batch, channels]. Rows of both are `pitch` apart, so that
 * `rows` of them are one line where the stride of rows is 1; what lies between them is worked on and never read. */
typedef struct mta_convolve_arguments {
  mta_band band;
  mta_planes from, to;
  gm_ptr weight;
  int64_t weight_dtype;
  int64_t channels, own, others; /* channels of `to`; channels of a group in `to` and in `from` */
  int64_t transposed;
  int64_t cols, from_rows; /* columns of `to`; rows of a plane of `from` */
  int64_t rows, pitch;
  int64_t tap_first, tap_step; /* tap t of column j meets column tap_first + t * tap_step + j of a row of `from` */
  mta_window h, w;
} mta_convolve_arguments;

/* A stride of columns. mta_pick: row t of to's `taps` rows, `cols` apart, has what tap t meets. mta_spread: element j goes to
 * column j * stride. */
typedef struct mta_stride_arguments {
  mta_band band;
  mta_planes from, to;
  int64_t cols;
  mta_window w;
} mta_stride_arguments;

/* slabs[slab] += dweight and dbias of every slab's rows, those of the band in all batches. */
typedef struct mta_sums_arguments {
  mta_band band;
  mta_planes u, g;
  gm_ptr slabs; /* [count, weights + out] f32 */
  int64_t count, first, weights;
  int64_t of_weight, of_bias; /* which are wanted */
  int64_t batch, in, out, groups, tokens, cols;
  int64_t tap_step;
  mta_window h, w;
} mta_sums_arguments;

/* memory[count] = 0 */
typedef struct mta_clear_arguments {
  gm_ptr memory;
  int64_t count, panel;
} mta_clear_arguments;

AICORE gm_ptr mta_row(const mta_planes *of, int64_t plane, int64_t r, int64_t c) {
  return row_at(&of->space, &of->rows, dtype_bytes(of->dtype), plane * of->plane + r - of->first, c);
}
/* Columns of row r that count. */
AICORE int64_t mta_allowed(int64_t r, int64_t cols) { return least(r + 1, cols); }

void mta_clear(ub_arena *ub, const void *arguments);
void mta_rows(ub_arena *ub, const void *arguments);
void mta_convolve(ub_arena *ub, const void *arguments);
void mta_pick(ub_arena *ub, const void *arguments);
void mta_spread(ub_arena *ub, const void *arguments);
void mta_sums(ub_arena *ub, const void *arguments);

/* f32 tiles of `panel` elements that the kernel with the most of them has, and elements besides. */
enum { MTA_TILES = 9, MTA_WORDS = 512 };

#endif
