/* What the fake runtime lets a test decide; a test finds these by dlsym(). */
#ifndef FAKE_ACL_H
#define FAKE_ACL_H

#include <stdint.h>

/* The nth call of this name from now on returns `code`, once. aclrtGetSocName returns NULL instead. */
void fake_acl_fail(const char *call, int nth, int code);
void fake_acl_machine(uint32_t devices, const char *soc);
/* Streams, blocks of memory, binaries and events that are not given back. */
int fake_acl_alive(void);

#endif
