/* Inside the simulator: one machine, and the block that it runs. Pipes are queues of instructions. An instruction may be taken
 * from its queue when the one before it is done and no wait stands in the way; tigon_sim_modes says which pipe goes first. Its
 * effect is immediate, and its model time follows from the pipe's. Vector clocks keep what an instruction may rely on. When pipe
 * p begins its next instruction, known[p][q] instructions of pipe q are done, including waits. Flags and barriers decide that. */
#ifndef TIGON_ASCEND_SIM_CORE_H
#define TIGON_ASCEND_SIM_CORE_H

#include "ascend/aicore.h"

enum { SIM_FLAGS = 8, SIM_HISTORY = 1024, SIM_BUFFERS = 4096 };

/* Instructions before the vector ones' sim_op. */
typedef enum sim_kind { SIM_VECTOR, SIM_LOAD, SIM_STORE, SIM_SET, SIM_WAIT, SIM_BARRIER } sim_kind;

/* One operand. In count form its elements lie side by side; in repeat form a step has `blocks` blocks, and strides are in
 * bytes. */
typedef struct sim_operand {
  uint32_t at;
  uint8_t size; /* bytes of an element, 0: no operand */
  int32_t block, step, blocks;
  int32_t lanes; /* elements of a step that the mask leaves */
} sim_operand;

typedef struct sim_instruction {
  sim_where where;
  int64_t number;
  sim_kind kind;
  sim_pipe pipe;
  sim_op op;
  bool counted;           /* count form */
  sim_operand d, a, b, c; /* c: the bits of a select */
  int64_t count;          /* elements */
  int repeat, lanes;      /* repeat form */
  float value;
  char *memory; /* load, store: rows of row_bytes end to end */
  int64_t rows, row_bytes;
  sim_pipe from, to;
  int id;
  double issued; /* cycle */
} sim_instruction;

typedef struct sim_flag {
  bool set;
  int64_t known[SIM_PIPES];
  double time;
  sim_where where;
  int64_t number;
  int64_t awaited; /* the last wait, as done[] of its pipe counts it */
  sim_where awaited_where;
} sim_flag;

typedef struct sim_queue {
  sim_instruction *list;
  int64_t first, count, capacity; /* list[first .. first + count) wait */
} sim_queue;

/* What a number in known[] or in a shadow stands for. */
typedef struct sim_done {
  sim_where where;
  int64_t number;
} sim_done;

/* A range of global memory that this block read or wrote and that not every pipe knows to be done. */
typedef struct sim_range {
  const char *begin, *end;
  int64_t sequence;
} sim_range;
typedef struct sim_ranges {
  sim_range *list;
  int64_t count, capacity;
} sim_ranges;

/* A range of global memory, of all blocks. */
typedef struct sim_touch {
  const char *begin, *end;
  int64_t block, number;
  int line;
} sim_touch;
typedef struct sim_touches {
  sim_touch *list;
  int64_t count, capacity;
} sim_touches;

typedef struct sim_span {
  double begin, end; /* cycles */
} sim_span;

typedef struct sim_buffer {
  const char *name, *start;
  int64_t bytes;
  unsigned flags;
} sim_buffer;

typedef struct sim_event {
  const char *name;
  int64_t core;
  sim_pipe pipe;
  int line;
  double start, cycles;
} sim_event;

