#ifndef TIGON_OPENCL_KERNEL_TOPK_DIVERGENCE_H
#define TIGON_OPENCL_KERNEL_TOPK_DIVERGENCE_H

#include "divergence.h"

enum { TOPK_WINDOW = 2048 /* classes whose entries are found at once */ };

typedef struct topk_numbers {
  divergence_numbers of; /* its target has k columns */
  cl_pitch ids;
  int64_t k, vocab;
  int32_t target_dtype, id_dtype, tail;
  float inverse_temperature;
  pair least_tail, rest; /* rest: 1 - beta */
} topk_numbers;

#endif
