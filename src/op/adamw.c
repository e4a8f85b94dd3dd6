#include <tigon/op/adamw.h>

#include "op/front.h"

#define A tigon_adamw_step_args
#define E tigon_adamw_param
static const tigon_field step[] = {
    LIST(params),
    EACH_TENSOR(param, SAME, TIGON_FIELD_OUT),
    EACH_TENSOR(master, F32, TIGON_FIELD_OUT | TIGON_FIELD_OPTIONAL),
    EACH_TENSOR(grad, SAME_OR_F32, 0),
    EACH_TENSOR(exp_avg, F32, TIGON_FIELD_OUT),
    EACH_TENSOR(exp_avg_sq, F32, TIGON_FIELD_OUT),
    EACH_NUMBER(weight_decay, 0, FLT_MAX),
    MAY(clip_factor, "1 one number", F32, DENSE),
    NUMBER(lr, 0, FLT_MAX),
    BELOW(beta1, 0, 1),
    BELOW(beta2, 0, 1),
    NUMBER(eps, FLT_MIN, FLT_MAX),
    AT_LEAST(step, 1),
    RESERVED(reserved),
};
DESCRIBE_LIST(adamw, step, step);
#undef E
#undef A

#define A tigon_adamw_clip_args
#define E tigon_tensor
static const tigon_field clip[] = {
    LIST(grads),
    {.name = "grads", .flags = TIGON_FIELD_EACH | DENSE, .shape = "*", .dtypes = TIGON_FLOATS},
    OUT(norm, "1 one number", F32, DENSE, NULL),
    OUT(factor, "1 one number", F32, DENSE, NULL),
    NUMBER(max_norm, 0, FLT_MAX),
    WORKSPACE,
    RESERVED(reserved),
};
DESCRIBE_LIST(adamw, clip, clip);

/* ---- no output of a parameter may overlap a tensor of another one ---- */

/* Parameters of a block: their tensors' intervals are sorted on the stack. */
enum { BLOCK = 64, TENSORS = 5, FIRST = 1 /* the first of the fields above */ };

typedef struct interval {
  uintptr_t low, high;
  int64_t index; /* index of the parameter */
  const tigon_field *field;
} interval;

static int gather(const tigon_adamw_param *params, int64_t begin, int64_t end, interval *to) {
  int count = 0;
  for (int64_t i = begin; i < end; ++i) {
    for (const tigon_field *field = step + FIRST; field < step + FIRST + TENSORS; ++field) {
      const tigon_tensor *t = (const tigon_tensor *)(const void *)((const char *)&params[i] + field->offset);
      const size_t bytes = (size_t)tigon_tensor_count(t) * tigon_dtype_size(t->dtype);
      const uintptr_t low = (uintptr_t)t->data;
      if (bytes) to[count++] = (interval){low, low + bytes, i, field};
    }
  }
  return count;
}

/* Shellsort by low with the gaps of Gonnet and Baeza-Yates, because qsort() may allocate. */
static void sort(interval *list, int count) {
  for (int gap = count; gap > 0; gap = gap == 2 ? 1 : gap * 5 / 11)
    for (int i = gap; i < count; ++i) {
      const interval value = list[i];
      int at = i;
      for (; at >= gap && list[at - gap].low > value.low; at -= gap) list[at] = list[at - gap];
      list[at] = value;
    }
}

static bool is_output(const interval *x) { return x->field->flags & TIGON_FIELD_OUT; }

static tigon_status fail_overlap(tigon_context *context, const interval *a, const interval *b) {
  const bool swap = !is_output(a) || (is_output(b) && b->index < a->index);
  const interval *out = swap ? b : a, *other = swap ? a : b;
  return tigon_fail(context, TIGON_ERROR_ALIAS, "adamw_step: params[%lld].%s overlaps params[%lld].%s, must be apart",
                    (long long)out->index, out->field->name, (long long)other->index, other->field->name);
}

