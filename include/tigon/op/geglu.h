/* geglu: a gated MLP's activation with gelu.
 * Sources: Shazeer 2020, arXiv:2002.05202; gelu: Hendrycks & Gimpel 2016, arXiv:1606.08415.
 *
 * Forward:   c = gelu(a) * b
 *            TANH: gelu(a) = 0.5 * a * (1 + tanh(u)),   u = sqrt(2 / pi) * (a + 0.044715 * a^3)
 *            ERF:  gelu(a) = a * Phi(a),                Phi(a) = 0.5 * (1 + erf(a / sqrt(2)))
 * Backward:  db = dc * gelu(a)
 *            da = dc * b * gelu'(a)
 *            TANH: gelu'(a) = s + a * s * (1 - s) * 2 * u'(a),   s = 0.5 * (1 + tanh(u))
 *            ERF:  gelu'(a) = Phi(a) + a * exp(-a^2 / 2) / sqrt(2 pi)
 *
 * Shapes: a, b, c, da, db, dc [..., I]. A packed [..., 2I] tensor is passed as two views of it.
 * dtypes: f32, bf16, f16, all the same; arithmetic in f32, one rounding at the store.
 * Strides: the last one is 1, the leading ones are free (three at most: tigon.h).
 * In place: c may be a or b; da, db may be a, b or dc (da and db differ).
 * Errors: INVALID, ALIAS, UNSUPPORTED. */
#ifndef TIGON_OP_GEGLU_H
#define TIGON_OP_GEGLU_H

#include <tigon/context.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tigon_gelu {
  TIGON_GELU_TANH = 0,
  TIGON_GELU_ERF = 1, /* exact */
} tigon_gelu;

typedef struct tigon_geglu_fwd_args {
  tigon_tensor a; /* in  [..., I], the gate */
  tigon_tensor b; /* in  [..., I], up */
  tigon_tensor c; /* out [..., I] */
  tigon_gelu approx;
  uint64_t reserved[4];
} tigon_geglu_fwd_args;

TIGON_API tigon_status tigon_geglu_fwd(tigon_context *context, const tigon_geglu_fwd_args *args);

typedef struct tigon_geglu_bwd_args {
  tigon_tensor dc; /* in  [..., I] */
  tigon_tensor a;  /* in  [..., I], forward's */
  tigon_tensor b;  /* in  [..., I], forward's */
  tigon_tensor da; /* out [..., I] */
  tigon_tensor db; /* out [..., I] */
  tigon_gelu approx;
  uint64_t reserved[4];
} tigon_geglu_bwd_args;

TIGON_API tigon_status tigon_geglu_bwd(tigon_context *context, const tigon_geglu_bwd_args *args);

#ifdef __cplusplus
}
#endif

#endif
