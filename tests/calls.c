#include "calls.h"

#include <math.h>
#include <string.h>

void *call_field(call *c, const tigon_field *field, int element) {
  const bool each = field->flags & TIGON_FIELD_EACH;
  return (each ? c->elements + (size_t)element * c->schema->element_bytes : c->args) + field->offset;
}

int call_entry(const char *name) {
  int entry = 0;
  while (strcmp(tigon_schema_at(entry)->name, name) != 0) ++entry;
  return entry;
}

const tigon_field *call_find(const call *c, const char *name) {
  for (int i = 0; i < c->schema->count; ++i)
    if (strcmp(c->schema->fields[i].name, name) == 0) return &c->schema->fields[i];
  return NULL;
}

/* ---- what descriptions cannot say ---- */

/* `name` is absent unless `with` is present. */
static const struct {
  const char *op, *name, *with;
} together[] = {{"rope", "k", "k_out"},
                {"rope", "k_out", "k"},
                {"rms_norm", "dz", "z"},
                {"attention", "dsinks", "sinks"},
                {"attention", "sinks", "dsinks"},
                {"linear", "dx", "w"},
                {"linear", "dw", "x"},
                {"cross_entropy", "dentropy", "entropy"},
                {"linear_logprob", "dentropy", "entropy"},
                {"vocab_parallel_cross_entropy", "dentropy", "entropy"},
                {"preference_loss", "nll_logps", "nll_counts"},
                {"preference_loss", "nll_counts", "nll_logps"},
                {"preference_loss", "dnll_logps", "nll_logps"},
                {"mlp", "up_bias", "up"},
                {"mlp", "dup", "up"},
                {"mlp", "dup_bias", "up"},
                {"mhc_post_res", "f", "h_post"},
                {"mhc_post_res", "h_post", "f"},
                {"mhc_post_res", "df", "f"},
                {"mhc_post_res", "dh_post", "f"}};

/* Numbers whose last value asks for tensors of no negative numbers, which a call here has. */
static bool is_of_probabilities(const tigon_field *field) {
  return strcmp(field->name, "options.input_is") == 0 || strcmp(field->name, "options.target_is") == 0 ||
         strcmp(field->name, "target_is") == 0;
}

static bool is_loss(const call *c) { return call_find(c, "options.reduction") != NULL; }
static bool is_per_row(call *c) { /* reduction none */
  return is_loss(c) && *(int *)call_field(c, call_find(c, "options.reduction"), 0) == TIGON_REDUCTION_NONE;
}

static bool is_op(const call *c, const char *name, const char *other) {
  return strcmp(c->schema->op, name) == 0 || strcmp(c->schema->op, other) == 0;
}

/* The kind of a preference_loss; -1 for other operators. */
static int preference_kind(call *c) {
  const bool has = is_op(c, "preference_loss", "fused_linear_preference");
  return has ? *(int *)call_field(c, call_find(c, "options.kind"), 0) : -1;
}
static bool is_policy(const call *c) { return is_op(c, "policy_loss", "fused_linear_policy"); }
static bool is_segments(const call *c, const tigon_field *field) {
  (void)c;
  return strcmp(field->name, "segments") == 0;
}
/* Tokens are the rows of a head's hidden, elsewhere of the letter n. */
static bool is_head(const call *c) { return call_find(c, "hidden") != NULL; }

/* Is the call one of a shard's forward? It has stats in place of all that belongs to a token. */
static bool is_shard(call *c) {
  return is_op(c, "linear_logprob", "") && *(int64_t *)call_field(c, call_find(c, "vocab"), 0) > 0;
}
static bool is_of_tokens(const tigon_field *field) {
  const char *names[] = {"logprob", "lse", "entropy", "argmax", "correct", "unit"};
  bool is = false;
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) is = is || strcmp(field->name, names[i]) == 0;
  return is;
}

/* Does a rope have positions in time, height and width? */
static const char *const sections[] = {"section_t", "section_h", "section_w"};
static bool has_sections(call *c) {
  bool has = false;
  for (int i = 0; i < 3 && is_op(c, "rope", ""); ++i)
    has = has || *(int64_t *)call_field(c, call_find(c, sections[i]), 0);
  return has;
}

