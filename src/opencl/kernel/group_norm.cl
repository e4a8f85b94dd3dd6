/* A group of a batch is read three times forward and twice backward, all but the first time from a cache. The work-items of a group share each
 * channel, or, where channels are short, each has channels of its own. */
#include "group_norm.h"
#include "sum.cl"

#define SHARED 1
#define KERNEL(name) name##_shared
#include "group_norm_kernels.h"
#undef SHARED
#undef KERNEL
#if GROUP > 1
#define SHARED 0
#define KERNEL(name) name##_own
#include "group_norm_kernels.h"
#endif
