#ifndef TIGON_OPENCL_KERNEL_MHC_H
#define TIGON_OPENCL_KERNEL_MHC_H

#include "shared.h"

enum {
  MHC_STREAMS = 16, /* at most, for each token */
  MHC_FEW = 4,      /* streams whose matrices are small */
  MHC_AT_ONCE = 4,  /* streams that are mixed together */
  MHC_SIDE = 32,    /* rows of a tile of products, and its columns */
  MHC_DEPTH = 16,   /* terms of a product that are in local memory at once */
  MHC_EACH = 4,     /* rows of a work-item's tile, and its columns */
  MHC_ITEMS = MHC_SIDE / MHC_EACH * (MHC_SIDE / MHC_EACH),
  MHC_SHARES = 4, /* teams that have a tile of the logits together */
};

/* mhc_post_res, of `rows` tokens. */
typedef struct mhc_mix_numbers {
  tigon_row_space in_space, out_space, tokens; /* for x, dx; for o; for f, df */
  cl_pitch x, dx, o, f, df;
  int64_t in, out, cols, rows;
} mhc_mix_numbers;

/* mhc_coeffs, of `rows` tokens. */
typedef struct mhc_numbers {
  tigon_row_space space, tokens; /* for x, dx; for y */
  cl_pitch x, dx, y;
  int64_t rows, streams, cols, coefficients, tmax;
  int64_t items, slabs; /* work-items that have tokens; sums over every slabs-th token */
  int32_t phi_dtype, b_dtype, alpha_dtype[3];
  int32_t dphi_dtype, db_dtype, dalpha_dtype[3];
  int32_t accumulate;
  float rms_eps, pre_eps, sinkhorn_eps, post_mult;
} mhc_numbers;

#endif
