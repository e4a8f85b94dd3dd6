/* What the launchers and kernels of hyper-connections agree on. */
#ifndef TIGON_CUDA_MHC_H
#define TIGON_CUDA_MHC_H

#include "problem/mhc.h"

enum {
  MHC_THREADS = 256,
  MHC_FEW = 4,        /* streams in, and out, whose rows threads hold in packs, */
  MHC_RING = 3,       /* in so many stages, or one less, */
  MHC_FWD_BLOCKS = 3, /* and so many blocks an SM */
  MHC_BWD_BLOCKS = 2,
  MHC_SIDE = 32,       /* tokens of a tile of products, or channels */
  MHC_COLUMNS = 24,    /* coefficients of one */
  MHC_DEPTH = 64,      /* terms that are in shared memory at once */
  MHC_TOKEN_WARPS = 4, /* warps of a block, each with one token at a time */
  MHC_SLABS = 1024,    /* warps backward, at most, each of which has a slab of db and the dalphas */
  MHC_DX_TOKENS = 16,  /* tokens of a block of dx */
  MHC_TILE = 64,       /* tokens of a block of logits by the tensor cores, */
  MHC_CLUSTER = 4,     /* which are as many a tile, */
  MHC_STAGE = 256,     /* with so many channels in each of */
  MHC_STAGES = 2,      /* stages */
  MHC_LOGITS_BYTES = MHC_STAGES * (MHC_TILE + MHC_COLUMNS) * MHC_STAGE * 2,
  MHC_PANEL = 128, /* channels of a block of dx and dphi by the tensor cores, */
  MHC_BACK_THREADS = 512,
  MHC_BACK_STAGES = 3, /* whose tiles are on their way into as many places */
  MHC_BACK_STAGE_BYTES = MHC_TILE * (2 * MHC_PANEL * 2 + 176 + 32),
  MHC_BACK_BYTES = MHC_BACK_STAGES * MHC_BACK_STAGE_BYTES,
  MHC_PARTS = 3,       /* bf16 of an f32 */
  MHC_PART_WORDS = 80, /* words of a token: its parts of MHC_COLUMNS coefficients each, and zeros */
  MHC_WEIGHTS = 8,     /* floats of a token: its h_pre, from MHC_FEW on what of x dx takes away */
  MHC_FEW_SLABS = 256, /* blocks, at most, each of which has a slab of db and the dalphas */
};

/* Backward's workspace: of each token rstd * dmix, its h_pre, what of x dx takes away; the products of dy with x; slabs. */
typedef struct mhc_work {
  float *records, *dots,
      *slabs; /* [tokens, pitch], [tokens, streams], [warps, coefficients + 3]; the last two may be NULL */
  int64_t pitch, warps;
} mhc_work;

/* The same of MHC_FEW streams at most and 16-bit x. */
typedef struct mhc_few_work {
  uint16_t *parts; /* [tokens, MHC_PART_WORDS], bf16: rstd * dmix */
  float *weights, *dots,
      *slabs;     /* [tokens, MHC_WEIGHTS], [tokens, streams], [blocks, coefficients + 3]; dots may be NULL */
  int64_t panels; /* panels of a stream */
} mhc_few_work;

#ifndef __CUDACC__
#include "cuda/cuda.h"
/* Are the streams of a token at the innermost pitch? */
static inline bool mhc_streams_lie_even(const tigon_row_space *space, int64_t streams) {
  return space->inner % streams == 0;
}
/* mhc_post_res of a problem, forward or backward. */
tigon_status cuda_mhc_mix(tigon_queue *queue, const tigon_mhc_post_res_problem *p, bool backward);
#endif

#endif
