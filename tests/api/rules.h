/* Calls that an operator's header refuses: a legal one is made of the entry's description, and each rule changes it. */
#ifndef TIGON_TEST_RULES_H
#define TIGON_TEST_RULES_H

#include "api.h"
#include "views.h"

enum { ARENA = 1 << 16, ROOM = 1 << 18 };

static _Alignas(64) char memory[ARENA + ROOM], before[ARENA + ROOM];

/* The call of `entry` in which '*' is [B, T] = [2, 3]. Tensors that `without` names are absent, those of `wide` are
 * i64. Strides follow from shapes. */
static inline void *make(call *c, const char *entry, tigon_dtype dtype, const char *without, const char *wide) {
  call_choices how = usual(dtype, 2);
  const int i = call_entry(entry);
  const tigon_schema *schema = tigon_schema_at(i);
  for (int f = 0; f < schema->count; ++f) {
    how.absent |= (uint64_t)has_word(without, schema->fields[f].name) << f;
    how.wide |= (uint64_t)has_word(wide, schema->fields[f].name) << f;
  }
  memset(memory, 0x3f, sizeof memory);
  assert_true(call_make(c, i, schema, &how, memory, ARENA) > 0);
  for (view v = view_at(c, 0); v.x; v = view_at(c, v.k + 1)) memset(v.x->strides, 0, sizeof v.x->strides);
  call_set_workspace(c, memory + ARENA, ROOM);
  return c->args;
}

/* It has no flag for indices out of range, so they are refused. */
static inline void *legal(call *c, const char *entry) { return make(c, entry, TIGON_F32, "error out.error", ""); }

static inline void run(tigon_context *context, call *c) {
  if (call_run(c, context) != TIGON_OK) fail_msg("%s", tigon_last_error(context));
}

static inline void refused(tigon_context *context, call *c, tigon_status status, const char *sentence) {
  memcpy(before, memory, sizeof memory);
  api_expect(context, call_run(c, context), status, "%s: %s", c->schema->name, sentence);
  assert_memory_equal(memory, before, sizeof memory);
}

/* The legal call of `entry`, whose arguments are *a, changed by an expression. */
#define RULE_OF(status, entry, args, change, sentence)   \
  do {                                                   \
    call c;                                              \
    tigon_##args##_args *a = legal(&c, entry);           \
    (void)(change);                                      \
    refused(*state, &c, TIGON_ERROR_##status, sentence); \
  } while (0)
#define RULE(name, change, sentence) RULE_OF(INVALID, #name, name, change, sentence)

static inline tigon_tensor shaped(const tigon_tensor *t, int ndim, int64_t a, int64_t b, int64_t c, int64_t d) {
  return (tigon_tensor){t->data, t->dtype, ndim, {a, b, c, d}, {0}};
}

/* A vector that the legal call does not have. */
static inline tigon_tensor spare(tigon_dtype dtype, int64_t extent) {
  return tigon_tensor_1d(memory + ARENA - 1024, dtype, extent);
}

static inline int absent(tigon_tensor *t) {
  *t = (tigon_tensor){0};
  return 0;
}

#endif
