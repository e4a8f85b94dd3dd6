/* Sentences and lists that are put together piece by piece. */
#ifndef TIGON_CORE_TEXT_H
#define TIGON_CORE_TEXT_H

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Adds to the text in to[size], which is cut where it is full. */
__attribute__((format(printf, 3, 4))) static inline void tigon_append(char *to, size_t size, const char *format, ...) {
  const size_t used = strlen(to);
  va_list list;
  va_start(list, format);
  vsnprintf(to + used, size - used, format, list);
  va_end(list);
}

#endif
