/* Addresses of OpenCL buffers. A buffer of OpenCL 1.2 is a handle; a tensor is an address. So each buffer gets a range of addresses that no
 * memory of the host has, and a launcher looks an address up. Memory that the host shares has the range that it has on the host. */
#ifndef TIGON_OPENCL_MEMORY_H
#define TIGON_OPENCL_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OPENCL_ABSENT UINT64_MAX

/* Where an address lies: in a buffer, or in memory that begins at `shared` and that the host shares; the other is NULL. */
typedef struct opencl_place {
  void *buffer, *shared;
  uint64_t offset; /* bytes from its beginning */
  size_t left;     /* and to its end */
} opencl_place;

/* Gives a buffer of a cl_context a range; NULL: no addresses are left. */
void *opencl_range_add(void *context, void *buffer, size_t bytes);
/* The same of shared memory, which is its range; false: out of memory. */
bool opencl_range_share(void *context, void *shared, size_t bytes);
/* Takes it away, and says what had it; false: `base` begins no range of the cl_context. */
bool opencl_range_remove(void *context, const void *base, opencl_place *had);
/* False: no range of the cl_context holds the address. One right behind a range, as of a tensor without elements, belongs to it. */
bool opencl_range_find(void *context, const void *address, opencl_place *place);

#endif
