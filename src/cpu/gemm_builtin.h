/* Our own GEMM of this instruction set. An element of c is summed over k in blocks of fixed length, each block one
 * chain of multiply-adds, the blocks in order: its bits depend on its row of a and its column of b alone, not on tiles,
 * threads or other rows. */
#ifndef TIGON_CPU_GEMM_BUILTIN_H
#define TIGON_CPU_GEMM_BUILTIN_H

#include "cpu/gemm.h"
#include "cpu/kernels.h"

void TIGON_CPU(gemm)(const tigon_queue *queue, const tigon_gemm_problem *p);

#endif
