/* What the system says about the host. */
#ifndef TIGON_CORE_MACHINE_H
#define TIGON_CORE_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The value of the first line "<key> : <value>" of a file as in /proc, "" if there is none. */
void tigon_value_of(const char *path, const char *key, char *value, size_t size);

/* Sizes in bytes, 0 if the system does not say. */
typedef struct tigon_machine {
  char model[128];
  int cores; /* online, that this process may use */
  int64_t l1d_bytes, l2_bytes, l3_bytes;
  char features[512]; /* instruction sets that matter to the kernels, separated by blanks */
  bool lacked_memory; /* some of it is missing for want of memory */
} tigon_machine;
void tigon_machine_read(tigon_machine *machine);

#endif
