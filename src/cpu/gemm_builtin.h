/* Products by a library, or by our own GEMM of this instruction set. The built-in one sums an element of c over k in blocks of
 * fixed length, in order. Each block is one chain of multiply-adds. So the element's bits depend only on its row of a and its
 * column of b, not on tiles, threads or other rows. */
#ifndef TIGON_CPU_GEMM_BUILTIN_H
#define TIGON_CPU_GEMM_BUILTIN_H

#include "cpu/gemm.h"
#include "cpu/kernels.h"

/* Problems of which none needs another one's c: those that the queue's library takes are run by it, and threads share all tiles of
 * the others. One without rows or columns is left out. */
enum { GEMM_GROUP = 64 /* problems at most */ };
void TIGON_CPU(gemm)(const tigon_queue *queue, const tigon_gemm_problem *problems, int count);

#endif
