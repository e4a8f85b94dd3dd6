/* A model of what a call's tensors have to do with each other, and of the sentence that says what is wrong: the test's own, to
 * which the library's is compared. */
#ifndef TIGON_TEST_RELATIONS_H
#define TIGON_TEST_RELATIONS_H

#include <inttypes.h>

#include "api.h"
#include "views.h"

enum { NAME = 64, SENTENCE = 256 };

/* "params[1].grad", "grads[1]": fields of a list are tried in its last element. */
static const char *name_of(const tigon_schema *schema, const tigon_field *field, char name[NAME]) {
  const char *list = schema->fields[0].name;
  if (!(field->flags & TIGON_FIELD_EACH)) return field->name;
  if (strcmp(list, field->name) == 0)
    snprintf(name, NAME, "%s[%d]", list, CALL_ELEMENTS - 1);
  else
    snprintf(name, NAME, "%s[%d].%s", list, CALL_ELEMENTS - 1, field->name);
  return name;
}

static const char *dtype_of(tigon_dtype dtype) {
  static const char *const names[] = {"", "f32", "f16", "bf16", "i32", "i64"};
  return names[dtype];
}

typedef struct fact {
  bool known;
  int64_t extent;
  char from[NAME + 16]; /* "x.shape[1]" */
} fact;
typedef struct group {
  const tigon_tensor *tensor;
  char name[NAME];
  int first, count, letters;
} group;
typedef struct model {
  fact letters[128];
  group star, other; /* '*' and '&' */
  tigon_dtype dtypes[3];
  char givers[3][NAME];
  char *sentence; /* the first thing wrong */
} model;

#define SAY(...) (snprintf(m->sentence, SENTENCE, __VA_ARGS__), true)

static bool wrong_extent(model *m, const char *name, int d, const tigon_tensor *t, int64_t must, const char *because) {
  return t->shape[d] != must &&
         SAY("%s.shape[%d] is %" PRId64 ", must be %" PRId64 " (%s)", name, d, t->shape[d], must, because);
}

static bool wrong_vector(model *m, const char *name, const tigon_tensor *t, int64_t must, const char *because) {
  if (t->ndim != 1) return SAY("%s.ndim is %d, must be 1", name, t->ndim);
  return wrong_extent(m, name, 0, t, must, because);
}

static bool wrong_like_group(model *m, const char *name, const tigon_tensor *t, int first, const group *g) {
  for (int i = 0; i < g->count; ++i) {
    char because[NAME + 16];
    snprintf(because, sizeof because, "%s.shape[%d]", g->name, g->first + i);
    if (wrong_extent(m, name, first + i, t, g->tensor->shape[g->first + i], because)) return true;
  }
  return false;
}

static bool wrong_per_row(model *m, const char *name, const tigon_tensor *t) {
  const group *g = &m->star;
  int64_t rows = 1;
  for (int i = 0; i < g->count; ++i) rows *= g->tensor->shape[i];
  char because[NAME + 16];
  snprintf(because, sizeof because, "rows of %s", g->name);
  if (t->ndim == 1) return wrong_extent(m, name, 0, t, rows, because);
  if (t->ndim == g->count) return wrong_like_group(m, name, t, 0, g);
  if (g->count == 1) return SAY("%s.ndim is %d, must be 1", name, t->ndim);
  return SAY("%s.ndim is %d, must be %d (%s.ndim - 1) or 1", name, t->ndim, g->count, g->name);
}

