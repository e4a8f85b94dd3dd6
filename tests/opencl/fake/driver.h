/* A driver of ours as libOpenCL.so.1. The words of the environment variable FAKE_OPENCL say what it is like:
 *   intel     there is a GPU of Intel, too
 *   subgroups that GPU has cl_intel_subgroups
 *   none      there is no device
 *   old, blind, unround, finite   its CPU has OpenCL 1.1, no compiler, other rounding, no infinity
 *   inexact, flush                division is off by 2.5 ULP; denormal numbers become 0
 *   wrong     the last element of a row is left out
 *   broken    no source compiles
 *   disorder  queues run commands out of order
 * A test finds the functions below by dlsym(). */
#ifndef FAKE_OPENCL_H
#define FAKE_OPENCL_H

/* Programs that were built from source so far. */
int fake_opencl_builds(void);
/* Buffers, programs, kernels, queues and events that are not given back. */
int fake_opencl_alive(void);

/* The memory of a buffer. */
char *fake_opencl_data(void *buffer);

#endif
