/* CLBlast, a BLAS for OpenCL that is found at run time: products of f32. */
#ifndef TIGON_OPENCL_CLBLAST_H
#define TIGON_OPENCL_CLBLAST_H

#include "opencl/kernel/gemm.h"
#include "opencl/opencl.h"

/* Gives d->sgemm what TIGON_GEMM asks for: "builtin" leaves CLBlast out, with "clblast" it must be there. A CPU, whose driver takes long to
 * compile it, has it only by name. DEVICE: it is not there; *reason is the sentence. */
tigon_status opencl_choose_gemm(opencl_device *d, const char **reason);

typedef struct clblast_places {
  opencl_place a, b, c;
} clblast_places;
/* Does it take the product of a and b? Then `at` says where they and c lie. */
bool opencl_clblast_takes(tigon_queue *queue, const void *a, const void *b, const void *c, const gemm_numbers *k,
                          clblast_places *at);
/* Enqueues c = a b; with `adds` c += a b. */
tigon_status opencl_clblast_run(tigon_queue *queue, const clblast_places *at, bool adds, const gemm_numbers *k);

#endif
