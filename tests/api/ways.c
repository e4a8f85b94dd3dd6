/* One call, made in another way, gives the same bits. The ways are other layouts of tensors, outputs over inputs, fewer outputs,
 * and the written-out meaning of 0 or an absent tensor. With an extent of 0 it gives what the oracle does. The ways of every
 * entry are read from its description. */
#include "api.h"
#include "views.h"

enum { ARENA = 1 << 20, ROOM = 1 << 17, PITCH = 2048, FIELDS = 64 };

static _Alignas(64) char memory[2][ARENA + ROOM], numbers[ARENA + ROOM], fresh[ARENA + ROOM], before[ARENA + ROOM];

typedef struct test {
  tigon_context *context;
  call_choices how;
  call plain, other; /* in memory[0] and memory[1] */
  bool rounds; /* bits may differ: another context, or group_norm's sums over channels that do not lie end to end */
  long done;
} test;

static size_t make(call *c, int entry, const call_choices *how, char *arena) {
  const size_t used = call_make(c, entry, tigon_schema_at(entry), how, arena, ARENA);
  assert_true(used > 0);
  call_set_workspace(c, arena + ARENA, ROOM);
  return used;
}

/* The plain call, which may still be changed. */
static void begin(test *t, int entry, const call_choices *how) {
  t->how = *how;
  memcpy(memory[0], numbers, sizeof numbers);
  make(&t->plain, entry, how, memory[0]);
}

/* The other call; returns the bytes that its tensors take. */
static size_t make_other(test *t, const call_choices *how) {
  t->rounds = false;
  return make(&t->other, t->plain.entry, how, memory[1]);
}

/* Its outputs are what others must give. */
static void run_plain(test *t) {
  memcpy(fresh, memory[0], sizeof fresh);
  if (call_run(&t->plain, t->context) != TIGON_OK) fail_msg("%s", tigon_last_error(t->context));
}

/* An element of the plain call as it was before. */
static const char *given(const tigon_tensor *x, int64_t i) { return fresh + (element_of(x, i) - memory[0]); }

/* Gives the other call the values of the plain one. False where one of its tensors would round them. */
static bool give(test *t) {
  for (view v = view_at(&t->plain, 0); v.x; v = view_at(&t->plain, v.k + 1)) {
    const tigon_tensor *from = v.x, *to = twin(&t->other, &v);
    if (!from->data || !to->data) continue;
    if (from->dtype != to->dtype && (v.field->dtypes & 1u << TIGON_F32)) return false;
    for (int64_t i = 0; i < count_of(from); ++i) {
      const int64_t index = to->dtype == TIGON_I64 ? tigon_load_index(given(from, i), 0, from->dtype) : 0;
      memcpy(element_of(to, i), from->dtype == to->dtype ? given(from, i) : (const char *)&index, (size_t)size_of(to));
    }
  }
  return true;
}

/* Equal but for rounding. */
static bool is_close(double a, double b) { return a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= 0.01 * fabs(b); }

/* Makes the other call. Its outputs must have the plain one's bits. If it `differs`, one of them has other bits or is
 * left out. No other byte may change. */
static void compare_or(test *t, const char *way, bool differs) {
  bool found = false;
  memcpy(before, memory[1], sizeof before);
  if (call_run(&t->other, t->context) != TIGON_OK) fail_msg("%s: %s", way, tigon_last_error(t->context));
  for (view v = view_at(&t->plain, 0); v.x; v = view_at(&t->plain, v.k + 1)) {
    const tigon_tensor *must = v.x, *is = twin(&t->other, &v);
    if (!(v.field->flags & TIGON_FIELD_OUT)) continue;
    found = found || (must->data && !is->data);
    for (int64_t i = 0; i < count_of(is); ++i) {
      char *at = element_of(is, i);
      const bool same = !must->data || memcmp(at, element_of(must, i), (size_t)size_of(is)) == 0 ||
                        (t->rounds && is_close(value_of(is, i), value_of(must, i)));
      if (!same && !differs)
        fail_msg("%s: %s[%d] differs: %s, %s, %d leading dimensions", t->plain.schema->name, v.field->name, (int)i, way,
                 tigon_dtype_name(t->how.dtype), t->how.leading);
      found = found || !same;
      memcpy(at, before + (at - memory[1]), (size_t)size_of(is));
    }
  }
  if (differs && !found)
    fail_msg("%s: %s does not count: %s, %d leading dimensions", t->plain.schema->name, way,
             tigon_dtype_name(t->how.dtype), t->how.leading);
  if (memcmp(memory[1], before, ARENA) != 0)
    fail_msg("%s: more than outputs was written: %s", t->plain.schema->name, way);
  t->done += !differs;
}

