/* What the launchers and kernels of hyper-connections agree on. */
#ifndef TIGON_CUDA_MHC_H
#define TIGON_CUDA_MHC_H

#include "problem/mhc.h"

enum {
  MHC_THREADS = 256,
  MHC_FEW = 4,         /* streams in, and out, whose rows threads hold in packs */
  MHC_SIDE = 32,       /* tokens of a tile of products, or channels */
  MHC_COLUMNS = 24,    /* coefficients of one */
  MHC_DEPTH = 64,      /* terms that are in shared memory at once */
  MHC_TOKEN_WARPS = 4, /* of a block, a token each at a time */
  MHC_SLABS = 1024,    /* warps backward, at most, each of which has a slab of db and the dalphas */
  MHC_DX_TOKENS = 16,  /* of a block of dx */
};

/* Backward's workspace: of each token rstd * dmix, its h_pre, what of x dx takes away; the products of dy with x; slabs. */
typedef struct mhc_work {
  float *records, *dots,
      *slabs; /* [tokens, pitch], [tokens, streams], [warps, coefficients + 3]; the last two may be NULL */
  int64_t pitch, warps;
} mhc_work;

#ifndef __CUDACC__
#include "cuda/cuda.h"
/* mhc_post_res of a problem, forward or backward. */
tigon_status cuda_mhc_mix(tigon_queue *queue, const tigon_mhc_post_res_problem *p, bool backward);
#endif

#endif
