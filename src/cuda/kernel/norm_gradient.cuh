/* The gradient of a norm, for every way in which a kernel holds a row. xhat = (x - mean) * rstd, g = dy * w, and averages are over
 * the row's columns:
 *   dx = rstd * (g - average(g) - average(g * xhat) * xhat) + ds,   dw = sum over rows of dy * xhat,   db = sum over rows of dy.
 * Only layer_norm has a mean, average(g) and db; only fused_add_rms_norm has ds. */
#ifndef TIGON_CUDA_KERNEL_NORM_GRADIENT_CUH
#define TIGON_CUDA_KERNEL_NORM_GRADIENT_CUH

#include "cuda/kernel/norm.cuh"

template <norm_kind KIND> struct norm_gradient {
  enum { VALUES = KIND == NORM_LAYER ? 2 : 1 }; /* sums of a row: over g * xhat, and over g */
  float rstd, slope, shift;

  __device__ static void add(float g, float xhat, float (&sums)[VALUES]) {
    sums[0] = fmaf(g, xhat, sums[0]);
    if constexpr (VALUES == 2) sums[1] += g;
  }

  /* Makes the averages from the row's sums. share = 1 / columns. */
  __device__ norm_gradient(float of_row, const float (&sums)[VALUES], float share)
      : rstd(of_row), slope(-of_row * (sums[0] * share)),
        shift(VALUES == 2 ? -of_row * (sums[VALUES - 1] * share) : 0) {}

  __device__ float dx(float g, float xhat, float ds = 0) const {
    const float rest = KIND == NORM_ADD_RMS ? fmaf(g, rstd, ds) : VALUES == 2 ? fmaf(g, rstd, shift) : g * rstd;
    return fmaf(xhat, slope, rest);
  }
};

#endif
