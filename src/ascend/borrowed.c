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
}

const tigon_kernels *ascend_borrowed(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, fill);
  return &table;
}
