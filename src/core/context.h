/* The inside of a context, and how a front reports an error. */
#ifndef TIGON_CORE_CONTEXT_H
#define TIGON_CORE_CONTEXT_H

#include "backend.h"

/* What a head's last call did, or mlp's, for `tigon plan`. */
typedef struct tigon_head_work {
  double products;       /* in those of all tokens that count, of mlp's rows; 0: no call yet */
  int64_t groups, twice; /* groups of whole sequences or pairs, 0: none; those of them whose logits were made twice */
  int64_t chunks, rows;  /* chunks of gradients, or tiles; rows of the largest at most */
  int64_t logits_bytes, sums_bytes; /* in the workspace: of a chunk or a tile, and of gradients of weights */
} tigon_head_work;

struct tigon_context {
  tigon_queue queue;
  int index; /* index of the device among its backend's */
  const tigon_kernels *kernels;
  const tigon_kernels *borrowed; /* the backend's; without a slot where it borrows none */
  tigon_queue *host;             /* which those run on */
  const tigon_device *device;
  const char *last_variant;
  const tigon_schema *checked; /* the call at work */
  bool shape_only;             /* it is a query, which looks at no data */
  int64_t element;             /* element of its list, for sentences */
  tigon_memory memory;         /* memory of the arguments checked last */
  tigon_head_work head;
  char error[512];
};

/* A context that records each launch, on a device by the name that a backend's table has it by; NULL: none has,
 * or errno is ENOMEM. */
tigon_context *tigon_context_described(const char *name, void (*record)(void *to, const tigon_launch *launch),
                                       void *record_to);

/* Stores "<sentence>" as the context's last error (the thread's, when context is NULL) and returns `status`. */
__attribute__((format(printf, 3, 4))) tigon_status tigon_fail(tigon_context *context, tigon_status status,
                                                              const char *format, ...);

/* Has a table of kernels the slot `name` (rms_norm_fwd) for `dtype`? */
#define TIGON_HAS_SLOT(kernels, name, dtype) ((kernels)->name.run && ((kernels)->name.dtypes & TIGON_BIT(dtype)))

/* Can a call of the slot be given to the context's variant, or to a borrowed one? */
#define TIGON_CAN_CALL(context, name, dtype) \
  (TIGON_HAS_SLOT((context)->kernels, name, dtype) || TIGON_HAS_SLOT((context)->borrowed, name, dtype))

/* OK, or UNSUPPORTED where it cannot. */
#define TIGON_REQUIRE_SLOT(context, name, dtype) \
  (TIGON_CAN_CALL(context, name, dtype) ? TIGON_OK : tigon_front_unsupported(context, #name, dtype))

#define TIGON_RUN_SLOT(context, kernels, queue, name, problem) \
  tigon_front_done(context, kernels, queue, #name, (kernels)->name.run(queue, problem))

/* TIGON_CALL_SLOT of one that TIGON_REQUIRE_SLOT has found: a composite finds all of its slots before the first writes. */
#define TIGON_CALL_FOUND_SLOT(context, name, dtype, problem)                           \
  (TIGON_HAS_SLOT((context)->kernels, name, dtype)                                     \
       ? TIGON_RUN_SLOT(context, (context)->kernels, &(context)->queue, name, problem) \
       : TIGON_RUN_SLOT(context, (context)->borrowed, (context)->host, name, problem))

/* Gives the call to the slot `name`, the variant's or a borrowed one, or UNSUPPORTED when neither takes `dtype`. */
#define TIGON_CALL_SLOT(context, name, dtype, problem)                                         \
  (TIGON_CAN_CALL(context, name, dtype) ? TIGON_CALL_FOUND_SLOT(context, name, dtype, problem) \
                                        : tigon_front_unsupported(context, #name, dtype))

/* The workspace of a slot's call: 0 when the slot needs none, or is not there. */
#define TIGON_SLOT_BYTES(kernels, queue, name, problem) \
  ((kernels)->name.workspace ? (kernels)->name.workspace(queue, problem) : 0)

/* Stores in the size_t `*bytes` the workspace of the call that TIGON_CALL_SLOT would make. */
#define TIGON_ASK_WORKSPACE(context, name, dtype, problem, bytes)                                             \
  (TIGON_HAS_SLOT((context)->kernels, name, dtype)                                                            \
       ? tigon_front_workspace(context, &(context)->queue, #name,                                             \
                               TIGON_SLOT_BYTES((context)->kernels, &(context)->queue, name, problem), bytes) \
   : TIGON_HAS_SLOT((context)->borrowed, name, dtype)                                                         \
       ? tigon_front_workspace(context, (context)->host, #name,                                               \
                               TIGON_SLOT_BYTES((context)->borrowed, (context)->host, name, problem), bytes)  \
       : tigon_front_workspace(context, &(context)->queue, #name, 0, bytes))

tigon_status tigon_front_done(tigon_context *context, const tigon_kernels *kernels, const tigon_queue *queue,
                              const char *slot, tigon_status status);
tigon_status tigon_front_workspace(tigon_context *context, const tigon_queue *queue, const char *slot, int64_t needed,
                                   size_t *bytes);
tigon_status tigon_front_unsupported(tigon_context *context, const char *slot, tigon_dtype dtype);

/* The first status that is not OK ends the function. */
#define TIGON_TRY(expression)                        \
  do {                                               \
    const tigon_status try_status_ = (expression);   \
    if (try_status_ != TIGON_OK) return try_status_; \
  } while (0)

#endif