static void compare(test *t, const char *way) { compare_or(t, way, false); }

/* ---- where tensors lie ---- */

/* Dimensions inside a row, whose elements lie end to end. */
static int row_of(const test *t, const tigon_field *field, const tigon_tensor *x) {
  if (field->flags & TIGON_FIELD_FREE_LAST && x->ndim == 2) return 0;
  return field->shape[strlen(field->shape) - 1] == '*' ? t->how.leading : 1;
}

/* All tensors whose strides are free become columns of one table. `turned`: every second one has its rows in the order of
 * [C, B, A] instead of [A, B, C]. Returns the most dimensions that were turned. */
static int weave(test *t, size_t used, bool turned) {
  char *at = memory[1] + used;
  int most = 0;
  for (view v = view_at(&t->other, 0); v.x; v = view_at(&t->other, v.k + 1)) {
    tigon_tensor *x = v.x;
    if (!x->data || v.field->flags & TIGON_FIELD_CONTIGUOUS) continue;
    const int leading = x->ndim - row_of(t, v.field, x);
    const bool turn = turned && v.k % 2 == 0;
    t->rounds = t->rounds || v.field->flags & TIGON_FIELD_FREE_LAST;
    int64_t step = PITCH / size_of(x), bytes = size_of(x);
    for (int i = 0; i < leading; ++i) {
      const int d = turn ? i : leading - 1 - i;
      x->strides[d] = step;
      step *= x->shape[d];
    }
    for (int d = leading; d < x->ndim; ++d) bytes *= x->shape[d];
    assert_true(at + step * size_of(x) <= memory[1] + ARENA);
    x->data = at;
    at += (bytes + 7) / 8 * 8;
    const char *sign = strchr(v.field->shape, '*');
    const int own = sign ? leading - (int)(sign - v.field->shape) : 0; /* what the letters before it mean is no row */
    if (turn && own > most) most = own;
  }
  assert_true(at <= memory[1] + used + PITCH);
  return most;
}

/* GEMMs have one pitch for all rows, other kernels three. */
static void try_turned(test *t) {
  const bool gemm = strstr(t->plain.schema->op, "linear") || strcmp(t->plain.schema->op, "mlp") == 0;
  const int strides = weave(t, make_other(t, &t->how), true);
  give(t);
  if (strides <= (gemm ? 1 : 3)) {
    compare(t, "rows in another order");
    return;
  }
  memcpy(before, memory[1], sizeof before);
  api_expect(t->context, call_run(&t->other, t->context), TIGON_ERROR_INVALID,
             "%s: the leading dimensions collapse to %d strides, must collapse to %s", t->plain.schema->name, strides,
             gemm ? "1" : "3 or fewer");
  assert_memory_equal(memory[1], before, sizeof before);
}

/* One more dimension of one element, over which nobody steps. */
static void try_longer(test *t) {
  call_choices how = t->how;
  if (how.leading == 4) return;
  how.extents[(int)"tbsa"[how.leading++]] = 1;
  make_other(t, &how);
  for (view v = view_at(&t->plain, 0); v.x; v = view_at(&t->plain, v.k + 1)) {
    tigon_tensor *x = twin(&t->other, &v);
    if (count_of(x) != count_of(v.x) || strchr(v.field->shape, '&')) return; /* the letter means more than a row */
    for (int d = 0; d < x->ndim; ++d)
      if (x->shape[d] == 1) x->strides[d] = INT64_C(1) << 40;
  }
  give(t);
  compare(t, "a dimension of one element");
}

