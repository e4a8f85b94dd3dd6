#include <inttypes.h>
#include <tigon/op/fused_moe.h>

#include "op/front.h"

#define EXPERTS                                                                                                     \
  IN(x, "*c", SAME, ROWS), IN(idx, "*k", INTEGER, DENSE), IN(w, "*k", SAME_OR_F32, DENSE),                          \
      IN(gate_up, "gdc", SAME, EITHER), MAY(gate_up_bias, "gd", SAME_OR_F32, DENSE), IN(down, "gcf", SAME, EITHER), \
      MAY(down_bias, "gc", SAME_OR_F32, DENSE)
#define OPTIONS                                                                                                        \
  CHOICE(act, TIGON_MOE_GELU_TANH), FLAG(interleaved), FLAG(weight_before_down), FINITE(gate_mult), FINITE(down_mult), \
      NUMBER(clamp, 0, FLT_MAX), FINITE(up_offset), WORKSPACE, RESERVED(reserved)

#define A tigon_fused_moe_fwd_args
static const tigon_field fwd[] = {
    EXPERTS,
    OUT(y, "*c", SAME, ROWS, NULL),
    WANT(pre, "*kd", SAME, DENSE, NULL),
    OPTIONS,
};
#undef A

#define A tigon_fused_moe_bwd_args
static const tigon_field bwd[] = {
    EXPERTS,
    MAY(pre, "*kd", SAME, DENSE),
    IN(dy, "*c", SAME, ROWS),
    WANT(dx, "*c", SAME, ROWS, NULL),
    WANT(dw, "*k", SAME_OR_F32, DENSE, NULL),
    WANT(dgate_up, "gdc", SAME_OR_F32, EITHER, NULL),
    WANT(dgate_up_bias, "gd", SAME_OR_F32, DENSE, NULL),
    WANT(ddown, "gcf", SAME_OR_F32, EITHER, NULL),
    WANT(ddown_bias, "gc", SAME_OR_F32, DENSE, NULL),
    FLAG(accumulate_dgate_up),
    OPTIONS,
};
#undef A

static tigon_expert_weights weights_of(const tigon_tensor *t) {
  if (!tigon_present(t)) return (tigon_expert_weights){0};
  const bool turned = t->strides[2] != 1;
  return (tigon_expert_weights){t->data, t->dtype, t->strides[0], t->strides[turned ? 2 : 1], turned};
}

/* Fields that either direction fills from its arguments `a`. */
#define FUSED_MOE                                                                                                     \
  TIGON_ROWS_OF(x),                                                                                                   \
      .inner = tigon_last_extent(&a->down), .experts = a->gate_up.shape[0], .top_k = tigon_last_extent(&a->idx),      \
      .idx_dtype = a->idx.dtype, .idx = a->idx.data, .w = tigon_vector_of(&a->w), .gate_up = weights_of(&a->gate_up), \
      .gate_up_bias = tigon_vector_of(&a->gate_up_bias), .down = weights_of(&a->down),                                \
      .down_bias = tigon_vector_of(&a->down_bias), .pre = tigon_vector_of(&a->pre), .act = (tigon_moe_act)a->act,     \
      .interleaved = a->interleaved != 0, .weight_before_down = a->weight_before_down != 0,                           \
      .numbers = tigon_gate_numbers(a->gate_mult, a->down_mult, a->clamp, a->up_offset)

/* Gate and up are as wide as what they make, and a workspace can hold a few rows of each width for every slot. */
static tigon_status check_sizes(tigon_context *context, const tigon_tensor *gate_up, const tigon_fused_moe_problem *p) {
  const int64_t most = INT64_MAX >> 8, widest = p->cols > 2 * p->inner ? p->cols : 2 * p->inner;
  if (gate_up->shape[1] % 2 || gate_up->shape[1] / 2 != p->inner)
    return tigon_refuse(context, "gate_up.shape[1] is %" PRId64 ", must be 2 * %" PRId64 " (down.shape[2])",
                        gate_up->shape[1], p->inner);
  const int64_t slots = p->space.rows * (p->top_k + 1); /* no more than the bytes of idx, or one per row */
  int64_t elements;
  if (__builtin_mul_overflow(slots, widest + 1, &elements) || elements > most || p->experts > most)
    return tigon_refuse(context, "x and idx have more slots than a workspace can hold rows for");
  return TIGON_OK;
}

