/* The kernels of relu_squared. */
#ifndef TIGON_ASCEND_KERNEL_RELU_SQUARED_H
#define TIGON_ASCEND_KERNEL_RELU_SQUARED_H

#include "ascend/kernel/pointwise.h"

void relu_squared_fwd(ub_arena *ub, const void *arguments); /* in: x; out: y */
void relu_squared_bwd(ub_arena *ub, const void *arguments); /* in: x, dy; out: dx */

#endif
