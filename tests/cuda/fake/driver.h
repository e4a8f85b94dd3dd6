/* What the fake driver lets a test decide and see; a test finds these by dlsym(). */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

/* The nth call of this name (less the suffix _v2) from now on returns `code`, once. */
void fake_cuda_fail(const char *call, int nth, int code);
void fake_cuda_machine(int devices, int sm);
/* 12040: CUDA 12.4 */
void fake_cuda_version(int version);
/* Streams, blocks of memory and events that are not given back. */
int fake_cuda_alive(void);
/* Between the two an op runs: whatever it may not do there is noted, the first of it as a sentence; NULL: nothing. `stream` is the
 * one that it has to use. */
void fake_cuda_op_begins(void *stream);
const char *fake_cuda_op_ends(int *launches);
/* Called by every launch, until NULL; `shape` is grid, block, shared bytes and cluster. */
void fake_cuda_watch(void (*seen)(const char *kernel, const unsigned shape[5], void **arguments));

#endif
