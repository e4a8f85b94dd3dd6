/* A model of the relations between a call's tensors, and of the sentence that reports a wrong one. It is the test's own, and the
 * library's sentence is compared with it. */
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

/* An extent that is known, and why it is so: "x.shape[1]", or "" where the pattern says it. */
typedef struct fact {
  bool known;
  int64_t extent;
  char why[NAME + 16];
} fact;
/* '*' or '&': the dimensions of the first tensor that has the sign, among how many letters. */
typedef struct group {
  fact dims[TIGON_MAX_DIMS];
  int count, letters;
  char name[NAME];
} group;
typedef struct model {
  fact letters[128];
  group star, other; /* '*' and '&' */
  tigon_dtype dtypes[3];
  char givers[3][NAME];
  char sentence[SENTENCE]; /* the first thing wrong */
} model;

#define SAY(...) (snprintf(m->sentence, SENTENCE, __VA_ARGS__), true)
#define KNOW(f, value, ...) (*(f) = (fact){true, value, ""}, snprintf((f)->why, sizeof(f)->why, __VA_ARGS__))

/* An extent that is not known yet becomes so. */
static bool wrong_extent(model *m, const char *name, int d, int64_t extent, fact *must) {
  if (!must->known) KNOW(must, extent, "%s.shape[%d]", name, d);
  if (extent == must->extent) return false;
  const bool why = must->why[0] != 0;
  return SAY("%s.shape[%d] is %" PRId64 ", must be %" PRId64 "%s%s%s", name, d, extent, must->extent, why ? " (" : "",
             must->why, why ? ")" : "");
}

/* The extent of a pattern that is one letter, and why: one element, a row each. */
static void know_vector(model *m, const char *pattern) {
  fact *f = &m->letters[(int)pattern[0]];
  int64_t rows = 1;
  for (int i = 0; i < m->star.count; ++i) rows *= m->star.dims[i].extent;
  if (pattern[0] == '1') KNOW(f, 1, "%s", pattern + 2);
  if (pattern[0] == 'r') KNOW(f, rows, "rows");
  if (pattern[0] == '@') KNOW(f, rows, "rows of %s", m->star.name);
}

static bool wrong_shape(model *m, const char *name, const char *pattern, const tigon_tensor *t) {
  if (pattern[0] == '?') return false;
  if (pattern[0] == '@' && t->ndim != 1) {
    const int ndim = m->star.count;
    if (ndim == 1) return SAY("%s.ndim is %d, must be 1", name, t->ndim);
    if (t->ndim != ndim) return SAY("%s.ndim is %d, must be %d (%s.ndim - 1) or 1", name, t->ndim, ndim, m->star.name);
    pattern = "*";
  }
  know_vector(m, pattern);
  const char *sign = strpbrk(pattern, "*&");
  const int letters = strchr("1r@", pattern[0]) ? 1 : (int)strlen(pattern);
  group *g = sign && *sign == '*' ? &m->star : &m->other;
  if (sign && !g->letters) {
    g->count = t->ndim - letters + 1;
    g->letters = letters;
    snprintf(g->name, NAME, "%s", name);
  }
  const int ndim = sign ? letters - 1 + g->count : letters;
  if (t->ndim != ndim && sign && g->letters == letters)
    return SAY("%s.ndim is %d, must be %d (%s.ndim)", name, t->ndim, ndim, g->name);
  if (t->ndim != ndim) return SAY("%s.ndim is %d, must be %d", name, t->ndim, ndim);
  int d = 0;
  for (const char *at = pattern; at < pattern + letters; ++at)
    for (int i = 0; i < (at == sign ? g->count : 1); ++i, ++d)
      if (wrong_extent(m, name, d, t->shape[d], at == sign ? &g->dims[i] : &m->letters[(int)*at])) return true;
  return false;
}

static bool wrong_dtype(model *m, const char *name, const tigon_field *field, const tigon_tensor *t) {
  const tigon_dtype must = m->dtypes[field->as - 'T'], other = field->or_dtype;
  if (t->dtype == must || t->dtype == other) return false;
  const bool either = other && other != must;
  return SAY("%s.dtype is %s, must be %s (%s.dtype)%s%s", name, tigon_dtype_name(t->dtype), tigon_dtype_name(must),
             m->givers[field->as - 'T'], either ? " or " : "", either ? tigon_dtype_name(other) : "");
}

/* The first relation that does not hold, of the struct's own fields or of those of the list's last element. */
static bool wrong_relation(model *m, call *c, bool each) {
  memset(m, 0, sizeof *m);
  for (char digit = '2'; digit <= '9'; ++digit) KNOW(&m->letters[(int)digit], digit - '0', "%s", "");
  for (int late = 0; late < 2; ++late) /* first dtypes whose giver came before, then the others */
    for (int i = 0; i < c->schema->count; ++i) {
      const tigon_field *field = &c->schema->fields[i];
      if (!!(field->flags & TIGON_FIELD_EACH) != each) continue;
      const char *name = name_of(c->schema, field, (char[NAME]){0});
      if (field->kind == TIGON_FIELD_INT64 && field->shape && !late) {
        const int64_t value = *(int64_t *)call_field(c, field, 0);
        const fact *of = &m->letters[(int)field->divides];
        if (value < 1 || of->extent % value)
          return SAY("%s is %" PRId64 ", must divide %" PRId64 " (%s)", name, value, of->extent, of->why);
        KNOW(&m->letters[(int)field->shape[0]], value, "%s", name);
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