/* Rows that are the same, and rows that share memory. */
static void try_shared(test *t) {
  make_other(t, &t->how);
  for (view v = view_at(&t->plain, 0); v.x; v = view_at(&t->plain, v.k + 1)) {
    const tigon_tensor *x = v.x;
    if (v.field->flags & TIGON_FIELD_FREE_LAST)
      return; /* such channels have no variance, which only rounding would make */
    if (!x->data || v.field->flags & (TIGON_FIELD_OUT | TIGON_FIELD_CONTIGUOUS)) continue;
    const int leading = x->ndim - row_of(t, v.field, x);
    int64_t cols = 1;
    for (int d = leading; d < x->ndim; ++d) cols *= x->shape[d];
    for (int64_t i = cols; i < count_of(x); ++i) memcpy(element_of(x, i), element_of(x, i % cols), (size_t)size_of(x));
    for (int d = 0; d < leading; ++d) twin(&t->other, &v)->strides[d] = 0;
  }
  run_plain(t);
  give(t);
  compare(t, "rows that share memory");
}

/* ---- outputs over inputs ---- */

/* Tries every choice of places for the outputs from the i-th field on. over[field] is the input that an output lies
 * over, which no other output has, or NULL where its place is its own. */
static void try_places(test *t, bool woven, const tigon_field *over[FIELDS], int i) {
  const tigon_schema *schema = t->plain.schema;
  if (i < schema->count) {
    const tigon_field *out = &schema->fields[i];
    const char *places = out->in_place && call_tensor(&t->plain, out, 0)->data ? out->in_place : "";
    for (int f = -1; f < schema->count; ++f) {
      if (f >= 0 && !has_word(places, schema->fields[f].name)) continue;
      over[i] = f >= 0 ? &schema->fields[f] : NULL;
      bool taken = false;
      for (int j = 0; over[i] && j < i; ++j) taken = taken || over[j] == over[i];
      if (!taken) try_places(t, woven, over, i + 1);
    }
    return;
  }
  const size_t used = make_other(t, &t->how);
  if (woven) weave(t, used, false);
  give(t);
  for (int f = 0; f < schema->count; ++f)
    if (over[f]) *call_tensor(&t->other, &schema->fields[f], 0) = *call_tensor(&t->other, over[f], 0);
  compare(t, woven ? "columns of one table, in place" : "in place");
}

/* ---- what is given ---- */

/* Has a row for each token, and maybe more, which are left alone? */
static bool is_cache(const tigon_field *field) { return strcmp(field->name, "cache") == 0; }

/* Does a cache have the logits of all tokens that count, maybe? Then bias does not. */
static bool is_in_cache(test *t, const tigon_field *field) {
  const tigon_field *cache = call_find(&t->plain, "cache");
  return cache && !(cache->flags & TIGON_FIELD_OUT) && strcmp(field->name, "bias") == 0 &&
         call_tensor(&t->plain, cache, 0)->data;
}

/* vespo's ratio of many tokens is beyond a limit, with or without the sampler's. */
static bool is_beyond_limit(test *t, const tigon_field *field) {
  return strcmp(t->plain.schema->op, "fused_linear_policy") == 0 && strcmp(field->name, "ratio") == 0 &&
         *(int *)call_field(&t->plain, call_find(&t->plain, "options.kind"), 0) == TIGON_POLICY_VESPO;
}

/* Labels of which none is ignored, and without a cross entropy; the bias of what experts give, which no weight multiplies. */
static bool is_unread(test *t, const tigon_field *field) {
  if (strcmp(t->plain.schema->name, "fused_moe_bwd") == 0 && strcmp(field->name, "down_bias") == 0)
    return *(int *)call_field(&t->plain, call_find(&t->plain, "weight_before_down"), 0);
  return call_find(&t->plain, "weight_hard") && strcmp(field->name, "labels") == 0;
}

/* Fewer outputs, fewer inputs, each of which counts; numbers per row in one dimension, 64-bit indices. */
static void try_choices(test *t) {
  for (int i = 0; i < t->plain.schema->count; ++i) {
    const tigon_field *field = &t->plain.schema->fields[i];
    if (field->kind != TIGON_FIELD_TENSOR) continue;
    call_choices how = t->how;
    how.wide = UINT64_C(1) << i;
    make_other(t, &how);
    if (give(t)) compare(t, "another shape or dtype");
    how = t->how;
    how.absent = UINT64_C(1) << i;
    make_other(t, &how);
    const bool may_count = t->how.leading > 0; /* [B, C] in pairs has no variance */
    const bool left_out = call_tensor(&t->plain, field, 0)->data && !call_tensor(&t->other, field, 0)->data;
    const bool counts = left_out && !(field->flags & TIGON_FIELD_OUT) && !is_in_cache(t, field) &&
                        !is_beyond_limit(t, field) && !is_unread(t, field);
    if (may_count && counts && give(t)) compare_or(t, field->name, true);
    const bool only_written = field->flags & TIGON_FIELD_OUT && !(field->flags & TIGON_FIELD_EACH);
    if (only_written && give(t)) compare(t, "without an output");
  }
}

