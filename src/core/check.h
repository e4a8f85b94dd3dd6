/* The checks of a call: all that its entry's description says (tigon_check_entry()), and the few relations beyond it that
 * fronts check themselves. Each function returns OK or fails the context with one sentence: which argument, what it is, what
 * it must be. */
#ifndef TIGON_CORE_CHECK_H
#define TIGON_CORE_CHECK_H

#include <tigon/schema.h>

#include "core/context.h"

/* ---- what a description says ---- */

/* Context and args not NULL, each `reserved` all zero. The other checks follow tigon_check_begin() on the same context. */
tigon_status tigon_check_begin(tigon_context *context, const tigon_schema *schema, const void *args);

/* All of the description but the elements of a list. `args` is the front's own copy of the struct: strides are filled in,
 * and an absent tensor gets no dtype. With `shape_only` data pointers are not looked at. */
tigon_status tigon_check_fields(tigon_context *context, void *args, bool shape_only);
/* Both, of the caller's `from`, which is copied to `args`. */
tigon_status tigon_check_entry(tigon_context *context, const tigon_schema *schema, const void *from, void *args,
                               bool shape_only);
/* The fields of one element of a list beside those of the struct; `index` is for sentences. */
tigon_status tigon_check_element(tigon_context *context, void *args, void *element, int64_t index);

/* Large enough, aligned, and apart from the tensors that were checked last. */
tigon_status tigon_check_workspace(tigon_context *context, const void *workspace, size_t bytes, size_t needed);
/* The query's own argument; `schema` is the entry's that it is of. */
tigon_status tigon_check_query(tigon_context *context, const tigon_schema *schema, const size_t *bytes);

/* Is `name` a word of `list`, which may be NULL? */
bool tigon_is_listed(const char *list, const char *name);

/* ---- how src/core/entry.c uses src/core/check.c ---- */

enum { TIGON_NAME = 64, TIGON_RESERVED = 4 };
/* The field's name in a sentence, "params[3].grad" within a list; `name` may hold it. */
const char *tigon_field_name(const tigon_context *context, const tigon_field *field, char name[TIGON_NAME]);
/* Each tensor on its own, then every output against all others; `element` NULL: those of no list. */
tigon_status tigon_check_tensors(tigon_context *context, char *args, char *element, bool shape_only);
/* A number, a list's count, reserved words. */
tigon_status tigon_check_field(tigon_context *context, const tigon_field *field, const void *value);

/* ---- relations beyond descriptions ---- */

/* Fails the call at work as INVALID: "<entry>: <sentence>". */
__attribute__((format(printf, 2, 3))) tigon_status tigon_refuse(tigon_context *context, const char *format, ...);

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

/* a's shape must be b's: "call: y.shape[1] is 4095, must be 4096 (x.shape[1])". Absent a is fine. */
tigon_status tigon_check_same_shape(tigon_context *context, const char *a_name, const tigon_tensor *a,
                                    const char *b_name, const tigon_tensor *b);
/* a's number of dimensions. Absent a is fine. */
tigon_status tigon_check_ndim(tigon_context *context, const char *name, const tigon_tensor *a, int ndim);
/* One extent of a; `because` names where the number comes from ("x.shape[1]"). Absent a is fine. */
tigon_status tigon_check_extent(tigon_context *context, const char *name, const tigon_tensor *a, int dim,
                                int64_t extent, const char *because);
/* One extent of a, which must be another tensor's. Absent a is fine. */
tigon_status tigon_check_same_extent(tigon_context *context, const char *name, const tigon_tensor *a, int dim,
                                     tigon_dim other);
/* a is [extent]; absent a is fine. */
tigon_status tigon_check_vector(tigon_context *context, const char *name, const tigon_tensor *a, int64_t extent,
                                const char *because);
/* a has one element per row of `rows_of`: its shape is that without the last dimension, or [rows]. Absent a is fine. */
tigon_status tigon_check_per_row(tigon_context *context, const char *name, const tigon_tensor *a, const char *rows_name,
                                 const tigon_tensor *rows_of);

/* Every element of `indices` in [0, limit), or ignore when has_ignore: read on host devices when the caller gave no `error`
 * tensor. Returns the flag that the kernel raises in *flag: the caller's, else the context's. */
tigon_status tigon_check_indices(tigon_context *context, const char *name, const tigon_tensor *indices, tigon_dim limit,
                                 bool has_ignore, int64_t ignore, const tigon_tensor *error, int32_t **flag);
/* The same below `end`, which a sentence calls `limit`; without a tensor that is a number's name. */
tigon_status tigon_check_below(tigon_context *context, const char *name, const tigon_tensor *indices, int64_t end,
                               tigon_dim limit, bool has_ignore, int64_t ignore, const tigon_tensor *error,
                               int32_t **flag);

static inline bool tigon_present(const tigon_tensor *tensor) { return tensor->ndim != 0 || tensor->data != NULL; }

/* Elements; the check has made sure that they fit. */
int64_t tigon_tensor_count(const tigon_tensor *tensor);

/* Does an element of the tensor share memory with another one? */
bool tigon_overlaps_itself(const tigon_tensor *t);
/* Whether the tensors share a byte, if their ranges of memory meet. False only when no byte is shared. */
bool tigon_overlap(const tigon_tensor *s, const tigon_tensor *t);

/* ---- rows ---- */

/* A tensor, and the rows of a problem that it becomes. */
typedef struct tigon_row_tensor {
  const tigon_tensor *tensor;
  tigon_rows *rows;
} tigon_row_tensor;

/* Collapses the leading dimensions (all but the last) of tensors of one leading shape to at most three levels: `rows` get
 * their pitches. Absent tensors give data NULL. INVALID when more than three levels remain.
 * TIGON_COLLAPSE(context, &p->space, {&a->x, &p->x}, {&a->y, &p->y}) */
tigon_status tigon_collapse_rows(tigon_context *context, tigon_row_space *space, const tigon_row_tensor *of, int count);
#define TIGON_COLLAPSE(context, space, ...)                              \
  tigon_collapse_rows(context, space, (tigon_row_tensor[]){__VA_ARGS__}, \
                      (int)(sizeof((tigon_row_tensor[]){__VA_ARGS__}) / sizeof(tigon_row_tensor)))
/* For elementwise ops, after it: rows that lie end to end in all tensors become one longer row. Absent tensors do not
 * count, and rows and columns are not 0. */
void tigon_flatten(tigon_row_space *space, int64_t *cols, const tigon_row_tensor *of, int count);

/* A matrix, and its rows' pitch. */
typedef struct tigon_pitch_tensor {
  const tigon_tensor *tensor;
  int64_t *pitch;
} tigon_pitch_tensor;

/* The same collapse to one pitch, which is all that a GEMM takes. INVALID when more remain. */
tigon_status tigon_collapse_pitches(tigon_context *context, int64_t *rows, const tigon_pitch_tensor *of, int count);
#define TIGON_COLLAPSE_PITCHES(context, rows, ...)                           \
  tigon_collapse_pitches(context, rows, (tigon_pitch_tensor[]){__VA_ARGS__}, \
                         (int)(sizeof((tigon_pitch_tensor[]){__VA_ARGS__}) / sizeof(tigon_pitch_tensor)))

#endif