static bool wrong_shape(model *m, const char *name, const char *pattern, const tigon_tensor *t) {
  const int letters = (int)strlen(pattern);
  int64_t rows = 1;
  for (int i = 0; i < m->star.count; ++i) rows *= m->star.tensor->shape[m->star.first + i];
  if (pattern[0] == '?') return false;
  if (pattern[0] == '1') return wrong_vector(m, name, t, 1, pattern + 2);
  if (pattern[0] == 'r') return wrong_vector(m, name, t, rows, "rows");
  if (pattern[0] == '@') return wrong_per_row(m, name, t);
  const char *sign = strpbrk(pattern, "*&");
  int more = 0; /* dimensions beyond the pattern's letters */
  if (!sign && t->ndim != letters) return SAY("%s.ndim is %d, must be %d", name, t->ndim, letters);
  if (sign) {
    group *g = *sign == '*' ? &m->star : &m->other;
    const int first = (int)(sign - pattern), ndim = letters - 1 + g->count;
    more = t->ndim - letters;
    if (!g->tensor) {
      if (more < -1) return SAY("%s.ndim is %d, must be %d or more", name, t->ndim, letters - 1);
      *g = (group){.tensor = t, .first = first, .count = more + 1, .letters = letters};
      snprintf(g->name, NAME, "%s", name);
    } else if (t->ndim != ndim) {
      if (g->letters != letters) return SAY("%s.ndim is %d, must be %d", name, t->ndim, ndim);
      return SAY("%s.ndim is %d, must be %d (%s.ndim)", name, t->ndim, ndim, g->name);
    } else if (wrong_like_group(m, name, t, first, g)) {
      return true;
    }
  }
  for (int i = 0; i < letters; ++i) {
    if (pattern + i == sign) continue;
    const int d = sign && pattern + i > sign ? i + more : i;
    const int digit = pattern[i] <= '9' ? pattern[i] - '0' : 0;
    if (digit && t->shape[d] != digit)
      return SAY("%s.shape[%d] is %" PRId64 ", must be %d", name, d, t->shape[d], digit);
    fact *f = &m->letters[(int)pattern[i]];
    if (digit) continue;
    if (f->known && wrong_extent(m, name, d, t, f->extent, f->from)) return true;
    if (f->known) continue;
    *f = (fact){.known = true, .extent = t->shape[d]};
    snprintf(f->from, sizeof f->from, "%s.shape[%d]", name, d);
  }
  return false;
}

static bool wrong_dtype(model *m, const char *name, const tigon_field *field, const tigon_tensor *t) {
  const tigon_dtype must = m->dtypes[field->as - 'T'], other = field->or_dtype;
  if (t->dtype == must || t->dtype == other) return false;
  const bool either = other && other != must;
  return SAY("%s.dtype is %s, must be %s (%s.dtype)%s%s", name, dtype_of(t->dtype), dtype_of(must),
             m->givers[field->as - 'T'], either ? " or " : "", either ? dtype_of(other) : "");
}

/* The first relation that does not hold, of the struct's own fields or of those of the list's last element. */
static bool wrong_relation(call *c, bool each, char sentence[SENTENCE]) {
  static model made;
  model *m = &made;
  memset(m, 0, sizeof *m);
  m->sentence = sentence;
  for (int late = 0; late < 2; ++late) /* first dtypes whose giver came before, then the others */
    for (int i = 0; i < c->schema->count; ++i) {
      const tigon_field *field = &c->schema->fields[i];
      if (!!(field->flags & TIGON_FIELD_EACH) != each) continue;
      char text[NAME];
      const char *name = name_of(c->schema, field, text);
      if (field->kind == TIGON_FIELD_INT64 && field->shape && !late) {
        const int64_t value = *(int64_t *)call_field(c, field, 0);
        const fact *of = &m->letters[(int)field->divides];
        if (of->extent % value)
          return SAY("%s is %" PRId64 ", must divide %" PRId64 " (%s)", name, value, of->extent, of->from);
        fact *f = &m->letters[(int)field->shape[0]];
        *f = (fact){.known = true, .extent = value};
        snprintf(f->from, sizeof f->from, "%s", name);
      }
      if (field->kind != TIGON_FIELD_TENSOR) continue;
      const tigon_tensor *t = call_tensor(c, field, CALL_ELEMENTS - 1);
      if (t->ndim == 0) continue;
      if (!late && wrong_shape(m, name, field->shape, t)) return true;
      if (field->as && m->dtypes[field->as - 'T'] && wrong_dtype(m, name, field, t)) return true;
      if (field->gives && !m->dtypes[field->gives - 'T']) {
        m->dtypes[field->gives - 'T'] = t->dtype;
        snprintf(m->givers[field->gives - 'T'], NAME, "%s", name);
      }
    }
  return false;
}

#endif