/* By rising low, an interval overlaps one before it when it begins below the highest end so far. */
static tigon_status check_sorted(tigon_context *context, const interval *list, int count) {
  const interval *any = &list[0], *out = is_output(any) ? any : NULL;
  for (int i = 1; i < count; ++i) {
    const interval *before = is_output(&list[i]) ? any : out;
    if (before && list[i].low < before->high) return fail_overlap(context, before, &list[i]);
    if (list[i].high > any->high) any = &list[i];
    if (is_output(&list[i])) out = &list[i]; /* the outputs before it end where it begins, at most */
  }
  return TIGON_OK;
}

static tigon_status check_apart(tigon_context *context, const tigon_adamw_param *params, int64_t count) {
  interval list[2 * BLOCK * TENSORS];
  for (int64_t i = 0; i < count; i += BLOCK)
    for (int64_t j = i; j < count; j += BLOCK) {
      if (j == i && j + BLOCK < count) continue; /* the next j takes this block too */
      int n = gather(params, i, count - i < BLOCK ? count : i + BLOCK, list);
      if (j > i) n += gather(params, j, count - j < BLOCK ? count : j + BLOCK, list + n);
      sort(list, n);
      if (n > 0) TIGON_TRY(check_sorted(context, list, n));
    }
  return TIGON_OK;
}

tigon_status tigon_adamw_step(tigon_context *context, const tigon_adamw_step_args *args) {
  TIGON_KEEP_CALLER_STATE;
  tigon_adamw_step_args a;
  TIGON_TRY(tigon_check_entry(context, &tigon_adamw_step_schema, args, &a, false));
  uint32_t dtypes = TIGON_BIT(TIGON_F32); /* the dtype of an empty list */
  for (int64_t i = 0; i < a.count; ++i) {
    tigon_adamw_param param = a.params[i];
    TIGON_TRY(tigon_check_element(context, &a, &param, i));
    dtypes |= TIGON_BIT(param.param.dtype);
  }
  if (a.count > 1) TIGON_TRY(check_apart(context, a.params, a.count));
  const tigon_adamw_step_problem p = {
      .params = a.params,
      .count = a.count,
      .clip_factor = a.clip_factor.data,
      .lr = a.lr,
      .beta1 = a.beta1,
      .beta2 = a.beta2,
      .eps = a.eps,
      .correction1 = 1 - pow(a.beta1, (double)a.step),
      .correction2 = 1 - pow(a.beta2, (double)a.step),
  };
  for (tigon_dtype d = TIGON_F32; d <= TIGON_BF16; ++d)
    if (dtypes & TIGON_BIT(d)) TIGON_TRY(TIGON_REQUIRE_SLOT(context, adamw_step, d));
  return TIGON_CALL_FOUND_SLOT(context, adamw_step, TIGON_F32, &p);
}

static tigon_status call_or_ask_clip(tigon_context *context, const tigon_adamw_clip_args *args, size_t *asked) {
  const size_t bytes = TIGON_ADAMW_PARTIALS * sizeof(double);
  tigon_adamw_clip_args a;
  TIGON_TRY(tigon_check_entry(context, &tigon_adamw_clip_schema, args, &a, asked != NULL));
  if (asked) return *asked = bytes, TIGON_OK;
  TIGON_TRY(tigon_check_workspace(context, a.workspace, a.workspace_bytes, bytes));
  for (int64_t i = 0; i < a.count; ++i) {
    tigon_tensor grad = a.grads[i];
    TIGON_TRY(tigon_check_element(context, &a, &grad, i));
    TIGON_TRY(tigon_check_workspace(context, a.workspace, a.workspace_bytes, bytes));
  }
  const tigon_adamw_clip_problem p = {
      .grads = a.grads,
      .count = a.count,
      .max_norm = a.max_norm,
      .norm = a.norm.data,
      .factor = a.factor.data,
      .partials = a.workspace,
  };
  return TIGON_CALL_SLOT(context, adamw_clip, TIGON_F32, &p);
}
TIGON_CALL_AND_QUERY(adamw, clip)
