/* What relu_squared's launcher and kernels agree on. */
#ifndef TIGON_CUDA_RELU_SQUARED_H
#define TIGON_CUDA_RELU_SQUARED_H

enum { RELU_SQUARED_FWD_PACKS = 1, RELU_SQUARED_BWD_PACKS = 1 }; /* of a thread and tensor */

#endif
