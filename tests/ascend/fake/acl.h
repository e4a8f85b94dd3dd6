/* What the fake runtime lets a test decide; a test finds these by dlsym(). */
#ifndef FAKE_ACL_H
#define FAKE_ACL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The nth call of this name from now on returns `code`, once. aclrtGetSocName returns NULL instead. */
void fake_acl_fail(const char *call, int nth, int code);
void fake_acl_machine(uint32_t devices, const char *soc);
/* What the device says of itself: vector cores, and bytes of UB. 0: it does not know the question. */
void fake_acl_device(int64_t vector_cores, int64_t ub_bytes);
/* needs: a kernel is only found in a binary that was loaded as one for vector cores. knows: loading takes that option. */
void fake_acl_cores(bool needs, bool knows);
/* The path of the last binary that was loaded from a file. */
const char *fake_acl_loaded(void);
/* Streams, blocks of memory, binaries and events that are not given back. */
int fake_acl_alive(void);

/* For the library of operators (opapi.c), whose calls fail by fake_acl_fail(), too, and whose tensors and executors
 * are alive until they are given back. */
int fake_acl_code(const char *call); /* that this call shall return, 0: its own */
bool fake_acl_on_device(const void *start, size_t bytes);
bool fake_acl_on_stream(const void *stream);
void fake_acl_add_alive(int more);

/* ---- what runs kernels: the simulator (simulator.c), or the device's side of the dialect (../device/standin.c) ---- */

typedef struct fake_acl_block {
  char *start;
  size_t bytes;
  int32_t device;
} fake_acl_block;
typedef struct fake_acl_launch {
  const char *name;
  void *symbol;
  uint32_t blocks;
  const void *arguments; /* a copy of exactly `bytes` */
  size_t bytes;
  const fake_acl_block *memory; /* blocks of the device's memory */
  int memory_count;
} fake_acl_launch;

enum { FAKE_ACL_SENTENCE = 512 };
/* false: a rule was broken, which `text` says. */
bool fake_acl_run(const fake_acl_launch *launch, double *microseconds, char *text);

#endif
