/* What the launcher and the kernel of vocab_parallel_cross_entropy's merge agree on. */
#ifndef TIGON_CUDA_VOCAB_PARALLEL_CROSS_ENTROPY_H
#define TIGON_CUDA_VOCAB_PARALLEL_CROSS_ENTROPY_H

enum { VOCAB_MERGE_THREADS = 128 }; /* a row each */

#endif
