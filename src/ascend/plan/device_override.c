#include "ascend/plan/device_override.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CORES = 128, LEAST_BYTES = 32 << 10, MOST_BYTES = 1 << 20 };

static _Thread_local char sentence[160];

static const char *given(const char *variable) {
  const char *value = getenv(variable);
  return value && *value ? value : NULL;
}

const char *tigon_ascend_part_name(const char *name) {
  const char *part = given("TIGON_ASCEND_PART");
  return part ? part : name;
}

/* true: *value is the variable's number, or as before where it is not set. */
static bool read_number(const char *variable, int64_t least, int64_t most, int64_t unit, const char *unit_text,
                        int64_t *value, const char **reason) {
  const char *text = given(variable);
  if (!text) return true;
  int64_t number = 0;
  const size_t digits = strspn(text, "0123456789");
  for (size_t i = 0; i < digits && number <= most; ++i) number = 10 * number + (text[i] - '0');
  if (digits == strlen(text) && number >= least && number <= most && number % unit == 0) return *value = number, true;
  snprintf(sentence, sizeof sentence, "%s is \"%.40s\", must be %s from %lld to %lld", variable, text, unit_text,
           (long long)least, (long long)most);
  *reason = sentence;
  return false;
}

bool tigon_ascend_override(tigon_device_desc *device, int64_t most_bytes, const char **reason) {
  if (!read_number("TIGON_ASCEND_CORES", 1, MOST_CORES, 1, "a whole number", &device->cores, reason)) return false;
  return read_number("TIGON_ASCEND_UB_BYTES", LEAST_BYTES, most_bytes > 0 ? most_bytes : MOST_BYTES,
                     device->onchip_alignment, "a multiple of 32", &device->onchip_bytes, reason);
}
