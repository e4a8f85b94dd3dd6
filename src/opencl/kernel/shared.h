/* What launchers and kernels agree on, in C and in OpenCL C. */
#ifndef TIGON_OPENCL_KERNEL_SHARED_H
#define TIGON_OPENCL_KERNEL_SHARED_H

#ifdef __OPENCL_VERSION__
typedef long int64_t;
typedef int int32_t;

/* src/problem/rows.h's. */
typedef struct tigon_row_space {
  int64_t rows, middle, inner;
} tigon_row_space;
#else
#include <tigon/base.h>

#include "problem/rows.h"
_Static_assert(TIGON_I64 == 5, "INT_64 of kernels");
#endif

enum { INT_64 = 5 }; /* TIGON_I64 */

/* Row (i, j, k) of a tensor begins of[0] * i + of[1] * j + of[2] * k elements after its address. */
typedef struct cl_pitch {
  int64_t of[3];
} cl_pitch;

#endif
