/* How the trainer fails: a function returns false after it wrote one sentence and an exit code here. */
#ifndef TRAIN_ERROR_H
#define TRAIN_ERROR_H

#include <stdbool.h>
#include <tigon/context.h>

/* The exit codes of `tigon train`, as apps/cli/cli.h documents them for every command. */
enum {
  TRAIN_EXIT_FAILED = 1,  /* the run itself failed: the loss is no longer a number */
  TRAIN_EXIT_USAGE = 2,   /* the command line is wrong */
  TRAIN_EXIT_TROUBLE = 3, /* a device or a file failed */
};

typedef struct train_error {
  int exit_code; /* 0: nothing failed */
  char text[1024];
} train_error;

/* Writes the sentence, always returns false. */
__attribute__((format(printf, 3, 4))) bool train_fail(train_error *error, int exit_code, const char *format, ...);

/* True for TIGON_OK; else the context's own sentence becomes the error. */
bool train_ok(const tigon_context *context, tigon_status status, train_error *error);

#endif