struct tigon_sim {
  const tigon_sim_soc *soc;
  tigon_sim_modes modes;
  uint64_t chance; /* SIM_RANDOM's state */
  tigon_sim_report_text report;
  tigon_sim_counters counters;
  const char *kernel;
  sim_buffer buffers[SIM_BUFFERS];
  int buffer_count;
  int64_t block, blocks;
  /* ---- of the running block ---- */
  bool stopped; /* a rule was broken: nothing is executed any more */
  int64_t issued;
  int mask;             /* lanes, 0: none was set */
  int64_t mask_count;   /* the count form's mask that overwrote it; -1: none did */
  sim_where mask_where; /* which that was */
  sim_queue queues[SIM_PIPES];
  int64_t done[SIM_PIPES];
  int64_t known[SIM_PIPES][SIM_PIPES];
  sim_done history[SIM_PIPES][SIM_HISTORY];
  sim_flag flags[SIM_PIPES][SIM_PIPES][SIM_FLAGS];
  sim_ranges loads, stores;
  double time[SIM_PIPES]; /* cycles: when a pipe is free */
  sim_span *bus;          /* when the way to global memory is taken, in rising order and apart */
  int64_t bus_count, bus_capacity;
  uint8_t *ub;      /* [ub_bytes] */
  uint8_t *written; /* [ub_bytes]: 1 when initialised */
  uint32_t ub_bytes;
  uint32_t touched;           /* bytes from the start of UB beyond which this block has accessed none */
  uint32_t *wrote[SIM_PIPES]; /* [32-byte blocks]: the last instruction of each pipe that wrote it */
  uint32_t *read[SIM_PIPES];
  /* ---- of the launch ---- */
  sim_touches all_reads, all_writes;
  double *core_time; /* [cores] cycles */
  bool tracing;
  sim_event *events;
  int64_t event_count, event_capacity;
  double trace_start; /* microseconds */
};

extern _Thread_local tigon_sim *tigon_sim_now;

/* Keeps the report and stops the block. The text is "<what>. Fix: <fix>", after kernel, block, instruction and line. */
__attribute__((format(printf, 5, 6))) void tigon_sim_fail(tigon_sim *sim, const sim_instruction *i, tigon_sim_rule rule,
                                                          uint64_t address, const char *format, ...);

/* Hands an instruction to its pipe. */
void tigon_sim_issue(tigon_sim *sim, sim_instruction *i);
/* Counts time of the scalar pipe: `count` instructions of its own. */
void tigon_sim_scalar_work(tigon_sim *sim, int count);
/* At the end of a block: everything must be done and every flag awaited. */
void tigon_sim_finish_block(tigon_sim *sim);

/* Executes; false when it broke a rule. */
bool tigon_sim_run_vector(tigon_sim *sim, const sim_instruction *i);
bool tigon_sim_run_transfer(tigon_sim *sim, const sim_instruction *i);

/* `count` bytes of UB read or written by i: in bounds, initialised, ordered after what they depend on. mark: notes the access
 * instead of checking it. */
bool tigon_sim_touch_ub(tigon_sim *sim, const sim_instruction *i, int64_t at, int64_t bytes, bool write, bool mark);
/* The same of global memory; also notes it. */
bool tigon_sim_touch_memory(tigon_sim *sim, const sim_instruction *i, bool write);
/* After the last block: no address is written by one block and touched by another. */
void tigon_sim_check_sharing(tigon_sim *sim);

/* One result of exp, ln, sqrt, rsqrt or division as the machine's modes have it; a and b: the operands. */
float tigon_sim_rounded(const tigon_sim_modes *modes, sim_op op, float a, float b, float result);
/* A number that looks random, of another one. */
uint64_t tigon_sim_mixed(uint64_t x);

/* Cycles of an instruction, without waiting. */
double tigon_sim_cycles(const tigon_sim *sim, const sim_instruction *i);
void tigon_sim_note_event(tigon_sim *sim, const sim_instruction *i, double start, double cycles);
const char *tigon_sim_pipe_name(sim_pipe pipe);
/* The first buffer with these flags that holds [start, start + bytes), or NULL. In place, several do. */
const sim_buffer *tigon_sim_buffer_of(const tigon_sim *sim, const char *start, int64_t bytes, unsigned flags);

/* Room for one more in a growing list; false when memory ran out, and the launch has failed. */
bool tigon_sim_grow(tigon_sim *sim, void **list, int64_t count, int64_t *capacity, size_t element);

#endif