/* fused_moe reads the bias of what it makes again, which pre, where it is given, is already. */
static bool is_unread_bias(call *c, const tigon_field *field, uint64_t absent) {
  if (strcmp(c->schema->name, "fused_moe_bwd") != 0 || strcmp(field->name, "gate_up_bias") != 0) return false;
  return !(absent >> (call_find(c, "pre") - c->schema->fields) & 1);
}

/* Is it an attention whose convolution comes before softmax? That has no bias. */
static bool is_early_window(call *c) {
  return is_op(c, "multi_token_attention", "") && *(int *)call_field(c, call_find(c, "place"), 0) == TIGON_MTA_PRE;
}

/* Is the optional tensor left out of this call? */
static bool is_left_out(call *c, const tigon_field *field, bool absent) {
  const int kind = preference_kind(c);
  const char *sides = is_head(c) ? "desirable" : "labels";
  if (is_op(c, "rope", "") && strcmp(field->name, "sin") == 0) return false; /* a complex table has another shape */
  if (is_segments(c, field)) return false;                                   /* a padded batch has other shapes */
  if (is_early_window(c) && (strcmp(field->name, "bias") == 0 || strcmp(field->name, "dbias") == 0)) return true;
  if (is_op(c, "attention", "") && strncmp(field->name, "cu_", 3) == 0) return true; /* a batch of segments is one */
  if (strcmp(c->schema->name, "linear_logprob_fwd") == 0) {
    if (strcmp(field->name, "stats") == 0) return !is_shard(c);
    if (is_shard(c) ? is_of_tokens(field) : strcmp(field->name, "logprob") == 0) return is_shard(c);
  }
  if (kind >= 0 && strcmp(field->name, sides) == 0) return kind < TIGON_PREFERENCE_KTO;
  if (kind >= 0 && strcmp(field->name, "shift") == 0)
    return absent || (kind < TIGON_PREFERENCE_KTO && kind != TIGON_PREFERENCE_BCO_PAIR);
  if (kind == TIGON_PREFERENCE_ORPO && strcmp(field->name, "ref") == 0) return true;
  if (is_op(c, "fused_linear_divergence", "fused_linear_topk_divergence") && strcmp(field->name, "labels") == 0)
    return absent && *(double *)call_field(c, call_find(c, "weight_hard"), 0) == 0;
  const bool loss = strcmp(field->name, "out.loss") == 0, token_loss = strcmp(field->name, "out.token_loss") == 0;
  if (strcmp(field->name, "options.denominator") == 0 &&
      *(int *)call_field(c, call_find(c, "options.reduction"), 0) != TIGON_REDUCTION_MEAN)
    return true;
  if (!is_loss(c) || strncmp(field->name, "out.", 4) != 0) return absent;
  if (strcmp(c->schema->entry, "bwd") == 0) return absent || strcmp(field->name, "out.error") != 0;
  if (loss) return is_per_row(c);
  return token_loss && is_per_row(c) ? false : absent;
}

static bool has_flag(call *c, const char *name) { return *(int *)call_field(c, call_find(c, name), 0); }

/* A cache of logits has their dtype. */
static bool is_cache_in_f32(call *c, const tigon_field *field) {
  return strcmp(field->name, "cache") == 0 && is_head(c) && has_flag(c, "logits_in_f32");
}

static const char *pattern_of(call *c, const tigon_field *field) {
  const char *tokens = is_head(c) ? "r" : "n";
  if (is_segments(c, field)) return is_policy(c) ? "s" : "n";
  if (has_sections(c) && strcmp(field->name, "positions") == 0) return "3bt";
  if (is_policy(c) && strcmp(field->name, "advantage") == 0 && has_flag(c, "options.token_advantage")) return tokens;
  if (is_policy(c) && strcmp(field->name, "ratio") == 0 && has_flag(c, "options.token_ratio")) return tokens;
  if (preference_kind(c) >= TIGON_PREFERENCE_KTO && strcmp(field->name, "pair_loss") == 0) return "n";
  if (is_loss(c) && strcmp(field->name, "dloss") == 0 && is_per_row(c)) return "@";
  return field->shape[0] == '?' ? field->shape + 1 : field->shape;
}

/* ---- numbers ---- */

static uint32_t mix(uint32_t a, uint32_t b) {
  const uint32_t x = (a + 1) * 2654435761u ^ (b + 1) * 2246822519u;
  return (x ^ x >> 15) * 3266489917u >> 8;
}

