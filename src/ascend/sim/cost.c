/* The cost model: cycles of an instruction from public figures. It ranks tilings; it is never a measurement. Others fitted add,
 * sub, mul, max, min, muls, exp, ln and rsqrt on a 910B3. The figures contain the bank conflicts of those programs: the vendor's
 * table has 1 a repeat for add, where the fit is 2.1. Steps of casts, division and gather are the vendor's table: 1 and 2 a
 * repeat, and 5 elements a cycle. The rest comes from public models without a fit. */
#include "ascend/sim/core.h"

/* start + step * repeats, where a repeat is 64 f32 elements. */
static const struct {
  double start, step;
} vector_cycles[SIM_OPS] = {
    [SIM_ADD] = {24, 2.1},      [SIM_SUB] = {24, 2.1},      [SIM_MUL] = {25, 2.3},      [SIM_DIV] = {31, 2},
    [SIM_MAX] = {23, 2},        [SIM_MIN] = {23, 2},        [SIM_ADD_SCALAR] = {30, 1}, [SIM_MUL_SCALAR] = {26, 1},
    [SIM_MAX_SCALAR] = {30, 1}, [SIM_MIN_SCALAR] = {30, 1}, [SIM_EXP] = {31, 2},        [SIM_LN] = {33, 2},
    [SIM_SQRT] = {39, 2},       [SIM_RSQRT] = {24, 1.07},   [SIM_ABS] = {30, 1},        [SIM_DUPLICATE] = {24, 1},
    [SIM_AND] = {24, 2.1},      [SIM_NOT] = {30, 1},        [SIM_TO_I32] = {32, 1},     [SIM_GATHER] = {24, 12.8},
    [SIM_FROM_BF16] = {32, 1},  [SIM_FROM_F16] = {32, 1},   [SIM_TO_BF16] = {32, 1},    [SIM_TO_F16] = {32, 1},
    [SIM_SUM] = {46, 7},        [SIM_MAXIMUM] = {46, 7},    [SIM_SPREAD] = {24, 1},     [SIM_COMPARE] = {36, 2},
    [SIM_SELECT] = {27, 2},     [SIM_FROM_I32] = {32, 1},   [SIM_TO_I8] = {32, 0.5}, /* a repeat of 128 f16 elements */
};

/* A transfer costs its bytes and 1/16 of the smallest good transfer more, as the planner has it; an address that is not on a
 * full-rate line costs 30 %. */
enum { TRANSFER_OVERHEAD = 16 };
static const double misaligned_factor = 1.3;

double tigon_sim_cycles(const tigon_sim *sim, const sim_instruction *i) {
  const tigon_device_desc *device = &sim->soc->device;
  if (i->kind == SIM_VECTOR) {
    const int64_t repeats = i->counted ? (i->count + V_LANES - 1) / V_LANES : i->repeat;
    return vector_cycles[i->op].start + vector_cycles[i->op].step * (double)repeats;
  }
  const int64_t bytes = i->rows * i->row_bytes, active = sim->blocks < device->cores ? sim->blocks : device->cores;
  const bool cached = tigon_sim_buffer_of(sim, i->memory, bytes, SIM_SHARED) != NULL;
  const double gbps = cached ? device->cached_gbps : tigon_device_bandwidth(device, active);
  const double per_cycle = gbps * 1e3 / sim->soc->mhz; /* bytes */
  const bool aligned = (uintptr_t)i->memory % (uintptr_t)device->memory_alignment == 0;
  return ((double)bytes * (aligned ? 1 : misaligned_factor) + (double)device->transfer_bytes / TRANSFER_OVERHEAD) /
         per_cycle;
}
