/* Kernels of the fake runtime in the simulator of a 910B4. */
#include <stdio.h>

#include "acl.h"
#include "ascend/sim/sim.h"

/* What a kernel may touch: the device's memory and nothing else. Beyond the simulator's list, all from the first to the last. */
static void give_memory(tigon_sim *sim, const fake_acl_block *memory, int count) {
  enum { LISTED = 24 };
  const unsigned all = SIM_READS | SIM_WRITES;
  const char *begin = NULL, *end = NULL;
  for (int b = 0; b < count; ++b) {
    if (!begin || memory[b].start < begin) begin = memory[b].start;
    if (!end || memory[b].start + memory[b].bytes > end) end = memory[b].start + memory[b].bytes;
    if (count <= LISTED) tigon_sim_buffer(sim, "device memory", memory[b].start, (int64_t)memory[b].bytes, all);
  }
  if (count > LISTED) tigon_sim_buffer(sim, "device memory", begin, end - begin, all);
}

/* The simulator is, for tests/oom, no part of what may run out of memory. */
__attribute__((weak)) void oom_pause(bool pauses);

bool fake_acl_run(const fake_acl_launch *launch, double *microseconds, char *text) {
  if (oom_pause) oom_pause(true);
  tigon_sim *sim = tigon_sim_open(tigon_sim_soc_find("910B4"));
  tigon_sim_kernel *kernel;
  *(void **)&kernel = launch->symbol;
  give_memory(sim, launch->memory, launch->memory_count);
  const bool right = tigon_sim_launch(sim, launch->name, kernel, launch->arguments, launch->blocks);
  if (!right) snprintf(text, FAKE_ACL_SENTENCE, "%s", tigon_sim_report(sim)->text);
  *microseconds = tigon_sim_counted(sim)->microseconds;
  tigon_sim_close(sim);
  if (oom_pause) oom_pause(false);
  return right;
}
