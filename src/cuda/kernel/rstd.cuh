/* 1 / sqrt(sum / count + eps) in f32, as precise as f32 can have it: what the quotient, the sum and the root round away is put back by
 * one step of Newton's, so that a row's rstd has the error of `sum` alone. */
#ifndef TIGON_CUDA_KERNEL_RSTD_CUH
#define TIGON_CUDA_KERNEL_RSTD_CUH

__device__ static inline float precise_rstd(float sum, float count, float eps) {
  const float quotient = sum / count, mean = quotient + eps;
  const float rstd = 1.0f / sqrtf(mean);
  /* sum / count + eps is mean + rest; Dekker's sum of two, of which either may be the larger. */
  const float back = mean - quotient;
  const float rest = (quotient - (mean - back)) + (eps - back) + fmaf(-quotient, count, sum) / count;
  const float product = mean * rstd, low = fmaf(mean, rstd, -product);
  const float error = fmaf(-product, rstd, 1.0f) - rstd * fmaf(rest, rstd, low);
  const float better = fmaf(0.5f * rstd, error, rstd);
  return isfinite(better) ? better : rstd;
}

#endif
