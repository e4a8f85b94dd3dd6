#ifndef TIGON_CPU_GEMM_ONEDNN_H
#define TIGON_CPU_GEMM_ONEDNN_H

#include "cpu/gemm.h"

/* Looks for libdnnl.so.2 once per process. *text: its name and version, or the sentence that says why not. */
bool tigon_onednn_found(const char **text);

/* Can the library make tiles of this problem? */
bool tigon_onednn_takes(const tigon_gemm_problem *p);

/* sums[m, n] of pitch `pitch` = a[m0 .., k] b[k, n0 ..], on the calling thread. False when the library failed. */
bool tigon_onednn_tile(const tigon_gemm_problem *p, int64_t m0, int64_t m, int64_t n0, int64_t n, float *sums,
                       int64_t pitch);

#endif
