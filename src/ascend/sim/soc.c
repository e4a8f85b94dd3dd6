/* The machines that are simulated: the planner's descriptions with a clock, and one that nobody builds, whose UB and core count
 * no kernel was tuned for. */
#include <pthread.h>
#include <strings.h>

#include "ascend/sim/sim.h"

static tigon_sim_soc machines[] = {
    {.name = "910B1", .mhz = 1850}, {.name = "910B2", .mhz = 1800},  {.name = "910B3", .mhz = 1800},
    {.name = "910B4", .mhz = 1500}, {.name = "910_93", .mhz = 1500}, {.name = "950", .mhz = 1650},
    {.name = "tiny", .mhz = 1000},
};
enum { MACHINES = sizeof machines / sizeof *machines };

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void fill(void) {
  for (int m = 0; m < MACHINES - 1; ++m) machines[m].device = *tigon_device_desc_find(machines[m].name);
  machines[MACHINES - 1].device = (tigon_device_desc){.name = "ascend-tiny",
                                                      .onchip_bytes = 64 * 1024,
                                                      .cores = 3,
                                                      .grid_limit = 65535,
                                                      .onchip_alignment = 32,
                                                      .memory_alignment = 512,
                                                      .transfer_bytes = 16384,
                                                      .vector_bytes = 256,
                                                      .buffers = 2,
                                                      .bandwidth = {{1, 50}, {3, 40}},
                                                      .listed = 1024,
                                                      .cached_gbps = 100,
                                                      .vector_gops = 1.0 * 64 / 2.1,
                                                      .launch_us = 5,
                                                      .start_us_per_core = 0.05,
                                                      .tile_us = 0.3};
}

const tigon_sim_soc *tigon_sim_soc_at(int index) {
  pthread_once(&once, fill);
  return index >= 0 && index < MACHINES ? &machines[index] : NULL;
}

const tigon_sim_soc *tigon_sim_soc_find(const char *name) {
  for (int m = 0; m < MACHINES; ++m)
    if (strcasecmp(machines[m].name, name) == 0) return tigon_sim_soc_at(m);
  return NULL;
}
