/* What the fake library of operators lets a test decide; a test finds it by dlsym(). */
#ifndef FAKE_OPAPI_H
#define FAKE_OPAPI_H

#include <stdint.h>

/* Bytes that matrix products want beyond their usual workspace. */
void fake_opapi_workspace(uint64_t more);

#endif
