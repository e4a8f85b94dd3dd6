/* What relu_squared's launcher and kernels agree on. */
#ifndef TIGON_CUDA_RELU_SQUARED_H
#define TIGON_CUDA_RELU_SQUARED_H

enum { RELU_SQUARED_FWD_PACKS = 4, RELU_SQUARED_BWD_PACKS = 2 }; /* of a thread and tensor */

#endif
