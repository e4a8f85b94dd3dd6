/* group_norm's [batch, channels, run] tensors as rows in groups. */
#ifndef TIGON_ASCEND_GROUPS_H
#define TIGON_ASCEND_GROUPS_H

#include "ascend/kernel/channels.h"
#include "ascend/launch.h"

enum { ASCEND_GROUP_TENSORS = 3 };

typedef struct ascend_groups {
  grouping kernel;
  int64_t channels; /* channels of a group */
  int64_t vector;   /* elements of a weight of all groups */
  int64_t run_pitch[ASCEND_GROUP_TENSORS];
} ascend_groups;

/* Rows without groups: each column has a weight. */
static inline ascend_groups ascend_no_groups(int64_t rows, int64_t cols) {
  return (ascend_groups){{1, rows, 1, 0, 0}, cols, cols, {1, 1, 1}};
}
/* A plan's groups: a range of all rows is none. */
static inline int64_t ascend_range_count(int64_t groups) { return groups > 1 ? groups : 0; }
/* Ranges of rows, `share` in each, that share vectors of columns. */
static inline ascend_groups ascend_ranges(int64_t groups, int64_t share, int64_t cols) {
  return (ascend_groups){{groups, share, 1, 0, 1}, cols, groups * cols, {1, 1, 1}};
}

static inline ascend_groups ascend_groups_of(int64_t batch, int64_t groups, int64_t channels, int64_t run,
                                             const tigon_planes *tensors, int count) {
  ascend_groups g = {{groups, batch, run, 0, 0}, channels, groups * channels, {0}};
  for (int i = 0; i < count; ++i) {
    g.run_pitch[i] = tensors[i].channel_pitch;
    if (channels > 1 && tensors[i].channel_pitch != run) g.kernel.apart = 1;
  }
  return g;
}

static inline tigon_row_space ascend_group_space(const ascend_groups *g) {
  return (tigon_row_space){g->kernel.batch * g->kernel.groups, g->kernel.groups, g->kernel.batch};
}
static inline tigon_rows ascend_group_rows(const tigon_planes *t, int64_t channels) {
  return (tigon_rows){t->data, {0, channels * t->channel_pitch, t->batch_pitch}};
}

/* Channels with gaps between them are loaded one by one, so that a tile is a piece of one, and rows are read twice. */
static inline void ascend_groups_apply(const ascend_groups *g, walk *w, gm_space *space, gm_rows *const *rows,
                                       int count) {
  if (!g->kernel.apart) return;
  *w = (walk){w->rows, w->cols, w->tasks, w->row_tasks, w->splits, w->col_unit, 1, least(w->tile_cols, g->kernel.run),
              0,       2,       w->groups};
  space->run = g->kernel.run;
  for (int i = 0; i < count; ++i) rows[i]->run_pitch = g->run_pitch[i];
}

#endif