/* One row has T = 1. */
static call_choices choices(tigon_dtype dtype, int leading, uint32_t numbers) {
  call_choices how = usual(dtype, leading);
  how.numbers = numbers;
  if (leading == 0) how.extents['t'] = 1;
  return how;
}

/* What numbers mean that are 0, and tensors that are absent. D is 6. */
static const struct meaning {
  const char *op, *names; /* op NULL: every one that has them */
  double value;
} meanings[] = {
    {NULL, "gate_mult down_mult grad_scale options.temperature temperature", 1},
    {NULL, "w options.weight options.token_scale dloss clip_factor", 1},
    {NULL, "b bias shift ds dentropy", 0},
    {"softmax", "mask", 0},
    {"mlp", "gate_bias up_bias down_bias", 0},
    {NULL, "positions", 0}, /* the last index, see below */
    {"rope", "rotary_dim", 6},
    {"multi_token_attention", "groups stride_h stride_w dilation_h dilation_w", 1},
    {"attention", "window", 0x1p62},
    {"attention", "dilation", 1},
    {"attention", "scale", 0x1.a20bd700c2c3fp-2}, /* 1 / sqrt(6) */
    {"softmax", "scale", 1},
    {"preference_loss", "ref", 0},
    {"preference_loss", "options.beta", 0.1},
    {"preference_loss", "options.tau", 0.05},
    {"preference_loss", "options.desirable_weight options.undesirable_weight options.nll_weight", 1},
    {"policy_loss", "options.eps_low options.eps_high", 0.2},
    {"policy_loss", "options.tau_positive ratio", 1},
    {"policy_loss", "options.tau_negative", 1.05},
    {"policy_loss", "options.k_positive options.lambda_negative", 2},
    {"policy_loss", "options.lambda_positive options.k_negative", 3},
    {"fused_linear_preference", "ref", 0},
    {"fused_linear_preference", "options.beta", 0.1},
    {"fused_linear_preference", "options.tau", 0.05},
    {"fused_linear_preference", "temperature options.desirable_weight options.undesirable_weight options.nll_weight",
     1},
    {"fused_linear_policy", "options.eps_low options.eps_high", 0.2},
    {"fused_linear_policy", "options.tau_positive ratio temperature", 1},
    {"fused_linear_policy", "options.tau_negative", 1.05},
    {"fused_linear_policy", "options.k_positive options.lambda_negative", 2},
    {"fused_linear_policy", "options.lambda_positive options.k_negative", 3},
    {"fused_moe", "gate_up_bias down_bias", 0},
    {"fused_linear_divergence", "token_scale weight_soft logit_scale teacher_logit_scale", 1},
    {"fused_linear_divergence", "teacher_bias", 0},
    {"fused_linear_topk_divergence", "token_scale weight_soft logit_scale", 1},
};

/* NULL where the field must be given, or its 0 is a 0. */
static const struct meaning *meaning_of(const tigon_schema *schema, const tigon_field *field) {
  if (field->kind == TIGON_FIELD_TENSOR && !(field->flags & TIGON_FIELD_OPTIONAL)) return NULL;
  for (size_t i = 0; i < sizeof meanings / sizeof *meanings; ++i) {
    const bool of_op = !meanings[i].op || strcmp(meanings[i].op, schema->op) == 0;
    if (of_op && has_word(meanings[i].names, field->name)) return &meanings[i];
  }
  return NULL;
}

