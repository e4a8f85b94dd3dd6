#include "attention_options.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

enum { KEY_WINDOW = 1024, KEY_BOTH_SIDES, KEY_DILATION, KEY_SEQUENCES, KEY_SOFTCAP, KEY_SINKS, KEY_EXACT };

static const struct argp_option options[] = {
    {"window", KEY_WINDOW, "N", 0, "A query sees N keys to its left, itself included (default: all)", 0},
    {"both-sides", KEY_BOTH_SIDES, NULL, 0,
     "A query sees keys to its right, too, as many as to its left (default: causal)", 0},
    {"dilation", KEY_DILATION, "N", 0,
     "Of a query's keys every N-th counts, and a window reaches N times as far: --window 4 --both-sides --dilation 2 is a "
     "neighbourhood of 7 keys, 2 apart",
     0},
    {"sequences", KEY_SEQUENCES, "N", 0, "The rows are N packed sequences, alike in length (cu_seqlens)", 0},
    {"softcap", KEY_SOFTCAP, "C", 0, "Scores become C * tanh(score / C), as Gemma 2's", 0},
    {"sinks", KEY_SINKS, NULL, 0, "Each head has a logit without a value, as gpt-oss's", 0},
    {"exact", KEY_EXACT, NULL, 0, "In bf16 and f16, weights are not rounded to the dtype", 0},
    {0},
};

static error_t parse(int key, char *argument, struct argp_state *state) {
  enum { MOST_SEQUENCES = 1 << 20 };
  attention_options *o = state->input;
  const char *command = state->argv[0], *name = NULL;
  for (const struct argp_option *one = options; one->name; ++one)
    if (one->key == key) name = one->name;
  if (!name) return ARGP_ERR_UNKNOWN;
  if (!o->given) o->given = name;
  switch (key) {
    case KEY_WINDOW: o->asked.window = cli_number(command, "--window", argument, 1, INT64_MAX); return 0;
    case KEY_BOTH_SIDES: o->asked.both_sides = true; return 0;
    case KEY_DILATION: o->asked.dilation = cli_number(command, "--dilation", argument, 1, INT64_MAX); return 0;
    case KEY_SEQUENCES: o->asked.sequences = cli_number(command, "--sequences", argument, 1, MOST_SEQUENCES); return 0;
    case KEY_SOFTCAP: o->asked.softcap = cli_positive(command, "--softcap", argument); return 0;
    case KEY_EXACT: o->asked.exact = true; return 0;
    default: o->asked.sinks = true; return 0;
  }
}

static const struct argp argp = {options, parse, NULL, NULL, NULL, NULL, NULL};
const struct argp_child attention_options_child = {&argp, 0, "attention:", 0};

__attribute__((format(printf, 3, 4))) static void add(char text[ATTENTION_TEXT], size_t *used, const char *format,
                                                      ...) {
  va_list list;
  va_start(list, format);
  *used += (size_t)vsnprintf(text + *used, ATTENTION_TEXT - *used, format, list);
  va_end(list);
}

char *attention_options_text(char text[ATTENTION_TEXT], const bench_attention *asked) {
  size_t used = 0;
  text[0] = 0;
  if (asked->both_sides) add(text, &used, ", both sides");
  if (asked->window > 0) add(text, &used, ", window %" PRId64, asked->window);
  if (asked->dilation > 1) add(text, &used, ", dilation %" PRId64, asked->dilation);
  if (asked->sequences > 0) add(text, &used, ", %" PRId64 " sequences", asked->sequences);
  if (asked->softcap > 0) add(text, &used, ", softcap %g", asked->softcap);
  if (asked->sinks) add(text, &used, ", sinks");
  if (asked->exact) add(text, &used, ", exact");
  return text;
}