static void make_number(call *c, const tigon_field *field, int element, const call_choices *how) {
  const uint32_t pick = how->numbers ? mix(how->numbers, (uint32_t)field->offset) : 0;
  const bool any = field->low == 0 && field->high == 0, zero = field->low <= 0 || field->flags & TIGON_FIELD_OR_ZERO;
  void *at = call_field(c, field, element);
  if (field->kind == TIGON_FIELD_DOUBLE) {
    *(double *)at = zero && pick % 2 == 0 ? 0 : field->flags & TIGON_FIELD_BELOW_HIGH ? field->high / 2 : 0.5;
    return;
  }
  const uint32_t values = isinf(field->high) ? 4 : (uint32_t)(field->high - field->low) + !is_of_probabilities(field);
  const bool is_rank = strcmp(field->name, "rank") == 0; /* a rank is below the number of shards */
  const int64_t value = field->shape ? how->extents[(int)field->shape[0]]
                        : is_rank    ? 0
                        : any        ? 0
                                     : (int64_t)field->low + pick % values;
  if (field->kind == TIGON_FIELD_INT64)
    *(int64_t *)at = value;
  else
    *(int *)at = (int)value;
}

/* A head's weight has classes of `vocab`, from vocab_begin on, or with vocab 0 all. */
static void make_shard(call *c, const call_choices *how) {
  if (!is_op(c, "linear_logprob", "")) return;
  int64_t *vocab = call_field(c, call_find(c, "vocab"), 0), *begin = call_field(c, call_find(c, "vocab_begin"), 0);
  *begin = *vocab > 0 ? *begin % (*vocab + 1) : 0;
  if (*vocab > 0) *vocab += how->extents['v'];
}

/* Sections of all pairs of a head, or none. */
static void make_sections(call *c, const call_choices *how) {
  if (!is_op(c, "rope", "")) return;
  int64_t left = how->extents['d'] / 2;
  const bool none = !has_sections(c);
  for (int i = 0; i < 3 && !none; ++i) {
    int64_t *pairs = call_field(c, call_find(c, sections[i]), 0);
    *pairs = i == 2 || *pairs > left ? left : *pairs;
    left -= *pairs;
  }
  if (none || how->extents['d'] < 2) *(int *)call_field(c, call_find(c, "sections_interleaved"), 0) = 0;
}

/* An activation without factors. */
static void make_factors(call *c) {
  const char *names[] = {"gate_mult", "down_mult", "clamp", "up_offset"};
  if (!is_op(c, "mlp", "") || *(int *)call_field(c, call_find(c, "act"), 0) == TIGON_MLP_SILU) return;
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) *(double *)call_field(c, call_find(c, names[i]), 0) = 0;
}

/* Three taps with a padding of 1, so that o is as large as the scores. */
static void make_window(call *c) {
  static const char *const names[] = {"groups",     "stride_h",  "stride_w", "dilation_h",
                                      "dilation_w", "padding_h", "padding_w"};
  for (int i = 0; i < 7 && is_op(c, "multi_token_attention", ""); ++i)
    *(int64_t *)call_field(c, call_find(c, names[i]), 0) = i > 4;
}

/* ---- tensors ---- */

static int64_t extent_of(const call_choices *how, char letter) {
  return letter >= '2' && letter <= '9' ? letter - '0' : how->extents[(int)letter];
}

/* Streams are few, and those of x say how many coefficients there are, and channels in all. */
static void make_streams(call *c, call_choices *how) {
  int64_t *of = how->extents, streams = of['h'] < 2 ? of['h'] : 2;
  if (!is_op(c, "mhc_coeffs", "mhc_post_res")) return;
  of['h'] = streams;
  of['n'] = is_op(c, "mhc_post_res", "") ? of['n'] < 3 ? of['n'] : 3 : streams * (streams + 2);
  of['k'] = streams * of['c'];
}

/* Gate and up are as wide as what they make. */
static void make_inner(call *c, call_choices *how) {
  int64_t *of = how->extents;
  if (!is_op(c, "fused_moe", "")) return;
  of['f'] = of['d'] / 2;
  of['d'] = 2 * of['f'];
}

/* Gate has the rows of up, too, where up is left out. */
static void make_halves(call *c, call_choices *how) {
  if (!is_op(c, "mlp", "")) return;
  const bool packed = how->absent >> (call_find(c, "up") - c->schema->fields) & 1;
  how->extents['n'] = (packed ? 2 : 1) * how->extents['c'];
}

