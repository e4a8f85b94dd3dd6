#include "cpu/norm_fwd.h"

static void fwd_task(const void *job, int64_t index) { norm_fwd_task(NORM_ADD_RMS, job, index); }

tigon_status TIGON_CPU(fused_add_rms_norm_fwd)(tigon_queue *queue, const tigon_rms_norm_fwd_problem *p) {
  return norm_fwd_run(NORM_ADD_RMS, queue, p, queue->plan, fwd_task);
}
