/* attention's options, which `tigon bench` and `tigon plan` have alike. */
#ifndef TIGON_CLI_ATTENTION_OPTIONS_H
#define TIGON_CLI_ATTENTION_OPTIONS_H

#include "check/cases.h"
#include "cli.h"

typedef struct attention_options {
  bench_attention asked;
  const char *given; /* the first one on the command line: "window"; NULL: none */
} attention_options;

/* A child of the command's argp; its input is an attention_options. */
extern const struct argp_child attention_options_child;

/* ", window 64, 4 sequences": what a call has besides its shape; "" for none. */
enum { ATTENTION_TEXT = 128 };
char *attention_options_text(char text[ATTENTION_TEXT], const bench_attention *asked);

#endif
