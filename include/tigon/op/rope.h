/* rope: rotary position embedding of queries and keys together (Su et al. 2021, arXiv:2104.09864).
 *
 * The first rotary_dim = R elements of each head are R/2 pairs, which are rotated by an angle. The rest is copied.
 *   layout half (Llama, Hugging Face): pair i is (x[i], x[i + R/2])
 *   layout interleaved (GPT-J, Llama 4): pair i is (x[2i], x[2i + 1])
 *   (u, v) -> (u * cos_i - v * sin_i,  v * cos_i + u * sin_i)
 * Backward rotates by the opposite angle: it takes dq and dk, and gives the gradients of the unrotated q and k.
 *
 * Multimodal positions (Qwen2-VL, arXiv:2409.12191): a token has three positions, for time, height and width. Each pair is
 * rotated by the angle of one of these axes. A call is of this kind if section_t + section_h + section_w = R/2.
 *   in sections (Qwen2-VL): the first section_t pairs are time's, the next section_h are height's, the others width's.
 *   sections_interleaved (Qwen3-VL): pair i is height's where i mod 3 = 1 and i < 3 section_h. It is width's where i mod 3 = 2
 *   and i < 3 section_w. Else it is time's.
 *
 * Shapes: q [B, T, Hq, D]; k [B, T, Hk, D]. Their last stride is 1 and the others are any, so [B, H, T, D] memory is a transposed
 *   view.
 *   cos, sin [P, R/2] or [P, R], shared by the batch, or [B, P, R/2 or R]. With R columns (Hugging Face's doubled form) the first
 *   R/2 are read. cos and sin have the same strides. With sin absent, cos is a table of complex numbers, [P, R/2, 2] or
 *   [B, P, R/2, 2]: (cos_i, sin_i) side by side.
 *   Position ids, if given, are [B, T] (or [1, T] for all sequences) with 0 <= id < P, contiguous. Without them token t takes row
 *   t, and P >= T.
 *   With sections, position ids are [3, B, T] (or [3, 1, T]). A table is shared by axes and batch, or has an axis of its own in
 *   front: [3, P, R/2 or R] or [3, B, P, R/2 or R]. Complex numbers have a last extent of 2 more.
 * dtypes: q f32, bf16, f16; k and the outputs as q; cos and sin f32 or as q; positions i32 or i64. Arithmetic in f32.
 * In place: q_out may be q, k_out may be k.
 * A position outside [0, P), of any axis: with `error` given, that token is written as NaN and *error becomes 1. Without `error` a
 *   host device refuses the call (nothing is written), and another device reports it at tigon_context_sync().
 * Errors: INVALID, ALIAS, UNSUPPORTED. */
#ifndef TIGON_OP_ROPE_H
#define TIGON_OP_ROPE_H

#include <tigon/context.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tigon_rope_layout {
  TIGON_ROPE_HALF = 0,
  TIGON_ROPE_INTERLEAVED = 1,
} tigon_rope_layout;

typedef struct tigon_rope_args {
  tigon_tensor q;   /* in  [B, T, Hq, D] (backward: dq of the rotated q) */
  tigon_tensor k;   /* in  [B, T, Hk, D]; absent: only q */
  tigon_tensor cos; /* in  [P, R/2], [P, R], [B, P, R/2] or [B, P, R]; with sections also [3, P, ..], [3, B, P, ..] */
  tigon_tensor sin; /* in  as cos; absent: cos is complex, [.., R/2, 2] */
  tigon_tensor positions; /* in  [B, T] or [1, T], with sections [3, B, T] or [3, 1, T]; i32 or i64; absent: 0..T-1 */
  tigon_tensor q_out;     /* out [B, T, Hq, D] */
  tigon_tensor k_out;     /* out [B, T, Hk, D]; absent when k is */
  tigon_tensor error;     /* out [1] i32, set to 1 by a position out of range and else not written; may be absent */
  tigon_rope_layout layout;
  int64_t rotary_dim;       /* even, <= D; 0 means D */
  int64_t section_t;        /* pairs of time; R/2 with the next two, or all 0: one position a token */
  int64_t section_h;        /* pairs of height */
  int64_t section_w;        /* pairs of width */
  int sections_interleaved; /* 0 or 1 */
  uint64_t reserved[4];
} tigon_rope_args;

TIGON_API tigon_status tigon_rope_fwd(tigon_context *context, const tigon_rope_args *args);
TIGON_API tigon_status tigon_rope_bwd(tigon_context *context, const tigon_rope_args *args);

#ifdef __cplusplus
}
#endif

#endif
