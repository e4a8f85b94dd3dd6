/* cuBLASLt behind the slot `linear`. */
#ifndef TIGON_CUDA_BLASLT_H
#define TIGON_CUDA_BLASLT_H

#include "cuda/cuda.h"
#include "cuda/linear.h"

/* Enqueues the product on the library, with what it takes of `bytes` of device memory at `workspace`, on 256 bytes. *taken is
 * false, and nothing is done, without a library, if TIGON_GEMM is "builtin", or if it has no kernel for the operands. It has
 * none for two dtypes, for `sums`, and for a bias of another dtype than c's or off 16 bytes. The first product of a context
 * finds the library, and the first of a shape asks it for an algorithm, which takes host memory and some 100 us. */
tigon_status cuda_blaslt_gemm(tigon_queue *queue, const cuda_gemm *p, void *workspace, size_t bytes, bool *taken);

/* One sentence for tigon_context_gemm(). */
const char *cuda_blaslt_name(const tigon_queue *queue);
void cuda_blaslt_close(cuda_device *device);

/* Which of the heuristic's algorithms to take for a product of contiguous and aligned matrices. A table says which was fastest
 * on a device with a version of the library. Without an entry it is 0, the first. Never by timing in the process: the bits of a
 * result may not depend on it. */
int cuda_blaslt_choice(const char *device, size_t version, const cuda_gemm *p);

#endif
