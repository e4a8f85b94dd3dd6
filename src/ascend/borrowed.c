/* What the simulator borrows from the CPU, so that a whole model runs on it: its global memory is the host's. */
#include "ascend/borrowed.h"

#include <pthread.h>

extern const tigon_backend tigon_cpu_backend;

static tigon_kernels table;

/* A slot that gets an Ascend kernel is used instead of its line here, which then goes. */
static void fill(void) {
  const tigon_kernels *cpu = tigon_cpu_backend.variants()[0];
  table.variant = cpu->variant;
  table.tile = cpu->tile;
  /* Matrix products are the cube cores', which the simulator does not have; on a device linear is the vendor's aclnn. */
  table.linear_fwd = cpu->linear_fwd;
  table.linear_bwd = cpu->linear_bwd;
  table.attention_fwd = cpu->attention_fwd;
  table.attention_bwd = cpu->attention_bwd;
  /* Work of the vector cores that has no kernel yet. */
  table.swiglu_fwd = cpu->swiglu_fwd;
  table.swiglu_bwd = cpu->swiglu_bwd;
  table.rope_fwd = cpu->rope_fwd;
  table.rope_bwd = cpu->rope_bwd;
  table.embedding_fwd = cpu->embedding_fwd;
  table.embedding_bwd = cpu->embedding_bwd;
  table.cross_entropy_fwd = cpu->cross_entropy_fwd;
  table.cross_entropy_bwd = cpu->cross_entropy_bwd;
  table.adamw_step = cpu->adamw_step;
  table.adamw_clip = cpu->adamw_clip;
}

const tigon_kernels *ascend_borrowed(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, fill);
  return &table;
}
