/* Numbers in two floats, as launchers make them: high is the nearest float. */
#ifndef TIGON_OPENCL_KERNEL_WIDE_H
#define TIGON_OPENCL_KERNEL_WIDE_H

#ifndef __OPENCL_VERSION__
typedef struct pair {
  float high, low;
} pair;
static inline pair opencl_pair(double x) { return (pair){(float)x, (float)(x - (double)(float)x)}; }
#endif

#endif
