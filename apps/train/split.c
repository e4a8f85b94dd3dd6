#include "split.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "utf8.h"

enum { MOST_STEPS = 16 };

typedef struct step {
  pcre2_code *code; /* NULL: no pattern */
  pcre2_match_data *match;
  train_split_keep keep;
  bool prefix;
} step;

struct train_split {
  step steps[MOST_STEPS];
  int count;
};

typedef struct running {
  const train_split *split;
  train_split_take take;
  void *user;
  train_error *error;
} running;

train_split *train_split_create(train_error *error) {
  train_split *split = calloc(1, sizeof *split);
  if (!split) train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for the tokenizer");
  return split;
}

void train_split_destroy(train_split *split) {
  for (int i = 0; split && i < split->count; ++i) {
    pcre2_match_data_free(split->steps[i].match);
    pcre2_code_free(split->steps[i].code);
  }
  free(split);
}

/* PCRE2's \s has U+180E too, which Unicode took out of the white space: \s and \S become properties. */
static char *by_white_space(const char *pattern) {
  static const char property[] = "p{White_Space}";
  char *changed = malloc(strlen(pattern) * sizeof property + 1), *to = changed;
  for (const char *from = pattern; to && *from; ++from) {
    *to++ = *from;
    if (*from != '\\' || !from[1]) continue;
    ++from;
    if (*from == 's' || *from == 'S') {
      memcpy(to, property, sizeof property - 1);
      if (*from == 'S') *to = 'P';
      to += sizeof property - 1;
    } else {
      *to++ = *from;
    }
  }
  if (to) *to = 0;
  return changed;
}

bool train_split_add(train_split *split, const char *pattern, bool literal, train_split_keep keep, bool prefix,
                     train_error *error) {
  if (split->count == MOST_STEPS)
    return train_fail(error, TRAIN_EXIT_TROUBLE, "pre_tokenizer has over %d steps", MOST_STEPS);
  step *s = &split->steps[split->count];
  *s = (step){.keep = keep, .prefix = prefix};
  ++split->count;
  if (!pattern) return true;
  const uint32_t options = PCRE2_UTF | (literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C);
  int number = 0;
  PCRE2_SIZE where = 0;
  char *changed = literal ? strdup(pattern) : by_white_space(pattern);
  if (!changed) return train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for the tokenizer");
  s->code = pcre2_compile((PCRE2_SPTR)changed, PCRE2_ZERO_TERMINATED, options, &number, &where, NULL);
  free(changed);
  if (!s->code) {
    char why[160] = "";
    pcre2_get_error_message(number, (PCRE2_UCHAR *)why, sizeof why);
    return train_fail(error, TRAIN_EXIT_TROUBLE, "the pattern \"%.200s\" is not understood: %s", pattern, why);
  }
  pcre2_jit_compile(s->code, PCRE2_JIT_COMPLETE); /* without it, it is interpreted */
  s->match = pcre2_match_data_create_from_pattern(s->code, NULL);
  return s->match || train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for the tokenizer");
}

static bool run_from(const running *r, int number, const uint8_t *text, size_t bytes);

/* The first match at or behind `from` that is not empty: [*begin, *end). False for none or, with the sentence, for an
 * error. */
static bool find(const running *r, const step *s, const uint8_t *text, size_t bytes, size_t from, size_t *begin,
                 size_t *end) {
  while (from < bytes) {
    int found = pcre2_match(s->code, text, bytes, from, PCRE2_NO_UTF_CHECK, s->match, NULL);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT)
      found = pcre2_match(s->code, text, bytes, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, s->match, NULL);
    if (found == PCRE2_ERROR_NOMATCH) return false;
    if (found < 0) {
      char why[160] = "";
      pcre2_get_error_message(found, (PCRE2_UCHAR *)why, sizeof why);
      return train_fail(r->error, TRAIN_EXIT_TROUBLE, "the tokenizer's pattern failed on the text: %s", why);
    }
    const PCRE2_SIZE *range = pcre2_get_ovector_pointer(s->match);
    *begin = range[0] < from ? from : range[0]; /* \K may move it */
    *end = range[1];
    if (*end > *begin) return true;
    from = *begin + train_utf8_length(text + *begin, bytes - *begin);
    if (from == *begin) return false;
  }
  return false;
}

static bool run_pattern(const running *r, int number, const uint8_t *text, size_t bytes) {
  const step *s = &r->split->steps[number];
  if (!s->code) return run_from(r, number + 1, text, bytes);
  size_t at = 0, begin = 0, end = 0;
  while (find(r, s, text, bytes, at, &begin, &end)) {
    if (s->keep != TRAIN_SPLIT_MATCHES && !run_from(r, number + 1, text + at, begin - at)) return false;
    if (s->keep != TRAIN_SPLIT_BETWEEN && !run_from(r, number + 1, text + begin, end - begin)) return false;
    at = end;
  }
  if (r->error->exit_code != 0) return false;
  return s->keep == TRAIN_SPLIT_MATCHES || run_from(r, number + 1, text + at, bytes - at);
}

/* Steps `number` and on. A step's match data are used up before the next call needs them. */
static bool run_from(const running *r, int number, const uint8_t *text, size_t bytes) {
  if (bytes == 0) return true;
  if (number == r->split->count) return r->take(r->user, text, bytes, r->error);
  if (!r->split->steps[number].prefix || text[0] == ' ') return run_pattern(r, number, text, bytes);
  uint8_t *longer = malloc(bytes + 1);
  if (!longer) return train_fail(r->error, TRAIN_EXIT_TROUBLE, "no memory for the text");
  longer[0] = ' ';
  memcpy(longer + 1, text, bytes);
  const bool good = run_pattern(r, number, longer, bytes + 1);
  free(longer);
  return good;
}

bool train_split_run(const train_split *split, const uint8_t *text, size_t bytes, train_split_take take, void *user,
                     train_error *error) {
  const running r = {split, take, user, error};
  error->exit_code = 0;
  return run_from(&r, 0, text, bytes);
}
