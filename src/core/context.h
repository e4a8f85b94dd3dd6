/* The inside of a context, and how a front reports an error. */
#ifndef TIGON_CORE_CONTEXT_H
#define TIGON_CORE_CONTEXT_H

#include <tigon/schema.h>

#include "backend.h"

enum {
  TIGON_MAX_ARGS = 20,
  TIGON_PLANS = 64, /* places; three quarters of them are used */
  TIGON_PLAN_KEY = 13,
};

/* Where a tensor of the call lies: [low, high). */
typedef struct tigon_extent {
  const tigon_field *field; /* its description */
  const tigon_tensor *tensor;
  uintptr_t low, high;
  bool dense; /* its elements lie end to end */
} tigon_extent;

/* A plan that was made: training asks for the same few again and again, and making one costs more than a tiny call. */
typedef struct tigon_planned {
  uint64_t key[TIGON_PLAN_KEY]; /* src/core/front_plan.c; [0] is 0 in a free place */
  tigon_plan plan;
} tigon_planned;

struct tigon_context {
  tigon_queue queue;
  const tigon_kernels *kernels;
  const tigon_kernels *borrowed; /* the backend's, NULL: it borrows none */
  tigon_queue *host;             /* which those run on */
  const tigon_device_desc *device;
  const char *last_variant;
  tigon_plan_case force;                /* the check: a planner case that is taken wherever it fits */
  int64_t predicted;                    /* the bench: bytes that plans of calls so far said to move */
  unsigned planned;                     /* the check: cases that calls had so far, TIGON_CASE_BIT or-ed */
  const tigon_schema *checked;          /* the call at work */
  int64_t element;                      /* of its list, for sentences */
  tigon_extent extents[TIGON_MAX_ARGS]; /* of the arguments checked last, for tigon_check_workspace() */
  int extent_count, plan_count;
  tigon_planned plans[TIGON_PLANS];
  char error[512];
};

/* Stores "<sentence>" as the context's last error (the thread's, when context is NULL) and returns `status`. */
__attribute__((format(printf, 3, 4))) tigon_status tigon_fail(tigon_context *context, tigon_status status,
                                                              const char *format, ...);

/* What a call has a row besides its streams: 4-byte words, and a loss's totals. */
typedef struct tigon_row_words {
  uint8_t in, out, label;
  uint8_t totals; /* TIGON_TOTAL_ or-ed */
} tigon_row_words;

/* What a call asks the planner for. */
typedef struct tigon_plan_call {
  const char *op, *entry; /* literals: plans are found by their addresses */
  tigon_dtype dtype;
  int f32_temporaries; /* besides the footprint's */
  int64_t rows, cols;
  int64_t groups, run; /* 0, or case G: rows in `groups` with channel runs of `run` columns */
  int64_t out_rows;    /* embedding bwd: of the table */
  /* rope: a head's columns, half of those that turn, the keys' of all; tokens of a sequence; bytes of a table's element */
  int64_t col_unit, table_cols, key_cols, sequence;
  int row_table_bytes;
  const tigon_row_words *words; /* NULL: the footprint's */
} tigon_plan_call;

/* Plans the call on the context's device; on failure the sentence is "<op>_<entry>: <reason>". */
tigon_status tigon_front_plan_call(tigon_context *context, const tigon_plan_call *call, tigon_plan *plan);
/* The same for op's entry of [rows, cols]. */
tigon_status tigon_front_plan(tigon_context *context, const char *op, const char *entry, tigon_dtype dtype,
                              int64_t rows, int64_t cols, tigon_plan *plan);
/* The same in case G. */
tigon_status tigon_front_plan_groups(tigon_context *context, const char *op, const char *entry, tigon_dtype dtype,
                                     int64_t rows, int64_t cols, int64_t groups, int64_t run, tigon_plan *plan);

/* The same for kernels that take a plan on a device with launches of its own alone; elsewhere *plan is empty. */
tigon_status tigon_front_plan_launch(tigon_context *context, const tigon_plan_call *call, tigon_plan *plan);

/* Has a table of kernels, which may be NULL, the slot `name` (rms_norm_fwd) for `dtype`? */
#define TIGON_HAS_SLOT(kernels, name, dtype) \
  ((kernels) && (kernels)->name.run && ((kernels)->name.dtypes & TIGON_BIT(dtype)))

/* Can a call of the slot be given to the context's variant, or to a borrowed one? */
#define TIGON_CAN_CALL(context, name, dtype) \
  (TIGON_HAS_SLOT((context)->kernels, name, dtype) || TIGON_HAS_SLOT((context)->borrowed, name, dtype))

#define TIGON_RUN_SLOT(context, kernels, queue, name, problem, made) \
  ((queue)->plan = (made), tigon_front_done(context, kernels, queue, #name, made, (kernels)->name.run(queue, problem)))

/* Gives the call to the slot `name`, the variant's or a borrowed one, or UNSUPPORTED when neither takes `dtype`. */
#define TIGON_CALL_SLOT(context, name, dtype, problem, plan)                                 \
  (TIGON_HAS_SLOT((context)->kernels, name, dtype)                                           \
       ? TIGON_RUN_SLOT(context, (context)->kernels, &(context)->queue, name, problem, plan) \
   : TIGON_HAS_SLOT((context)->borrowed, name, dtype)                                        \
       ? TIGON_RUN_SLOT(context, (context)->borrowed, (context)->host, name, problem, plan)  \
       : tigon_front_unsupported(context, #name, dtype))

tigon_status tigon_front_done(tigon_context *context, const tigon_kernels *kernels, const tigon_queue *queue,
                              const char *slot, const tigon_plan *plan, tigon_status status);
tigon_status tigon_front_unsupported(tigon_context *context, const char *slot, tigon_dtype dtype);

/* The first status that is not OK ends the function. */
#define TIGON_TRY(expression)                        \
  do {                                               \
    const tigon_status try_status_ = (expression);   \
    if (try_status_ != TIGON_OK) return try_status_; \
  } while (0)

#endif
