/* What the fake runtime lets a test decide; a test finds these by dlsym(). */
#ifndef FAKE_ACL_H
#define FAKE_ACL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The nth call of this name from now on returns `code`, once. aclrtGetSocName returns NULL instead. */
void fake_acl_fail(const char *call, int nth, int code);
void fake_acl_machine(uint32_t devices, const char *soc);
/* Streams, blocks of memory, binaries and events that are not given back. */
int fake_acl_alive(void);

/* For the library of operators (opapi.c), whose calls fail by fake_acl_fail(), too, and whose tensors and executors
 * are alive until they are given back. */
int fake_acl_code(const char *call); /* that this call shall return, 0: its own */
bool fake_acl_on_device(const void *start, size_t bytes);
bool fake_acl_on_stream(const void *stream);
void fake_acl_add_alive(int more);

#endif
