#include <tigon/op/adamw.h>

#include "op/front.h"

enum { FIELDS = 5 };
static const char *const fields[FIELDS] = {"param", "master", "grad", "exp_avg", "exp_avg_sq"};

/* The tensors of params[i] by themselves. The names are only put together for a sentence. */
static tigon_status check_param(tigon_context *context, int64_t i, const tigon_adamw_param *param,
                                tigon_tensor *clip_factor, bool named) {
  const char *call = "adamw_step";
  char names[FIELDS + 1][48];
  for (int f = 0; named && f < FIELDS; ++f)
    snprintf(names[f], sizeof names[f], "params[%lld].%s", (long long)i, fields[f]);
  if (named) snprintf(names[FIELDS], sizeof names[FIELDS], "params[%lld].weight_decay", (long long)i);
  tigon_adamw_param a = *param;
  const uint32_t f32 = TIGON_BIT(TIGON_F32);
  tigon_arg list[] = {
      {fields[0], &a.param, TIGON_FLOATS, TIGON_OUT | TIGON_CONTIGUOUS, NULL},
      {fields[1], &a.master, f32, TIGON_OUT | TIGON_OPTIONAL | TIGON_CONTIGUOUS, NULL},
      {fields[2], &a.grad, TIGON_FLOATS, TIGON_IN | TIGON_CONTIGUOUS, NULL},
      {fields[3], &a.exp_avg, f32, TIGON_OUT | TIGON_CONTIGUOUS, NULL},
      {fields[4], &a.exp_avg_sq, f32, TIGON_OUT | TIGON_CONTIGUOUS, NULL},
      {"clip_factor", clip_factor, f32, TIGON_IN | TIGON_OPTIONAL | TIGON_CONTIGUOUS, NULL},
  };
  for (int f = 0; named && f < FIELDS; ++f) list[f].name = names[f];
  TIGON_TRY(tigon_check_args(context, call, list, TIGON_COUNT(list), false));
  for (int f = 1; f < FIELDS; ++f)
    TIGON_TRY(tigon_check_same_shape(context, call, list[f].name, list[f].tensor, list[0].name, &a.param));
  TIGON_TRY(tigon_check_same_dtype(context, call, list[2].name, &a.grad, list[0].name, &a.param, TIGON_F32));
  return tigon_check_number(context, call, names[FIELDS], a.weight_decay, 0, FLT_MAX);
}

/* ---- no output of an entry may overlap a tensor of another one ---- */

/* Entries of a block: their intervals are sorted on the stack. */
enum { BLOCK = 64 };

typedef struct interval {
  uintptr_t low, high;
  int64_t entry;
  int field;
} interval;

static int gather(const tigon_adamw_param *params, int64_t begin, int64_t end, interval *to) {
  int count = 0;
  for (int64_t i = begin; i < end; ++i) {
    const tigon_tensor *const tensors[FIELDS] = {&params[i].param, &params[i].master, &params[i].grad,
                                                 &params[i].exp_avg, &params[i].exp_avg_sq};
    for (int f = 0; f < FIELDS; ++f) {
      const size_t bytes = (size_t)tigon_tensor_count(tensors[f]) * tigon_dtype_size(tensors[f]->dtype);
      const uintptr_t low = (uintptr_t)tensors[f]->data;
      if (bytes) to[count++] = (interval){low, low + bytes, i, f};
    }
  }
  return count;
}

/* Heapsort by low, because qsort() may allocate. */
static void sift(interval *heap, int root, int count) {
  const interval value = heap[root];
  for (int child; (child = 2 * root + 1) < count; root = child) {
    if (child + 1 < count && heap[child + 1].low > heap[child].low) ++child;
    if (heap[child].low <= value.low) break;
    heap[root] = heap[child];
  }
  heap[root] = value;
}
static void sort(interval *list, int count) {
  for (int root = count / 2 - 1; root >= 0; --root) sift(list, root, count);
  for (int last = count - 1; last > 0; --last) {
    const interval largest = list[0];
    list[0] = list[last];
    list[last] = largest;
    sift(list, 0, last);
  }
}

static bool is_output(const interval *x) { return x->field != 2; }

static tigon_status fail_overlap(tigon_context *context, const interval *a, const interval *b) {
  const bool swap = !is_output(a) || (is_output(b) && b->entry < a->entry);
  const interval *out = swap ? b : a, *other = swap ? a : b;
  return tigon_fail(context, TIGON_ERROR_ALIAS, "adamw_step: params[%lld].%s overlaps params[%lld].%s, must be apart",
                    (long long)out->entry, fields[out->field], (long long)other->entry, fields[other->field]);
}

/* By rising low, an interval overlaps one before it when it begins below the highest end so far. */
static tigon_status check_sorted(tigon_context *context, const interval *list, int count) {
  const interval *any = &list[0], *out = is_output(any) ? any : NULL;
  for (int i = 1; i < count; ++i) {
    const interval *before = is_output(&list[i]) ? any : out;
    if (before && list[i].low < before->high) return fail_overlap(context, before, &list[i]);
    if (list[i].high > any->high) any = &list[i];
    if (is_output(&list[i]) && (!out || list[i].high > out->high)) out = &list[i];
  }
  return TIGON_OK;
}

