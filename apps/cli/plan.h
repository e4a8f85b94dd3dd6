/* What the files of `tigon plan` share. */
#ifndef TIGON_CLI_PLAN_H
#define TIGON_CLI_PLAN_H

#include "ascend/plan/plan.h"
#include "attention_options.h"

typedef struct plan_options {
  const char *op, *entry, *device, *dtype;
  int64_t rows, cols, table, unit, keys, groups, run, workspace, classes, vocab, vocab_begin;
  tigon_plan_case force;
  unsigned forms;
  bool json, devices;
  attention_options attention;
} plan_options;

/* A device that no planner cuts calls for: runs the front with tensors that have no memory, and prints what would be launched.
 * The exit status. */
int plan_launches(const char *command, const plan_options *chosen);

/* A line of the answer for people: a dim title and its text. */
void plan_line(const char *title, const char *text);

#endif