static void write_out(test *t, const tigon_field *field, double value) {
  void *at = call_field(&t->other, field, 0);
  tigon_tensor *x = at;
  if (field->kind == TIGON_FIELD_DOUBLE) *(double *)at = value;
  if (field->kind == TIGON_FIELD_INT64) *(int64_t *)at = (int64_t)value;
  for (int64_t i = 0; field->kind == TIGON_FIELD_TENSOR && i < count_of(x); ++i) {
    if (field->below)
      *(int32_t *)(void *)element_of(x, i) = (int32_t)(i % x->shape[x->ndim - 1]);
    else
      tigon_store_f64(element_of(x, i), 0, x->dtype, value);
  }
}

/* These calls of rope have no sections. */
static void set_flags(call *c, int value) {
  for (int i = 0; i < c->schema->count; ++i) {
    const tigon_field *field = &c->schema->fields[i];
    if (field->flags & TIGON_FIELD_IS_FLAG && strcmp(field->name, "sections_interleaved") != 0)
      *(int *)call_field(c, field, 0) = value;
  }
}

/* All of an entry's at once; how many it has. */
static int try_defaults(test *t, int entry, const call_choices *how, int flags) {
  const tigon_schema *schema = tigon_schema_at(entry);
  const struct meaning *meaning;
  call_choices absent = *how;
  int found = 0;
  for (int i = 0; i < schema->count; ++i)
    absent.absent |= (uint64_t)(meaning_of(schema, &schema->fields[i]) != NULL) << i;
  begin(t, entry, &absent);
  set_flags(&t->plain, flags);
  run_plain(t);
  make_other(t, how);
  set_flags(&t->other, flags);
  give(t);
  for (int i = 0; i < schema->count; ++i)
    if ((meaning = meaning_of(schema, &schema->fields[i]))) {
      write_out(t, &schema->fields[i], meaning->value);
      ++found;
    }
  compare(t, "what is left out, written out");
  return found;
}

/* ---- shapes that an operator's header allows ---- */

/* A tensor is the same as a larger one in which it is repeated. Letters are those of usual(). */
static const struct repetition {
  const char *op, *names, *small, *large;
  int leading;
} repeated[] = {
    {"softmax", "mask", "c", "btc", 2},
    {"softmax", "mask", "tc", "btc", 2},
    {"softmax", "mask", "c", "tc", 0},
    {"rope", "positions", "1t", "bt", 2},
    {"rope", "cos sin", "pf", "pd", 2},
    {"rope", "cos sin", "pf", "bpf", 2},
    {"rope", "cos sin", "pd", "bpd", 2},
    {"modulated_rms_norm", "scale shift", "c", "btc", 2},
    {"modulated_rms_norm", "scale shift", "1c", "btc", 2},
    {"modulated_rms_norm", "scale shift", "b1c", "btc", 2},
    {"modulated_rms_norm", "scale shift", "bc", "b1c", 2},
    {"modulated_rms_norm", "scale shift", "rc", "btc", 2},
};

/* Gives the tensor this shape, from which its strides follow, and memory that holds it. */
static void reshape(const test *t, tigon_tensor *x, const char *letters, char *data) {
  *x = (tigon_tensor){.data = data, .dtype = x->dtype, .ndim = (int)strlen(letters)};
  for (int d = 0; d < x->ndim; ++d) x->shape[d] = t->how.extents[(int)letters[d]];
}

/* The element of the small tensor that the i-th one of the large tensor repeats. */
static int64_t repeats(const tigon_tensor *small, const tigon_tensor *large, int64_t i) {
  int64_t at = 0, step = 1;
  if (count_of(small) == count_of(large)) return i;
  for (int d = 0; d < small->ndim; ++d) { /* from the last one */
    const int64_t extent = large->shape[large->ndim - 1 - d], own = small->shape[small->ndim - 1 - d];
    at += i % extent % own * step;
    i /= extent;
    step *= own;
  }
  return at;
}

