#include "core/context.h"
#include "opencl/column_sum.h"
#include "opencl/kernel/group_norm.h"
#include "opencl/tables.h"

static group_pitch pitch_of(const tigon_planes *t) { return (group_pitch){t->batch_pitch, t->channel_pitch}; }

/* The work-items of a group share a channel unless that takes more turns: twice as many are no more, as their elements lie side by side. */
static bool shares_channels(const tigon_queue *queue, int64_t channels, int64_t run) {
  const opencl_device *d = opencl_of(queue);
  if (d->model == OPENCL_ITEMS) return true;
  const int64_t shared = channels * opencl_ceil_div(run, d->lanes * d->group);
  const int64_t own = opencl_ceil_div(channels, d->group) * opencl_ceil_div(run, d->lanes);
  return shared <= 2 * own;
}

tigon_status tigon_opencl_group_norm_fwd(tigon_queue *queue, const tigon_group_norm_fwd_problem *p) {
  static const opencl_kernel shared = {"group_norm", "group_norm_fwd_shared"},
                             own = {"group_norm", "group_norm_fwd_own"};
  const group_numbers k = {.batch = p->batch,
                           .groups = p->groups,
                           .channels = p->channels,
                           .run = p->run,
                           .x = pitch_of(&p->x),
                           .out = pitch_of(&p->y),
                           .w_dtype = (int32_t)p->w_dtype,
                           .b_dtype = (int32_t)p->b_dtype,
                           .eps = p->eps};
  return opencl_launch(queue, shares_channels(queue, p->channels, p->run) ? &shared : &own, p->dtype,
                       opencl_row_shape(queue, p->batch * p->groups),
                       OPENCL_MEMORY(p->x.data, p->w, p->b, p->y.data, p->mean, p->rstd), &k, sizeof k);
}

static int64_t slabs_of(const tigon_queue *queue, const tigon_group_norm_bwd_problem *p) {
  return tigon_group_slabs(p->batch, p->groups, opencl_most_slabs(queue));
}

int64_t tigon_opencl_group_norm_bwd_bytes(tigon_queue *queue, const tigon_group_norm_bwd_problem *p) {
  return tigon_slab_bytes(slabs_of(queue, p), 2, p->groups * p->channels);
}

/* Without sums a work-item or group has one batch of a group. */
tigon_status tigon_opencl_group_norm_bwd(tigon_queue *queue, const tigon_group_norm_bwd_problem *p) {
  static const opencl_kernel shared = {"group_norm", "group_norm_bwd_shared"},
                             own = {"group_norm", "group_norm_bwd_own"};
  const int64_t channels = p->groups * p->channels;
  const bool some = p->batch > 0 && p->run > 0, wanted = (p->dw || p->db) && some;
  const int64_t slabs = wanted ? slabs_of(queue, p) : 0;
  const group_numbers k = {.batch = p->batch,
                           .groups = p->groups,
                           .channels = p->channels,
                           .run = p->run,
                           .slabs = wanted ? slabs : p->batch,
                           .dy = pitch_of(&p->dy),
                           .x = pitch_of(&p->x),
                           .out = pitch_of(&p->dx),
                           .w_dtype = (int32_t)p->w_dtype};
  opencl_shape shape = opencl_row_shape(queue, some ? p->groups * k.slabs : 0);
  shape.slabs = slabs;
  TIGON_TRY(
      opencl_launch(queue, shares_channels(queue, p->channels, p->run) ? &shared : &own, p->dtype, shape,
                    OPENCL_MEMORY(p->dy.data, p->x.data, p->w, p->mean, p->rstd, p->dx.data, wanted ? p->slabs : NULL),
                    &k, sizeof k));
  opencl_column_sum sum = {.slabs = wanted ? p->slabs : NULL,
                           .count = slabs,
                           .step = 2 * channels,
                           .cols = channels,
                           .to = {p->dw, p->dw_dtype},
                           .accumulate = p->accumulate};
  TIGON_TRY(opencl_sum_columns(queue, &sum));
  sum.slabs = wanted ? p->slabs + channels : NULL, sum.to = (tigon_vector){p->db, p->db_dtype};
  return opencl_sum_columns(queue, &sum);
}
