#include "error.h"

#include <stdarg.h>
#include <stdio.h>

bool train_fail(train_error *error, int exit_code, const char *format, ...) {
  va_list list;
  va_start(list, format);
  vsnprintf(error->text, sizeof error->text, format, list);
  va_end(list);
  error->exit_code = exit_code;
  return false;
}

bool train_ok(const tigon_context *context, tigon_status status, train_error *error) {
  if (status == TIGON_OK) return true;
  return train_fail(error, TRAIN_EXIT_TROUBLE, "%s (%s)", tigon_last_error(context), tigon_status_name(status));
}