static void try_repeated(test *t, int entry, const struct repetition *r) {
  const tigon_schema *schema = tigon_schema_at(entry);
  const tigon_field *fields[2];
  const bool no_sections = strcmp(r->op, "rope") == 0; /* with them positions have one dimension more */
  call_choices how = choices(TIGON_F32, r->leading, no_sections ? 0 : 3);
  int count = 0;
  for (int i = 0; i < schema->count; ++i) {
    const tigon_field *field = &schema->fields[i];
    if (has_word(r->names, field->name)) fields[count++] = field;
    how.absent |= (uint64_t)(field->flags & TIGON_FIELD_OUT && field->shape[0] == '&') << i; /* gradients of these */
  }
  if (count == 0) return;
  begin(t, entry, &how);
  make_other(t, &how);
  for (int k = 0; k < count; ++k) {
    tigon_tensor *x = call_tensor(&t->plain, fields[k], 0);
    const size_t at = ARENA / 2 + (size_t)k * (1 << 14);
    reshape(t, x, r->small, memory[0] + at);
    reshape(t, call_tensor(&t->other, fields[k], 0), r->large, memory[1] + at);
    for (int64_t i = 0; fields[k]->below && i < count_of(x); ++i) ((int32_t *)x->data)[i] = (int32_t)(5 * i % 7);
  }
  run_plain(t);
  give(t);
  for (int k = 0; k < count; ++k) {
    const tigon_tensor *x = call_tensor(&t->plain, fields[k], 0), *y = call_tensor(&t->other, fields[k], 0);
    for (int64_t i = 0; i < count_of(y); ++i) memcpy(element_of(y, i), given(x, repeats(x, y, i)), (size_t)size_of(y));
  }
  compare(t, r->large);
}

/* ---- extents of 0 ---- */

/* Sequences without a token have a loss, of logarithms. */
static bool is_of_pairs(const call *c) { return strcmp(c->schema->op, "fused_linear_preference") == 0; }

/* Is there no row at all? A factor is of the norm, not a sum; flags are raised or left alone. */
static bool sums_nothing(call *c, const tigon_field *out) {
  view v = view_at(c, 0);
  while (v.x && v.field->shape[0] != '*') v = view_at(c, v.k + 1);
  int64_t rows = 1;
  for (int d = 0; v.x && d <= v.x->ndim - (int)strlen(v.field->shape); ++d) rows *= v.x->shape[d];
  return rows == 0 && !(is_of_pairs(c) && out->name[0] != 'd') && !is_error_flag(out) && !is_cache(out) &&
         strcmp(out->name, "factor") != 0;
}

/* Is the output a gradient that is added to? One that no flag is named after has the last flag. */
static bool accumulates(call *c, const tigon_field *out) {
  bool last = false;
  for (int i = 0; i < c->schema->count; ++i) {
    const tigon_field *field = &c->schema->fields[i];
    if (strncmp(field->name, "accumulate_", 11) != 0) continue;
    last = *(int *)call_field(c, field, 0);
    if (strcmp(field->name + 11, out->name) == 0) break;
  }
  return last && out->name[0] == 'd';
}

/* Tensors without an element get no address; is there one? An output that is not accumulated holds other bytes in each call, so
 * both calls must write it. The flag of an error and statistics of no elements are exceptions. */
static bool prepare_empty(test *t) {
  bool empty = false;
  for (view v = view_at(&t->plain, 0); v.x; v = view_at(&t->plain, v.k + 1)) {
    tigon_tensor *x = v.x, *y = twin(&t->other, &v);
    const bool left = is_error_flag(v.field) || is_cache(v.field) || v.field->flags & TIGON_FIELD_EACH ||
                      strcmp(v.field->name, "mean") == 0 || strcmp(v.field->name, "rstd") == 0;
    empty = empty || (x->ndim && count_of(x) == 0);
    if (count_of(x) == 0)
      x->data = y->data = NULL;
    else if (v.field->flags & TIGON_FIELD_OUT && !left && !accumulates(&t->plain, v.field))
      memset(y->data, 0x11, (size_t)(count_of(x) * size_of(x)));
  }
  return empty;
}

/* The plain call is the oracle's. Sums over no rows are 0, or stay as they were. */
static bool try_empty(test *t, int entry, const call_choices *how, tigon_context *oracle) {
  begin(t, entry, how);
  make_other(t, how);
  memcpy(fresh, memory[0], sizeof fresh);
  give(t);
  const bool empty = prepare_empty(t);
  const tigon_status status = call_run(&t->plain, oracle);
  if (!empty || status != TIGON_OK) {
    assert_int_equal(call_run(&t->other, t->context), status);
    return false;
  }
  for (view v = view_at(&t->plain, 0); v.x; v = view_at(&t->plain, v.k + 1)) {
    const bool nothing = v.field->flags & TIGON_FIELD_OUT && sums_nothing(&t->plain, v.field);
    for (int64_t i = 0; nothing && i < count_of(v.x); ++i) {
      /* by a denominator below 0 it is -0 */
      const bool left = accumulates(&t->plain, v.field) || is_index(v.x);
      const char *must = accumulates(&t->plain, v.field) ? given(v.x, i) : (const char *)&(uint64_t){0};
      if (left ? memcmp(element_of(v.x, i), must, (size_t)size_of(v.x)) != 0 : value_of(v.x, i) != 0)
        fail_msg("%s: %s is no sum over nothing", t->plain.schema->name, v.field->name);
    }
  }
  t->rounds = true;
  if (!is_of_pairs(&t->plain)) compare(t, "nothing");
  return true;
}