static tigon_status check_apart(tigon_context *context, const tigon_adamw_param *params, int64_t count) {
  interval list[2 * BLOCK * FIELDS];
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

static tigon_status check_beta(tigon_context *context, const char *call, const char *name, double beta) {
  if (beta >= 0 && beta < 1) return TIGON_OK;
  return tigon_fail(context, TIGON_ERROR_INVALID, "%s: %s is %g, must be at least 0 and less than 1", call, name, beta);
}

tigon_status tigon_adamw_step(tigon_context *context, const tigon_adamw_step_args *args) {
  TIGON_KEEP_CALLER_STATE;
  const char *call = "adamw_step";
  TIGON_TRY(tigon_check_call(context, call, args, args ? args->reserved : NULL, 4));
  tigon_adamw_step_args a = *args;
  if (a.count < 0)
    return tigon_fail(context, TIGON_ERROR_INVALID, "%s: count is %lld, must be >= 0", call, (long long)a.count);
  if (a.count && !a.params) return tigon_fail(context, TIGON_ERROR_INVALID, "%s: params is NULL", call);
  TIGON_TRY(tigon_check_number(context, call, "lr", a.lr, 0, FLT_MAX));
  TIGON_TRY(check_beta(context, call, "beta1", a.beta1));
  TIGON_TRY(check_beta(context, call, "beta2", a.beta2));
  TIGON_TRY(tigon_check_number(context, call, "eps", a.eps, FLT_MIN, FLT_MAX));
  if (a.step < 1)
    return tigon_fail(context, TIGON_ERROR_INVALID, "%s: step is %lld, must be >= 1", call, (long long)a.step);
  uint32_t dtypes = 0;
  TIGON_TRY(tigon_check_vector(context, call, "clip_factor", &a.clip_factor, 1, "one number"));
  for (int64_t i = 0; i < a.count; ++i) {
    if (check_param(context, i, &a.params[i], &a.clip_factor, false) != TIGON_OK)
      return check_param(context, i, &a.params[i], &a.clip_factor, true);
    dtypes |= TIGON_BIT(a.params[i].param.dtype);
  }
  TIGON_TRY(check_apart(context, a.params, a.count));
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
    if ((dtypes & TIGON_BIT(d)) && !TIGON_CAN_CALL(context, adamw_step, d))
      return tigon_front_unsupported(context, "adamw_step", d);
  return TIGON_CALL_SLOT(context, adamw_step, TIGON_F32, &p);
}

static const size_t clip_bytes = TIGON_ADAMW_PARTIALS * sizeof(double);

tigon_status tigon_adamw_clip(tigon_context *context, const tigon_adamw_clip_args *args) {
  TIGON_KEEP_CALLER_STATE;
  const char *call = "adamw_clip";
  TIGON_TRY(tigon_check_call(context, call, args, args ? args->reserved : NULL, 4));
  tigon_adamw_clip_args a = *args;
  if (a.count < 0)
    return tigon_fail(context, TIGON_ERROR_INVALID, "%s: count is %lld, must be >= 0", call, (long long)a.count);
  if (a.count && !a.grads) return tigon_fail(context, TIGON_ERROR_INVALID, "%s: grads is NULL", call);
  TIGON_TRY(tigon_check_number(context, call, "max_norm", a.max_norm, 0, FLT_MAX));
  const uint32_t f32 = TIGON_BIT(TIGON_F32);
  tigon_tensor nothing = {0};
  for (int64_t i = -1; i < a.count; ++i) {
    char name[32];
    snprintf(name, sizeof name, "grads[%lld]", (long long)i);
    tigon_tensor grad = i < 0 ? nothing : a.grads[i];
    tigon_arg list[] = {
        {"norm", &a.norm, f32, TIGON_OUT | TIGON_CONTIGUOUS, NULL},
        {"factor", &a.factor, f32, TIGON_OUT | TIGON_CONTIGUOUS, NULL},
        {name, &grad, TIGON_FLOATS, TIGON_IN | TIGON_CONTIGUOUS | (i < 0 ? TIGON_OPTIONAL : 0), NULL},
    };
    TIGON_TRY(tigon_check_args(context, call, list, TIGON_COUNT(list), false));
    TIGON_TRY(tigon_check_workspace(context, call, a.workspace, a.workspace_bytes, clip_bytes));
  }
  TIGON_TRY(tigon_check_vector(context, call, "norm", &a.norm, 1, "one number"));
  TIGON_TRY(tigon_check_vector(context, call, "factor", &a.factor, 1, "one number"));
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

tigon_status tigon_adamw_clip_workspace(tigon_context *context, const tigon_adamw_clip_args *args, size_t *bytes) {
  TIGON_KEEP_CALLER_STATE;
  TIGON_TRY(tigon_check_call(context, "adamw_clip_workspace", args, args ? args->reserved : NULL, 4));
  if (!bytes) return tigon_fail(context, TIGON_ERROR_INVALID, "adamw_clip_workspace: bytes is NULL");
  *bytes = clip_bytes;
  return TIGON_OK;
}
