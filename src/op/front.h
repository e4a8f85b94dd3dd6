/* What fronts share. A front describes its entries (describe.h), and fills in each one's problem, from which the entry
 * itself is made here. It names no backend. */
#ifndef TIGON_OP_FRONT_H
#define TIGON_OP_FRONT_H

#include "core/caller_state.h"
#include "core/check.h"
#include "core/context.h"
#include "op/describe.h"

#define TIGON_COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* Parts of a workspace begin on lines of a cache. */
enum { LINE = 64 /* bytes */ };
static inline size_t lines(size_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }

/* The last extent of a present tensor. */
static inline int64_t tigon_last_extent(const tigon_tensor *tensor) { return tensor->shape[tensor->ndim - 1]; }

/* Members of a problem over the rows of `x`, a field of the arguments `a`. */
#define TIGON_ROWS_OF(x) .cols = tigon_last_extent(&a->x), .dtype = a->x.dtype

/* [batch, tokens, heads, head_dim]; {0} where it is absent. */
static inline tigon_heads tigon_heads_of(const tigon_tensor *t) {
  if (!tigon_present(t)) return (tigon_heads){0};
  return (tigon_heads){t->data, t->shape[2], t->strides[0], t->strides[1], t->strides[2]};
}

/* The numbers of an activation with a gate. A mult of 0 means 1. A clamp too small for f32 stays a clamp. */
static inline tigon_map_numbers tigon_gate_numbers(double gate_mult, double down_mult, double clamp, double up_offset) {
  return (tigon_map_numbers){.gate_mult = gate_mult == 0 ? 1.0f : (float)gate_mult,
                             .down_mult = down_mult == 0 ? 1.0f : (float)down_mult,
                             .clamp = clamp > 0 && (float)clamp == 0 ? FLT_TRUE_MIN : (float)clamp,
                             .up_offset = (float)up_offset};
}

/* Has a problem over rows nothing to do? */
#define TIGON_NO_ELEMENTS(p) ((p).space.rows == 0 || (p).cols == 0)

/* Makes tigon_<op>_<entry>(), which `fields` describe. It checks a copy of the caller's arguments by them. prepare(context,
 * const tigon_<op>_<entry>_args *a, tigon_<op>_<entry>_problem *p) checks the rest and fills in the problem. Then it calls the
 * slot, unless `is_empty`, a condition on `p`, says that there is nothing to do. */
