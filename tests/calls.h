/* A legal call of any entry, made from its description (tigon/schema.h) alone. A short list in calls.c says what
 * descriptions cannot. */
#ifndef TIGON_TEST_CALLS_H
#define TIGON_TEST_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tigon/tigon.h>

enum { CALL_ELEMENTS = 2, CALL_ARGS_BYTES = 4096, CALL_LIST_BYTES = 2048 };

typedef struct call_choices {
  tigon_dtype dtype;     /* dtype of the main tensor */
  int64_t extents['z'];  /* what letters stand for; d even, p at least t, h a multiple of k, n one of g */
  int leading;           /* '*' is the last 0 to 4 letters of "asbt", '&' the first of these */
  int64_t pad;           /* elements between rows where strides are free */
  size_t gap;            /* bytes around each tensor */
  uint64_t absent, wide; /* a bit a field: left out; f32, i64 or one dimension where the description allows it, too */
  uint32_t numbers;      /* gives flags, choices, other numbers and indices */
  bool beyond;           /* an index may be the extent below which it must lie */
} call_choices;

typedef struct call {
  int entry;
  const tigon_schema *schema;
  _Alignas(16) char args[CALL_ARGS_BYTES];
  _Alignas(16) char elements[CALL_LIST_BYTES]; /* elements of the list */
} call;

/* Makes a call of the i-th entry as `schema` describes it, without a workspace; tensors lie in `memory` from its beginning.
 * Returns the bytes they take, with indices written there, or 0 where `room` is too small. */
size_t call_make(call *c, int entry, const tigon_schema *schema, const call_choices *how, char *memory, size_t room);
/* Nothing where the entry takes no workspace. */
void call_set_workspace(call *c, void *workspace, size_t bytes);
/* Both let a list's pointer point into this very struct, unless it is NULL. */
tigon_status call_run(call *c, tigon_context *context);
tigon_status call_query(call *c, tigon_context *context, size_t *bytes);

/* The number of the entry of that name, which there must be. */
int call_entry(const char *name);

/* The field of that name; NULL where the entry has none. */
const tigon_field *call_find(const call *c, const char *name);
/* Where the field's value is; `element` counts for the fields of a list's elements. */
void *call_field(call *c, const tigon_field *field, int element);
static inline tigon_tensor *call_tensor(call *c, const tigon_field *field, int element) {
  return call_field(c, field, element);
}
/* How many values the field has: one in each element of a list. */
static inline int call_values(const tigon_field *field) { return field->flags & TIGON_FIELD_EACH ? CALL_ELEMENTS : 1; }

/* What lies at the offset of a workspace and of a list. */
typedef struct call_workspace {
  void *data;
  size_t bytes;
} call_workspace;
typedef struct call_list {
  const void *elements;
  int64_t count;
} call_list;

#endif