/* As many channels come out as go in, and as many tokens. */
static void make_planes(call *c, call_choices *how) {
  int64_t *of = how->extents;
  if (is_op(c, "multi_token_attention", "")) of['n'] = of['c'] = of['h'], of['p'] = of['k'] = of['v'] = of['t'];
}

static int64_t rows_of(const call_choices *how) {
  int64_t rows = 1;
  for (const char *at = &"asbt"[4 - how->leading]; *at; ++at) rows *= how->extents[(int)*at];
  return rows;
}

/* Fills in the shape; returns how many dimensions lie within a row. */
static int make_shape(const call_choices *how, const char *pattern, bool flat, tigon_tensor *t) {
  const char *leading = &"asbt"[4 - how->leading];
  if (pattern[0] == 'r' || (pattern[0] == '@' && flat)) {
    t->shape[t->ndim++] = rows_of(how);
    return 1;
  }
  if (pattern[0] == '1') {
    t->shape[t->ndim++] = 1;
    return 1;
  }
  for (const char *at = pattern; *at; ++at) {
    if (*at == '*' || *at == '@')
      for (const char *letter = leading; *letter; ++letter) t->shape[t->ndim++] = how->extents[(int)*letter];
    else
      t->shape[t->ndim++] = extent_of(how, *at == '&' ? leading[0] : *at);
  }
  return pattern[strlen(pattern) - 1] == '*' ? how->leading : 1;
}

static tigon_dtype make_dtype(const tigon_field *field, tigon_dtype letters[3], bool wide) {
  tigon_dtype dtype = letters[0];
  if (field->as)
    dtype = wide && field->or_dtype ? field->or_dtype : letters[field->as - 'T'];
  else if ((field->dtypes & (field->dtypes - 1)) == 0)
    while (!(field->dtypes >> dtype & 1)) dtype = (tigon_dtype)(dtype % 5 + 1);
  else if (field->dtypes >> TIGON_I64 & 1)
    dtype = wide ? TIGON_I64 : TIGON_I32;
  else if (field->dtypes >> TIGON_I8 & 1)
    dtype = TIGON_F8E4M3;
  if (field->gives && field->gives != 'T') letters[field->gives - 'T'] = dtype;
  return dtype;
}

static void write_integer(const tigon_tensor *t, int64_t i, int64_t value) {
  if (t->dtype == TIGON_I64)
    ((int64_t *)t->data)[i] = value;
  else
    ((int32_t *)t->data)[i] = (int32_t)value;
}

/* Indices below an extent; other integers (counts, a mask, what is compared with a number) are 0, 1 and 2 in turns. */
static void write_integers(const tigon_field *field, const tigon_tensor *t, int64_t count, const call_choices *how) {
  const int64_t limit = field->below ? how->extents[(int)field->below] : 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t pick = mix(how->numbers, (uint32_t)i);
    const int64_t other = (how->numbers + (uint32_t)i + 1) % 3;
    write_integer(t, i, !field->below ? other : limit > 0 ? pick % (uint32_t)(limit + how->beyond) : 0);
  }
}

/* Sequences as long as each other. */
static void write_segments(const tigon_tensor *t, int64_t tokens) {
  const int64_t last = t->shape[0] - 1;
  for (int64_t i = 0; i <= last; ++i) write_integer(t, i, last > 0 ? tokens * i / last : 0);
}

/* Shards' stats: a sum of exponentials is not negative. */
static void write_stats(const tigon_tensor *t, int64_t count) {
  for (int64_t i = 1; i < count; i += TIGON_VOCAB_STATS) ((float *)t->data)[i] = 2.5f;
}

