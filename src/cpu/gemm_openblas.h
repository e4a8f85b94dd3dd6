#ifndef TIGON_CPU_GEMM_OPENBLAS_H
#define TIGON_CPU_GEMM_OPENBLAS_H

#include "cpu/gemm.h"

/* Looks for libopenblas.so.0 once per process. *text: its name and version, or the sentence that says why not. */
bool tigon_openblas_found(const char **text);

/* Runs the problem on one single-threaded call per tile of c. False, with nothing done, when the library cannot take
 * it. */
bool tigon_openblas_run(const tigon_queue *queue, const tigon_gemm_problem *p);

#endif