#define TIGON_ENTRY(op, entry, fields, prepare, is_empty)                                              \
  DESCRIBE_OF(op, entry, fields, tigon_##op##_##entry##_args, 0);                                      \
  tigon_status tigon_##op##_##entry(tigon_context *context, const tigon_##op##_##entry##_args *args) { \
    TIGON_KEEP_CALLER_STATE;                                                                           \
    tigon_##op##_##entry##_args a;                                                                     \
    tigon_##op##_##entry##_problem p;                                                                  \
    TIGON_TRY(tigon_check_entry(context, &tigon_##op##_##entry##_schema, args, &a, false));            \
    TIGON_TRY(prepare(context, &a, &p));                                                               \
    return (is_empty) ? TIGON_OK : TIGON_CALL_SLOT(context, op##_##entry, p.dtype, &p);                \
  }

/* Makes tigon_<op>_<entry>() and the query of its workspace from call_or_ask_<entry>(context, args, size_t *asked).
 * That calls, or stores the bytes that the call needs where `asked` is not NULL: tensors may then have no data. */
#define TIGON_CALL_AND_QUERY(op, entry)                                                                          \
  tigon_status tigon_##op##_##entry(tigon_context *context, const tigon_##op##_##entry##_args *args) {           \
    TIGON_KEEP_CALLER_STATE;                                                                                     \
    return call_or_ask_##entry(context, args, NULL);                                                             \
  }                                                                                                              \
  tigon_status tigon_##op##_##entry##_workspace(tigon_context *context, const tigon_##op##_##entry##_args *args, \
                                                size_t *bytes) {                                                 \
    TIGON_KEEP_CALLER_STATE;                                                                                     \
    TIGON_TRY(tigon_check_query(context, &tigon_##op##_##entry##_schema, bytes));                                \
    return call_or_ask_##entry(context, args, bytes);                                                            \
  }

/* TIGON_ENTRY with a workspace and its query:
 *   prepare(context, a, p, size_t *bytes)
 * also stores the bytes that the call needs, where there are any. */
#define TIGON_ENTRY_WITH_WORKSPACE(op, entry, fields, prepare, is_empty)                                   \
  DESCRIBE_OF(op, entry, fields, tigon_##op##_##entry##_args, 0);                                          \
  static tigon_status call_or_ask_##entry(tigon_context *context, const tigon_##op##_##entry##_args *args, \
                                          size_t *asked) {                                                 \
    tigon_##op##_##entry##_args a;                                                                         \
    tigon_##op##_##entry##_problem p;                                                                      \
    size_t bytes = 0;                                                                                      \
    TIGON_TRY(tigon_check_entry(context, &tigon_##op##_##entry##_schema, args, &a, asked != NULL));        \
    TIGON_TRY(prepare(context, &a, &p, &bytes));                                                           \
    if (asked) return *asked = bytes, TIGON_OK;                                                            \
    TIGON_TRY(tigon_check_workspace(context, a.workspace, a.workspace_bytes, bytes));                      \
    return (is_empty) ? TIGON_OK : TIGON_CALL_SLOT(context, op##_##entry, p.dtype, &p);                    \
  }                                                                                                        \
  TIGON_CALL_AND_QUERY(op, entry)

/* tigon_<op>_<entry>() and the query of the least and the best workspace, from run(context, a, least, good), which asks where there is
 * a `least`. */
#define TIGON_CALL_AND_RANGE_QUERY(op, entry, run)                                                               \
  tigon_status tigon_##op##_##entry(tigon_context *context, const tigon_##op##_##entry##_args *args) {           \
    TIGON_KEEP_CALLER_STATE;                                                                                     \
    tigon_##op##_##entry##_args a;                                                                               \
    TIGON_TRY(tigon_check_entry(context, &tigon_##op##_##entry##_schema, args, &a, false));                      \
    return run(context, &a, NULL, NULL);                                                                         \
  }                                                                                                              \
  tigon_status tigon_##op##_##entry##_workspace(tigon_context *context, const tigon_##op##_##entry##_args *args, \
                                                size_t *minimum, size_t *recommended) {                          \
    TIGON_KEEP_CALLER_STATE;                                                                                     \
    tigon_##op##_##entry##_args a;                                                                               \
    size_t least;                                                                                                \
    TIGON_TRY(tigon_check_entry(context, &tigon_##op##_##entry##_schema, args, &a, true));                       \
    TIGON_TRY(run(context, &a, &least, recommended));                                                            \
    if (minimum) *minimum = least;                                                                               \
    return TIGON_OK;                                                                                             \
  }

/* p's tensors, the inputs first, as few long rows. src/op/map.c. */
tigon_status tigon_map(tigon_context *context, int inputs, int count, const tigon_tensor *const *tensors,
                       tigon_map_problem *p);

/* The entry of an elementwise operator with the tensors of `a`, the inputs first:
 * TIGON_MAP_ENTRY(geglu, fwd, fwd, (tigon_map_numbers){.approx = a->approx}, 2, &a->a, &a->b, &a->c) */
#define TIGON_MAP_ENTRY(op, entry, fields, of_numbers, inputs, ...)                                 \
  static tigon_status prepare_##entry(tigon_context *context, const tigon_##op##_##entry##_args *a, \
                                      tigon_map_problem *p) {                                       \
    const tigon_tensor *const tensors[] = {__VA_ARGS__};                                            \
    *p = (tigon_map_problem){.numbers = of_numbers};                                                \
    return tigon_map(context, inputs, TIGON_COUNT(tensors), tensors, p);                            \
  }                                                                                                 \
  TIGON_ENTRY(op, entry, fields, prepare_##entry, TIGON_NO_ELEMENTS(p))

#endif