/* The tensor at `memory`; returns the bytes it takes, or 0 where there are too few. */
static size_t make_tensor(const tigon_field *field, const char *pattern, const call_choices *how, tigon_dtype dtype,
                          bool flat, char *memory, size_t room, tigon_tensor *t) {
  *t = (tigon_tensor){.data = memory + how->gap, .dtype = dtype};
  const int row = make_shape(how, pattern, flat, t);
  int64_t step = 1;
  for (int d = t->ndim - 1; d >= 0; --d) {
    t->strides[d] = step;
    step *= t->shape[d] > 0 ? t->shape[d] : 1;
    if (d == t->ndim - row && d > 0 && !(field->flags & TIGON_FIELD_CONTIGUOUS)) step += how->pad;
  }
  const size_t bytes = ((size_t)step * tigon_dtype_size(dtype) + 63) / 64 * 64 + 2 * how->gap;
  if (bytes > room) return 0;
  if (field->dtypes >> TIGON_I32 & field->dtypes >> TIGON_I64 & 1) write_integers(field, t, step, how);
  if (strcmp(pattern, "kn5") == 0) write_stats(t, step);
  if (strcmp(field->name, "options.denominator") == 0)
    *(float *)t->data = 2.5f; /* a number of tokens is not negative */
  return bytes;
}

/* ---- a call ---- */

size_t call_make(call *c, int entry, const tigon_schema *schema, const call_choices *how, char *memory, size_t room) {
  memset(c, 0, sizeof *c);
  c->entry = entry;
  c->schema = schema;
  size_t used = 0;
  for (int i = 0; i < schema->count; ++i) {
    const tigon_field *field = &schema->fields[i];
    if (field->kind >= TIGON_FIELD_DOUBLE && field->kind <= TIGON_FIELD_INT64)
      for (int e = 0; e < call_values(field); ++e) make_number(c, field, e, how);
    if (field->kind == TIGON_FIELD_LIST)
      *(call_list *)call_field(c, field, 0) = (call_list){c->elements, CALL_ELEMENTS};
  }
  make_shard(c, how);
  make_sections(c, how);
  make_factors(c);
  make_window(c);
  if (is_head(c) && preference_kind(c) >= TIGON_PREFERENCE_KTO) *(int *)call_field(c, call_find(c, "nll"), 0) = 0;
  for (int e = 0; e < CALL_ELEMENTS; ++e) {
    tigon_dtype letters[3] = {how->dtype, how->dtype, how->dtype};
    for (int i = 0; i < schema->count; ++i) {
      const tigon_field *field = &schema->fields[i];
      if (field->kind != TIGON_FIELD_TENSOR || e >= call_values(field)) continue;
      const bool wide = how->wide >> i & 1;
      const tigon_dtype dtype =
          is_cache_in_f32(c, field) ? TIGON_F32 : make_dtype(field, letters, wide && strcmp(field->name, "cache") != 0);
      if (field->flags & TIGON_FIELD_OPTIONAL && is_left_out(c, field, how->absent >> i & 1)) continue;
      if (is_unread_bias(c, field, how->absent)) continue;
      call_choices own = *how;
      make_streams(c, &own);
      make_inner(c, &own);
      make_halves(c, &own);
      make_planes(c, &own);
      if (is_segments(c, field)) ++own.extents[is_policy(c) ? 's' : 'n'];
      const size_t bytes = make_tensor(field, pattern_of(c, field), &own, dtype, wide, memory + used, room - used,
                                       call_tensor(c, field, e));
      if (!bytes) return 0;
      if (is_segments(c, field))
        write_segments(call_tensor(c, field, e), is_head(c) ? rows_of(how) : how->extents['n']);
      used += bytes;
    }
  }
  for (size_t i = 0; i < sizeof together / sizeof *together; ++i) {
    const tigon_field *field = call_find(c, together[i].name), *with = call_find(c, together[i].with);
    if (strcmp(schema->op, together[i].op) == 0 && field && with && !call_tensor(c, with, 0)->data)
      memset(call_field(c, field, 0), 0, sizeof(tigon_tensor));
  }
  return used;
}

void call_set_workspace(call *c, void *workspace, size_t bytes) {
  const tigon_field *field = call_find(c, "workspace");
  if (field) *(call_workspace *)call_field(c, field, 0) = (call_workspace){workspace, bytes};
}

/* A copy of a call still points to the list of the call it was copied from. */
static void point_to_own_list(call *c) {
  call_list *list = call_field(c, &c->schema->fields[0], 0);
  if (c->schema->fields[0].kind == TIGON_FIELD_LIST && list->elements) list->elements = c->elements;
}

tigon_status call_run(call *c, tigon_context *context) {
  point_to_own_list(c);
  return tigon_schema_call(c->entry, context, c->args);
}

tigon_status call_query(call *c, tigon_context *context, size_t *bytes) {
  point_to_own_list(c);
  return tigon_schema_workspace(c->entry, context, c->args, bytes, NULL);
}
