/* Names of devices, and what their drivers say of themselves. */
#ifndef TIGON_CORE_DEVICES_H
#define TIGON_CORE_DEVICES_H

#include "backend.h"

/* A device's name, as a context takes it: "cpu", "cuda:1" of several, "ascend-sim:910B4". */
enum { TIGON_DEVICE_NAME = 64 };
void tigon_backend_device_name(const tigon_backend *backend, int index, int count, char name[TIGON_DEVICE_NAME]);

/* "" if the driver is absent. */
void tigon_cuda_driver(char *to, size_t size);
void tigon_npu_driver(char *to, size_t size);
void tigon_opencl_driver(char *to, size_t size);

#endif