/* The two sizes of a query, which `p` is asked for. */
#define SIZES(entry)                                                                                                   \
  static tigon_status sizes_##entry(tigon_context *context, tigon_fused_moe_problem *p, size_t *least, size_t *good) { \
    p->workspace_bytes = 0;                                                                                            \
    TIGON_TRY(TIGON_ASK_WORKSPACE(context, fused_moe_##entry, p->dtype, p, least));                                    \
    p->workspace_bytes = 1;                                                                                            \
    return TIGON_ASK_WORKSPACE(context, fused_moe_##entry, p->dtype, p, good);                                         \
  }
SIZES(fwd)
SIZES(bwd)

static tigon_status prepare_fwd(tigon_context *context, const tigon_fused_moe_fwd_args *a, tigon_fused_moe_problem *p) {
  *p = (tigon_fused_moe_problem){FUSED_MOE};
  TIGON_TRY(TIGON_COLLAPSE(context, &p->space, {&a->x, &p->x}, {&a->y, &p->y}));
  return check_sizes(context, &a->gate_up, p);
}

static tigon_status prepare_bwd(tigon_context *context, const tigon_fused_moe_bwd_args *a, tigon_fused_moe_problem *p) {
  *p = (tigon_fused_moe_problem){FUSED_MOE,
                                 .dw = tigon_vector_of(&a->dw),
                                 .dgate_up = weights_of(&a->dgate_up),
                                 .dgate_up_bias = tigon_vector_of(&a->dgate_up_bias),
                                 .ddown = weights_of(&a->ddown),
                                 .ddown_bias = tigon_vector_of(&a->ddown_bias),
                                 .accumulate = a->accumulate_dgate_up != 0};
  TIGON_TRY(TIGON_COLLAPSE(context, &p->space, {&a->x, &p->x}, {&a->dy, &p->y}, {&a->dx, &p->dx}));
  return check_sizes(context, &a->gate_up, p);
}

/* Makes an entry, which has nothing to do where `is_empty`, and the query of its two sizes. */
#define ENTRY(entry, is_empty)                                                                                         \
  DESCRIBE_OF(fused_moe, entry, entry, tigon_fused_moe_##entry##_args, 0);                                             \
  tigon_status tigon_fused_moe_##entry(tigon_context *context, const tigon_fused_moe_##entry##_args *args) {           \
    TIGON_KEEP_CALLER_STATE;                                                                                           \
    tigon_fused_moe_##entry##_args a;                                                                                  \
    tigon_fused_moe_problem p;                                                                                         \
    size_t least, good;                                                                                                \
    TIGON_TRY(tigon_check_entry(context, &tigon_fused_moe_##entry##_schema, args, &a, false));                         \
    TIGON_TRY(prepare_##entry(context, &a, &p));                                                                       \
    TIGON_TRY(sizes_##entry(context, &p, &least, &good));                                                              \
    TIGON_TRY(tigon_check_workspace(context, a.workspace, a.workspace_bytes, least));                                  \
    p.workspace = a.workspace;                                                                                         \
    p.workspace_bytes = (int64_t)(a.workspace_bytes < good ? a.workspace_bytes : good);                                \
    return (is_empty) ? TIGON_OK : TIGON_CALL_SLOT(context, fused_moe_##entry, p.dtype, &p);                           \
  }                                                                                                                    \
  tigon_status tigon_fused_moe_##entry##_workspace(tigon_context *context, const tigon_fused_moe_##entry##_args *args, \
                                                   size_t *minimum, size_t *recommended) {                             \
    TIGON_KEEP_CALLER_STATE;                                                                                           \
    tigon_fused_moe_##entry##_args a;                                                                                  \
    tigon_fused_moe_problem p;                                                                                         \
    size_t least, good;                                                                                                \
    TIGON_TRY(tigon_check_entry(context, &tigon_fused_moe_##entry##_schema, args, &a, true));                          \
    TIGON_TRY(prepare_##entry(context, &a, &p));                                                                       \
    TIGON_TRY(sizes_##entry(context, &p, &least, &good));                                                              \
    if (minimum) *minimum = least;                                                                                     \
    if (recommended) *recommended = good;                                                                              \
    return TIGON_OK;                                                                                                   \
  }
ENTRY(fwd, p.space.rows == 0)
/* Without tokens gradients of weights are 0. */
ENTRY(bwd, p.space.rows == 0 && p.accumulate)
