/* Cuts text into the pieces that byte pair encoding never merges across, step by step, by regular expressions. */
#ifndef TRAIN_SPLIT_H
#define TRAIN_SPLIT_H

#include <stddef.h>
#include <stdint.h>

#include "error.h"

typedef struct train_split train_split;

typedef enum train_split_keep {
  TRAIN_SPLIT_BOTH,    /* matches are pieces, and what is between them */
  TRAIN_SPLIT_BETWEEN, /* matches are dropped */
  TRAIN_SPLIT_MATCHES, /* what is between them is dropped */
} train_split_keep;

train_split *train_split_create(train_error *error);
void train_split_destroy(train_split *split);

/* Adds a step. `literal`: the pattern is a text. `prefix`: a piece that does not begin with a blank gets one first.
 * Pattern NULL: that only. False with what is wrong with the pattern. */
bool train_split_add(train_split *split, const char *pattern, bool literal, train_split_keep keep, bool prefix,
                     train_error *error);

/* Calls `take` with each piece, in order, until it returns false. */
typedef bool (*train_split_take)(void *user, const uint8_t *piece, size_t bytes, train_error *error);
bool train_split_run(const train_split *split, const uint8_t *text, size_t bytes, train_split_take take, void *user,
                     train_error *error);

#endif
