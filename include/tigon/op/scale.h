/* scale: a tensor times a number in the device's memory, such as the gradient of a loss that was made before its factor was known.
 *
 *   y = factor * x
 * Where y is x and factor is 1, only factor is read, and nothing is written. The device sees that, so the caller need not
 * wait for the number. The gradient of x is factor * dy, a call of the same entry.
 *
 * Shapes: x, y [..., C]; factor [1].
 * dtypes: x f32, bf16, f16; y as x; factor f32. The arithmetic is f32, rounded once, at the store.
 * Strides: the last one is 1, the leading ones are free (three at most: tigon.h).
 * In place: y may be x.
 * Errors: INVALID, ALIAS, UNSUPPORTED. */
#ifndef TIGON_OP_SCALE_H
#define TIGON_OP_SCALE_H

#include <tigon/context.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tigon_scale_fwd_args {
  tigon_tensor x;      /* in  [..., C] */
  tigon_tensor factor; /* in  [1] */
  tigon_tensor y;      /* out [..., C] */
  uint64_t reserved[4];
} tigon_scale_fwd_args;

TIGON_API tigon_status tigon_scale_fwd(tigon_context *context, const tigon_scale_fwd_args *args);

#ifdef __cplusplus
}
#endif

#endif
