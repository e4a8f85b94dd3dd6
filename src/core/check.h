/* What every front checks the same way: presence, dtype, shape, strides, alignment, overlap. Each function returns OK or
 * fails the context with one sentence: which argument, what it is, what it must be. */
#ifndef TIGON_CORE_CHECK_H
#define TIGON_CORE_CHECK_H

#include "core/context.h"

enum {
  TIGON_IN = 0,
  TIGON_OUT = 1,
  TIGON_OPTIONAL = 2,
  TIGON_CONTIGUOUS = 4, /* no strides but the natural ones */
  TIGON_FREE_LAST = 8,  /* the last stride need not be 1 */
};

/* One tensor argument of a call. */
typedef struct tigon_arg {
  const char *name;
  tigon_tensor *tensor; /* the front's own copy: strides are filled in */
  uint32_t dtypes;      /* allowed, TIGON_BIT()s */
  int flags;
  const char *in_place; /* outputs: names that it may be the same view as, "x residual"; NULL: none */
} tigon_arg;

/* One extent of a tensor; a sentence calls it "x.shape[1]". */
typedef struct tigon_dim {
  const char *name;
  const tigon_tensor *tensor;
  int dim;
} tigon_dim;

static inline tigon_dim tigon_last_dim(const char *name, const tigon_tensor *tensor) {
  return (tigon_dim){name, tensor, tensor->ndim - 1};
}

static inline int64_t tigon_extent_of(tigon_dim of) { return of.tensor->shape[of.dim]; }

/* Context and args not NULL, `reserved` all zero. */
tigon_status tigon_check_call(tigon_context *context, const char *call, const void *args, const uint64_t *reserved,
                              int reserved_count);

/* Every argument on its own, then every output against all others. With `shape_only` data pointers are not looked at. */
tigon_status tigon_check_args(tigon_context *context, const char *call, tigon_arg *args, int count, bool shape_only);

/* a's shape must be b's: "call: y.shape[1] is 4095, must be 4096 (x.shape[1])". Absent a is fine. */
tigon_status tigon_check_same_shape(tigon_context *context, const char *call, const char *a_name, const tigon_tensor *a,
                                    const char *b_name, const tigon_tensor *b);
/* a's dtype must be b's, or `other` when that is not NONE. Absent a is fine. */
tigon_status tigon_check_same_dtype(tigon_context *context, const char *call, const char *a_name, const tigon_tensor *a,
                                    const char *b_name, const tigon_tensor *b, tigon_dtype other);
/* a's number of dimensions. Absent a is fine. */
tigon_status tigon_check_ndim(tigon_context *context, const char *call, const char *name, const tigon_tensor *a,
                              int ndim);
/* One extent of a; `because` names where the number comes from ("x.shape[1]"). Absent a is fine. */
tigon_status tigon_check_extent(tigon_context *context, const char *call, const char *name, const tigon_tensor *a,
                                int dim, int64_t extent, const char *because);
/* One extent of a, which must be another tensor's. Absent a is fine. */
tigon_status tigon_check_same_extent(tigon_context *context, const char *call, const char *name, const tigon_tensor *a,
                                     int dim, tigon_dim other);
/* a is [extent]; absent a is fine. */
tigon_status tigon_check_vector(tigon_context *context, const char *call, const char *name, const tigon_tensor *a,
                                int64_t extent, const char *because);
/* The same, of another tensor's extent. */
tigon_status tigon_check_same_vector(tigon_context *context, const char *call, const char *name, const tigon_tensor *a,
                                     tigon_dim other);
/* a has one element per row of `rows_of`: its shape is that without the last dimension, or [rows]. Absent a is fine. */
tigon_status tigon_check_per_row(tigon_context *context, const char *call, const char *name, const tigon_tensor *a,
                                 const char *rows_name, const tigon_tensor *rows_of);
/* low <= value <= high, which NaN is not. */
tigon_status tigon_check_number(tigon_context *context, const char *call, const char *name, double value, double low,
                                double high);
/* A value of an enumeration: 0 <= value <= last. */
tigon_status tigon_check_choice(tigon_context *context, const char *call, const char *name, int value, int last);
tigon_status tigon_check_flag(tigon_context *context, const char *call, const char *name, int value);
/* Large enough, aligned, and apart from the arguments that tigon_check_args() has seen last. */
tigon_status tigon_check_workspace(tigon_context *context, const char *call, const void *workspace, size_t bytes,
                                   size_t needed);

/* Every element of `indices` in [0, limit), or ignore when has_ignore: read on host devices when the caller gave no `error`
 * tensor. Returns the flag that the kernel raises in *flag: the caller's, else the context's. */
tigon_status tigon_check_indices(tigon_context *context, const char *call, const char *name,
                                 const tigon_tensor *indices, tigon_dim limit, bool has_ignore, int64_t ignore,
                                 const tigon_tensor *error, int32_t **flag);

static inline bool tigon_present(const tigon_tensor *tensor) { return tensor->ndim != 0 || tensor->data != NULL; }

/* Elements; the check has made sure that they fit. */
int64_t tigon_tensor_count(const tigon_tensor *tensor);

/* Does an element of the tensor share memory with another one? */
bool tigon_overlaps_itself(const tigon_tensor *t);
/* Of tensors whose ranges of memory meet: false only when no byte is shared. */
bool tigon_overlap(const tigon_tensor *s, const tigon_tensor *t);

/* Collapses the leading dimensions (all but the last `trailing`) of tensors of one leading shape to at most three levels:
 * rows[i] gets tensors[i]'s pitches. Absent tensors give data NULL. INVALID when more than three levels remain. */
tigon_status tigon_collapse(tigon_context *context, const char *call, int trailing, int count,
                            const tigon_tensor *const *tensors, tigon_rows *const *rows, tigon_row_space *space);
/* For elementwise ops, after tigon_collapse(): rows that lie end to end in all tensors become one longer row. Absent tensors do
 * not count, and rows and columns are not 0. */
void tigon_flatten(int count, tigon_rows *const *rows, tigon_row_space *space, int64_t *cols);

/* The same of all but the last dimension, to one pitch, rows[i]->pitch[2], which is all that a GEMM takes. INVALID when more
 * remain. */
tigon_status tigon_collapse_pitch(tigon_context *context, const char *call, int count,
                                  const tigon_tensor *const *tensors, tigon_rows *const *rows, int64_t *row_count);

#endif
