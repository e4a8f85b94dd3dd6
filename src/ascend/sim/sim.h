/* The AI-core simulator. It runs kernels written in the dialect of ascend/aicore.h on an ordinary machine, checks the rules of
 * the real one, and estimates their time by a model. docs/ascend-simulator.md is its manual.
 *
 *   tigon_sim *sim = tigon_sim_open(tigon_sim_soc_find("910B4"));
 *   tigon_sim_buffer(sim, "x", x, bytes, SIM_READS);             what the next launch may touch
 *   tigon_sim_buffer(sim, "y", y, bytes, SIM_WRITES);
 *   if (!tigon_sim_launch(sim, "my_kernel", my_kernel, &arguments, blocks)) puts(tigon_sim_report(sim)->text);
 *
 * A launch runs its blocks one after another and stops at the first broken rule. */
#ifndef TIGON_ASCEND_SIM_H
#define TIGON_ASCEND_SIM_H

#include <stdio.h>

#include "ascend/plan/plan.h"

/* ---- machines ---- */

typedef struct tigon_sim_soc {
  char name[16]; /* "910B4" */
  double mhz;
  tigon_device_desc device; /* cores, bytes of UB, bandwidth: what the planner sees */
} tigon_sim_soc;

/* The i-th machine, NULL past the last one; and by its name in any case. */
const tigon_sim_soc *tigon_sim_soc_at(int index);
const tigon_sim_soc *tigon_sim_soc_find(const char *name);

/* ---- rules ---- */

typedef enum tigon_sim_rule {
  SIM_OK,
  SIM_UB_OVERFLOW,       /* an access or allocation beyond the Unified Buffer */
  SIM_MISALIGNED,        /* an array in UB, or an address in global memory, is not aligned as the call needs */
  SIM_UNINITIALISED,     /* bytes of UB that nothing in this block has written are read */
  SIM_OUTSIDE_BUFFER,    /* global memory that was not given to the launch, or a store to what it only reads */
  SIM_READ_AFTER_WRITE,  /* nothing orders the read after the write that it needs */
  SIM_WRITE_AFTER_READ,  /* nothing keeps the write from overtaking a read of the old value */
  SIM_WRITE_AFTER_WRITE, /* nothing orders two writes */
  SIM_DEADLOCK,          /* a wait for a flag that no one sets */
  SIM_BAD_FLAG,          /* an id outside 0..7, a flag set twice, a flag that nobody awaits */
  SIM_EARLY_FLAG,        /* a flag set by a pipe that does not know whether the wait before it is done */
  SIM_BAD_BARRIER,       /* a barrier on the scalar pipe, which has none */
  SIM_REPEAT,         /* a repeat count outside 1..255, a mask outside 1..64 lanes, a size that the call cannot take */
  SIM_OVERLAP,        /* source and destination overlap without being the same */
  SIM_STALE_MASK,     /* a call in repeat form under the mask that a call in count form left behind */
  SIM_BLOCKS,         /* more blocks than a launch can have */
  SIM_SHARED_ADDRESS, /* two blocks write one address, or one reads what another writes */
  SIM_NO_MEMORY,      /* memory of the simulator ran out, which is no rule of a kernel */
} tigon_sim_rule;

typedef struct tigon_sim_report_text {
  tigon_sim_rule rule;
  int64_t block, instruction; /* instruction: its number in the block, from 1 */
  int line;
  uint64_t address; /* in UB, or of global memory */
  char text[512];   /* kernel, block, instruction and source line, what, and how to mend it */
} tigon_sim_report_text;

/* ---- a machine at work ---- */

typedef struct tigon_sim tigon_sim;
typedef struct ub_arena {
  uint32_t used;
} ub_arena;
typedef void tigon_sim_kernel(ub_arena *ub, const void *arguments);

enum { SIM_READS = 1, SIM_WRITES = 2, SIM_SHARED = 4 }; /* SHARED: many blocks read it, so that it is in the L2 cache */

typedef enum sim_pipe { PIPE_MTE2, PIPE_V, PIPE_MTE3, PIPE_S, PIPE_ALL, SIM_PIPES = PIPE_ALL } sim_pipe;

/* Counts over all launches since tigon_sim_reset(). */
typedef struct tigon_sim_counters {
  int64_t launches, blocks, instructions; /* blocks: the most of a launch */
  int64_t bytes_loaded, bytes_stored;     /* global memory, without the filling up in UB */
  int64_t ub_bytes;                       /* most of UB that a block allocated */
  double cycles, microseconds;            /* by the model: the slowest core's cycles; time with the cost of a launch */
  double busy[SIM_PIPES];                 /* cycles in which a pipe works, of all cores */
} tigon_sim_counters;

/* In which order a block's pipes run what flags let them run. A right kernel gives the same bits in all of them. */
typedef enum tigon_sim_order {
  SIM_EAGER,      /* each instruction as soon as it is handed over and its flags allow it */
  SIM_V_FIRST,    /* V at once, the other pipes as late as they can */
  SIM_MTE2_FIRST, /* MTE2 at once */
  SIM_MTE3_FIRST, /* MTE3 at once */
  SIM_RANDOM,     /* any pipe, by a seed */
} tigon_sim_order;

/* What a machine does differently. All 0: eager, and with exp, ln, sqrt and division of this host. */
typedef struct tigon_sim_modes {
  tigon_sim_order order;
  uint64_t order_seed;
  int noise; /* exp, ln, sqrt and division are off by up to so many ulps; the same for the same operands */
  uint64_t noise_seed;
  bool flush; /* their results below 2^-126 are 0 */
} tigon_sim_modes;

/* As TIGON_ASCEND_SIM_ORDER, TIGON_ASCEND_SIM_NOISE and TIGON_ASCEND_SIM_FLUSH say; false with a sentence, which lasts until
 * the thread's next call, where one says nothing that is known. */
bool tigon_sim_modes_read(tigon_sim_modes *modes, const char **reason);
void tigon_sim_use(tigon_sim *sim, const tigon_sim_modes *modes);
const tigon_sim_modes *tigon_sim_used(const tigon_sim *sim);

tigon_sim *tigon_sim_open(const tigon_sim_soc *soc); /* NULL: out of memory */
void tigon_sim_close(tigon_sim *sim);
/* What the next launch may touch; an empty range is left out. */
void tigon_sim_buffer(tigon_sim *sim, const char *name, const void *start, int64_t bytes, unsigned flags);
/* false: a rule was broken, and tigon_sim_report() says which. Buffers are forgotten in any case. */
bool tigon_sim_launch(tigon_sim *sim, const char *name, tigon_sim_kernel *kernel, const void *arguments,
                      int64_t blocks);
const tigon_sim_report_text *tigon_sim_report(const tigon_sim *sim);
const tigon_sim_counters *tigon_sim_counted(const tigon_sim *sim);
void tigon_sim_reset(tigon_sim *sim);
/* Keeps every instruction's start and length from now on, forgetting those before; and writes them in the Chrome trace format,
 * which Perfetto opens. */
void tigon_sim_trace(tigon_sim *sim);
bool tigon_sim_write_trace(const tigon_sim *sim, FILE *file);

#endif
