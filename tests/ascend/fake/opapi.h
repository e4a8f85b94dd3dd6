/* What the fake library of operators lets a test decide; a test finds it by dlsym(). */
#ifndef FAKE_OPAPI_H
#define FAKE_OPAPI_H

#include <stdint.h>

/* Bytes that all calls want beyond their usual workspace, and attention for each head of each batch. */
void fake_opapi_workspace(uint64_t more);
void fake_opapi_workspace_of_heads(uint64_t each);
/* How often attention, forward or backward, was enqueued. */
int fake_opapi_attention_calls(void);

#endif
