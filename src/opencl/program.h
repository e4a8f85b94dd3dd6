/* Programs: a file of kernels for one dtype, built from source at first use, then kept by the process and on disk. */
#ifndef TIGON_OPENCL_PROGRAM_H
#define TIGON_OPENCL_PROGRAM_H

#include "opencl/opencl.h"

/* The programs of a device in a cl_context. Without a context the room has one of its own. It is kept for the process, as its programs take
 * long to build; NULL, with the driver's code. */
typedef struct opencl_room opencl_room;
opencl_room *opencl_room_of(const cl_api *cl, void *device, void *context, int *code);
void *opencl_room_context(const opencl_room *room);
/* The queue of all contexts that have no stream of their own, so that each sees what another one enqueued before. */
void *opencl_room_stream(opencl_room *room, int *code);

/* The program of a file for the queue's device. The handle is the room's. */
tigon_status opencl_program(tigon_queue *queue, const char *file, tigon_dtype dtype, void **program);

/* What the compiler is told: the dtype, and how the variant works on the device. */
enum { OPENCL_OPTIONS = 256 };
void opencl_options(const opencl_device *d, tigon_dtype dtype, char text[OPENCL_OPTIONS]);

/* A number that another device, driver, dtype, variant or source changes. */
uint64_t opencl_key(const opencl_device *d, tigon_dtype dtype, uint64_t source);

/* ---- source.c ---- */

/* The text of a file with all that it includes, each once; NULL: out of memory, or no such file. The caller frees it. */
char *opencl_source(const char *file);
/* A hash of all files. */
uint64_t opencl_sources_hash(void);

/* ---- cache.c ---- */

/* A text's hash, after that of others; `from` 0: there are none. */
uint64_t opencl_hash(uint64_t from, const char *text);
/* Where files are kept; false: nowhere. */
enum { OPENCL_PATH = 1024 };
bool opencl_cache_folder(char path[OPENCL_PATH]);
/* A file by its name and number; NULL: there is none, or it is broken. The caller frees it. */
unsigned char *opencl_cache_read(const char *name, uint64_t key, size_t *bytes);
/* Nothing is said when it does not work: the next process builds anew. */
void opencl_cache_write(const char *name, uint64_t key, const unsigned char *binary, size_t bytes);

#endif
