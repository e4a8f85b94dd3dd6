/* Which OpenCL devices there are, and what each says of itself. */
#ifndef TIGON_OPENCL_DEVICES_H
#define TIGON_OPENCL_DEVICES_H

#include "opencl/opencl.h"

enum { OPENCL_DEVICES = 32 };

/* GPUs come first, then the rest, in the order of platforms; with `xpu` Intel's GPUs alone. How many there are that can run our kernels; with 0,
 * *reason is one sentence. */
int opencl_devices(const cl_api *cl, bool xpu, void *devices[OPENCL_DEVICES], const char **reason);

/* A GPU has one of these. Where neither is there, the loader is not asked for Intel's, because the drivers of other devices would start then, in
 * each process that names no device. Tests have paths of their own. */
extern const char *opencl_gpu_paths[2];

bool opencl_is_cpu(const cl_api *cl, void *device);
/* Fills in how the variant works on d->device. False: the device lacks what the variant needs. */
bool opencl_describe(opencl_device *d, const char *variant);
/* The same of a GPU that need not be here, for calls that are recorded. */
void opencl_describe_any(opencl_device *d, const char *variant);

bool opencl_has_subgroups(const cl_api *cl, void *device);
bool opencl_subgroups_here(void); /* has any device? */

#endif