/* ---- all of it ---- */

/* Not where the choices leave a tensor no dimension at all. */
static bool has_shape(test *t) {
  for (view v = view_at(&t->plain, 0); v.x; v = view_at(&t->plain, v.k + 1))
    if (v.x->data && v.x->ndim == 0) return false;
  return true;
}

static void test_ways(void **state) {
  const tigon_dtype dtypes[] = {TIGON_F32, TIGON_BF16, TIGON_F16};
  test t = {.context = *state};
  for (int entry = 0; tigon_schema_at(entry); ++entry) {
    t.done = 0;
    for (int turn = 0; turn < 30; ++turn) {
      const call_choices how = choices(dtypes[turn % 3], turn / 3 % 5, (uint32_t)turn);
      begin(&t, entry, &how);
      if (!has_shape(&t)) continue;
      try_shared(&t);
      begin(&t, entry, &how);
      run_plain(&t);
      try_turned(&t);
      try_longer(&t);
      try_places(&t, false, (const tigon_field *[FIELDS]){0}, 0);
      try_places(&t, true, (const tigon_field *[FIELDS]){0}, 0);
      try_choices(&t);
    }
    print_message("%s: %ld calls\n", tigon_schema_at(entry)->name, t.done);
    assert_true(t.done >= 100);
  }
}

static void test_defaults(void **state) {
  test t = {.context = *state};
  int found = 0;
  for (int entry = 0; tigon_schema_at(entry); ++entry)
    for (int leading = 1; leading <= 3; ++leading) {
      const call_choices how = choices(TIGON_F32, leading, 0);
      found += try_defaults(&t, entry, &how, 0) + try_defaults(&t, entry, &how, 1);
    }
  assert_true(found > 100);
}

static void test_repeated(void **state) {
  test t = {.context = *state};
  const tigon_schema *schema;
  for (int entry = 0; (schema = tigon_schema_at(entry)); ++entry)
    for (size_t i = 0; i < sizeof repeated / sizeof *repeated; ++i)
      if (strcmp(schema->op, repeated[i].op) == 0) try_repeated(&t, entry, &repeated[i]);
  assert_int_equal(t.done, 3 + 2 * (4 + 5));
}

static void test_empty(void **state) {
  static const char *const none[] = {"b", "s", "t", "k", "d", "g", "n", "c", "v", "h", "tc", "tv"};
  test t = {.context = *state};
  tigon_context *oracle;
  const tigon_context_desc desc = {.device = "ref"};
  assert_int_equal(tigon_context_create(&desc, &oracle), TIGON_OK);
  for (int entry = 0; tigon_schema_at(entry); ++entry) {
    int taken = 0;
    for (int turn = 0; turn < 12; ++turn)
      for (size_t i = 0; i < sizeof none / sizeof *none; ++i) {
        call_choices how = choices(turn % 2 ? TIGON_F32 : TIGON_BF16, 1 + turn / 2 % 3, (uint32_t)turn);
        for (const char *letter = none[i]; *letter; ++letter) how.extents[(int)*letter] = 0;
        taken += try_empty(&t, entry, &how, oracle);
      }
    assert_true(taken >= 12);
  }
  tigon_context_destroy(oracle);
}

int main(void) {
  fill_numbers(numbers, sizeof numbers);
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_ways), cmocka_unit_test(test_defaults),
                                     cmocka_unit_test(test_repeated), cmocka_unit_test(test_empty)};
  setenv("TIGON_GEMM", "builtin", 1); /* other libraries refuse some views, and then it has bits of its own */
  return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
