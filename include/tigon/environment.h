/* What a report of a bug needs to know: of this library, the machine, its devices and the environment. `tigon env` prints it. */
#ifndef TIGON_ENVIRONMENT_H
#define TIGON_ENVIRONMENT_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One fact. `part` is one of
 *   "tigon"        version, commit, compiler, build
 *   "system"       operating system, C library, processor
 *   "drivers"      what each device's driver says of itself
 *   "devices"      their names, variants and GEMM, or why there is none
 *   "environment"  variables that change what Tigon does, and where compiled kernels are kept
 *   "unknown"      variables that begin with TIGON_ and that nothing reads
 * The texts are valid during the call. */
typedef void tigon_environment_fn(void *user, const char *part, const char *name, const char *value);

/* Calls `show` for each fact. Each device is opened for a moment. */
TIGON_API void tigon_environment(tigon_environment_fn *show, void *user);

#ifdef __cplusplus
}
#endif

#endif
