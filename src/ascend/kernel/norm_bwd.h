/* What the launcher of the norms' backward hands to its kernel. */
#ifndef TIGON_ASCEND_KERNEL_NORM_BWD_H
#define TIGON_ASCEND_KERNEL_NORM_BWD_H

#include <tigon/op/rms_norm.h>

#include "ascend/kernel/channels.h"

typedef struct norm_bwd_arguments {
  walk w;
  gm_space space;
  gm_rows dy, x, dx;
  gm_rows ds;    /* fused_add_rms_norm: what dx is added to; data NULL without */
  gm_rows z, dz; /* the gate of rms_norm; data NULL without */
  grouping groups;
  gm_space groups_space; /* rows of scale, one for each group */
  gm_rows scale;         /* modulated_rms_norm; data NULL without */
  gm_ptr weight;         /* [groups, channels], with a scale [channels]; may be NULL */
  gm_ptr rstd, mean;     /* [batch, groups] f32; mean: layer_norm and group_norm, else NULL */
  gm_ptr dw, db;         /* the first slab of each, [groups, channels] f32; NULL without */
  gm_ptr partials;       /* [rows, 1 or with a mean 2 sums, splits] f32, when parts come apart */
  int64_t slab_pitch;    /* elements from slab to slab */
  int64_t slab_splits;   /* 1: the splits of a row have slabs of their own, 0: they share one */
  int64_t dtype, w_dtype, scale_dtype, casting, parts;
  float w_offset, unused;
} norm_bwd_arguments;

void norm_bwd(ub_arena *ub, const void *arguments);

#endif
